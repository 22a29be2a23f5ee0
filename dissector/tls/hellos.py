"""What the two hellos agree on (RFC 8446, section 4.1; RFC 5246, section 7.4.1).

Nothing is read behind a message's end; one that ends too early is a DecodeError.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from dissector.errors import DecodeError

RETRY = hashlib.sha256(b"HelloRetryRequest").digest()
"""Random of the ServerHello that is none, but asks for another ClientHello."""

_SNI, _ALPN, _ENCRYPT_THEN_MAC, _EARLY_DATA, _VERSIONS = 0, 16, 22, 42, 43


@dataclass(frozen=True, slots=True)
class ClientHello:
    """What the client wants."""

    random: bytes
    sni: str | None
    """The host name that it asked for."""
    early_data: bool
    """It sends application data before the server has answered (0-RTT)."""


@dataclass(frozen=True, slots=True)
class ServerHello:
    """What the server chose."""

    random: bytes
    version: int
    cipher: int
    compression: int
    alpn: str | None
    """In TLS 1.3 it is encrypted, and not here."""
    encrypt_then_mac: bool

    @property
    def is_retry(self) -> bool:
        return self.random == RETRY


@dataclass(frozen=True, slots=True)
class EncryptedExtensions:
    """What else the server chose, in TLS 1.3."""

    alpn: str | None
    early_data: bool
    """It reads the early data that the client sent."""


def client_hello(body: bytes) -> ClientHello:
    """A ClientHello, without the handshake header."""
    cursor = _Cursor(body)
    cursor.take(2)
    random = cursor.take(32)
    for width in (1, 2, 1):  # session id, cipher suites, compression methods
        cursor.block(width)
    extensions = _extensions(cursor)
    return ClientHello(random, _sni(extensions.get(_SNI)), _EARLY_DATA in extensions)


def server_hello(body: bytes) -> ServerHello:
    """A ServerHello, without the handshake header."""
    cursor = _Cursor(body)
    version = cursor.number(2)
    random = cursor.take(32)
    cursor.block(1)
    cipher, compression = cursor.number(2), cursor.number(1)
    extensions = _extensions(cursor)
    if _VERSIONS in extensions:
        version = _Cursor(extensions[_VERSIONS]).number(2)
    return ServerHello(
        random, version, cipher, compression, _alpn(extensions), _ENCRYPT_THEN_MAC in extensions
    )


def encrypted_extensions(body: bytes) -> EncryptedExtensions:
    """An EncryptedExtensions message, without the handshake header."""
    extensions = _extensions(_Cursor(body))
    return EncryptedExtensions(_alpn(extensions), _EARLY_DATA in extensions)


def _extensions(cursor: _Cursor) -> dict[int, bytes]:
    """They may be missing altogether."""
    found: dict[int, bytes] = {}
    inner = _Cursor(cursor.block(2)) if cursor.left else cursor
    while inner.left:
        kind = inner.number(2)
        found[kind] = inner.block(2)
    return found


def _sni(value: bytes | None) -> str | None:
    """RFC 6066, section 3; a server's is empty."""
    if not value:
        return None
    names = _Cursor(_Cursor(value).block(2))
    is_host = names.number(1) == 0
    name = names.block(2)
    return name.decode("ascii", "backslashreplace") if is_host else None


def _alpn(extensions: Mapping[int, bytes]) -> str | None:
    """RFC 7301, section 3.1."""
    value = extensions.get(_ALPN)
    if value is None:
        return None
    name = _Cursor(_Cursor(value).block(2)).block(1)
    return name.decode("ascii", "backslashreplace")


class _Cursor:
    """Reads from the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise DecodeError("a TLS handshake message ends too early", offset=self._at)
        found = self._data[self._at : self._at + size]
        self._at += size
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def block(self, width: int) -> bytes:
        """Bytes behind their length, which is a number of `width` bytes."""
        return self.take(self.number(width))
