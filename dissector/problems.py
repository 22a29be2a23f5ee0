"""Problems: parts of the input that were not read or not decoded, as values.

A damaged part never makes a capture unreadable. Each stage reports a `Problem` and continues with
the next undamaged byte. Each problem becomes a row of the table `problems`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from dissector.arrays import value

UNREADABLE: Final = "unreadable_file"
FILE_KINDS: Final = (UNREADABLE, "truncated_file", "damaged_file", "damaged_stream")
"""Kinds of problems for which a file is missing in the rows, or a part of it."""
DROPPED: Final = "dropped_packets"
"""Kind of problem for packets that were sent, but that the capture dropped."""

UNDECRYPTED: Final = {
    "tls_no_keys": "the key log has no secrets for them",
    "tls_wrong_keys": "the secrets in the key log are wrong",
    "tls_no_handshake": "their handshakes are not in the capture",
    "tls_alert": "their handshakes failed",
    "tls_closed": "their handshakes failed",
}
"""Why connections are encrypted although there is a key log, by the kind of their problems."""
FAILED_HANDSHAKE: Final = ("tls_alert", "tls_closed")
"""Kinds of problems of a failed handshake, which are found also without a key log."""
ABORTED: Final = "tls_aborted"
AFTER_DATA: Final = " after data"
"""Kind of problem of a connection that a fatal alert ended after its handshake; and the end of the
detail, except for the sender."""
NO_KEY_LOG: Final = "it is TLS, and no key log decrypts it"
"""Detail of the problem `tls_no_keys` without a key log."""
NO_CRYPTOGRAPHY: Final = (
    "decrypting TLS needs the package cryptography: pip install 'kafka-dissector[tls]'"
)
UNUSED_SECRETS: Final = f"the capture has TLS secrets, but {NO_CRYPTOGRAPHY}"
"""Detail of the problem `tls_unsupported` if the package is missing."""
LATE_SECRETS: Final = "the capture has TLS secrets, but after the packets of their sessions"
"""Detail of the problem `tls_unsupported` of connections that were read before the secrets."""


@value
class Problem:
    """A part of the input that was not read or not decoded. None means unknown."""

    stage: str
    """packets, streams, tls, frames, exchanges, protocol, records."""
    kind: str
    """A short fixed name to group by, such as ``truncated_file`` or ``lost_bytes``."""
    detail: str
    """A description in one sentence."""
    time: int | None = None
    """ns since 1970, UTC."""
    capture: str | None = None
    """Name of the file, as given by the user."""
    packet: int | None = None
    """Packet number in its file, 1-based, as in Wireshark."""
    connection_id: int | None = None
    offset: int | None = None
    """Byte offset: in the file for stage packets, in the stream or the message for later stages."""
    bytes: int | None = None
    """Number of affected bytes."""
    count: int = 1
    """Number of packets that the problem represents."""


def file_problems(problems: Iterable[Problem]) -> Iterator[Problem]:
    """The problems that are of `FILE_KINDS`."""
    return (each for each in problems if each.kind in FILE_KINDS)


def packets_are(count: int) -> str:
    """Subject and verb of a sentence about `count` packets."""
    return "1 packet is" if count == 1 else f"{count} packets are"


def drop_problem(interface: str, dropper: str, count: int, **place: Any) -> Problem:
    """The problem that `dropper` dropped packets of an interface. `place`: fields of `Problem`."""
    packets = "1 packet" if count == 1 else f"{count} packets"
    detail = f"{interface}: {dropper} dropped {packets}"
    return Problem("packets", DROPPED, detail, count=count, **place)
