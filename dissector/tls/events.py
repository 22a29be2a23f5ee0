"""The results of a TLS session: facts of its handshake, plaintext, and problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dissector.arrays import mutable, value

if TYPE_CHECKING:
    from dissector.tls.record_layer import Arrival


HOLE = 1 << 32
"""Positions that lost plaintext takes, as its length is unknown: more than a message may have, so
that none continues after it."""


@mutable
class TlsFacts:
    """Facts of a connection. Those of the handshake are None if they are encrypted, or not in the
    capture."""

    version: str | None = None
    """1.2, 1.3, or an older version."""
    cipher: str | None = None
    """IANA name, or the number in hex."""
    sni: str | None = None
    """Host name that the client requested."""
    alpn: str | None = None
    """Protocol that the server chose."""
    subject: str | None = None
    """Subject of the server's certificate; encrypted in TLS 1.3."""
    is_decrypted: bool = False
    """Whether data was decrypted."""


@value
class Plaintext:
    """The plaintext of one TLS record."""

    end: int
    """Index of the end that sent it."""
    at: int
    """Position in the plaintext of this end; it grows by `HOLE` where plaintext is missing."""
    data: bytes
    arrival: Arrival
    """Arrival of the last byte of the TLS record."""


@value
class TlsProblem:
    """Bytes that could not be decrypted, and the reason."""

    kind: str
    detail: str
    end: int
    offset: int = 0
    """Position in the stream of TLS records."""
    bytes: int | None = None
    time: int = 0
    """ns; arrival of the TLS record that shows the problem, or of the connection's last byte."""
