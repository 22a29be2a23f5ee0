"""Problems: what could not be read, as values.

A capture is never refused for one bad part of it. Whatever a stage cannot read, it says in a
`Problem`, and goes on with the next good byte. Each becomes one row of the `problems` table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that could not be read. None where not known."""

    stage: str
    """packets, streams, tls, frames, exchanges, protocol, records."""
    kind: str
    """A short fixed name, such as ``truncated_file`` or ``lost_bytes``; what people group by."""
    detail: str
    """One sentence for a person."""
    time: int | None = None
    """ns since 1970, UTC."""
    capture: str | None = None
    """The file's name, as given."""
    packet: int | None = None
    """1-based, in its file, as Wireshark shows it."""
    connection_id: int | None = None
    offset: int | None = None
    """Byte offset: in the file for stage packets, in the stream or the message for later stages."""
    bytes: int | None = None
    """How many bytes it concerns."""
    count: int = 1
    """How many packets it stands for, where it stands for several."""


def packets_are(count: int) -> str:
    """Subject and verb of a sentence about so many packets."""
    return "1 packet is" if count == 1 else f"{count} packets are"
