"""What a TLS connection tells: facts of its handshake, what was said in it, and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass

from dissector.tls.record_layer import Arrival


@dataclass(slots=True)
class TlsFacts:
    """What the handshake tells. None where it is not in the capture, or encrypted."""

    version: str | None = None
    """1.2, 1.3, or an older one."""
    cipher: str | None = None
    """IANA's name, or the number in hex."""
    sni: str | None = None
    """Host name that the client asked for."""
    alpn: str | None = None
    """Protocol that the server chose."""
    subject: str | None = None
    """Whom the server's certificate names; encrypted in TLS 1.3."""


@dataclass(frozen=True, slots=True)
class Plaintext:
    """What one record said."""

    end: int
    """Which end sent it."""
    at: int
    """Position in what this end said, as far as it was decrypted."""
    follows: bool
    """Nothing is missing between this and what came before."""
    data: bytes
    arrival: Arrival
    """Of the record's last byte."""


@dataclass(frozen=True, slots=True)
class TlsProblem:
    """What could not be decrypted, and why."""

    kind: str
    detail: str
    end: int
    offset: int = 0
    """Position in the stream of records."""
    bytes: int | None = None
