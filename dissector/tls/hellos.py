"""Parses hellos and EncryptedExtensions (RFC 8446, section 4; RFC 5246, section 7.4).

Nothing is read beyond the end of a message; a truncated message raises DecodeError.
"""

from __future__ import annotations

from collections.abc import Mapping

from dissector.arrays import value
from dissector.errors import DecodeError

RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
"""Random of a HelloRetryRequest, which has the form of a ServerHello."""

RANDOM_BYTES = 32
"""Size of the random of a hello."""
_SNI, _ALPN, _ENCRYPT_THEN_MAC, _EARLY_DATA, _VERSIONS = 0, 16, 22, 42, 43


@value
class ClientHello:
    """The client's offer."""

    random: bytes
    sni: str | None
    """Requested host name."""
    early_data: bool
    """Whether the client sends application data before the server responds (0-RTT)."""


@value
class ServerHello:
    """The server's choice."""

    random: bytes
    session_id: bytes
    """In TLS 1.3, the client's own (RFC 8446, section 4.1.3)."""
    version: int
    cipher: int
    compression: int
    alpn: str | None
    """None in TLS 1.3, where it is in EncryptedExtensions."""
    encrypt_then_mac: bool

    @property
    def is_retry(self) -> bool:
        return self.random == RETRY


def client_hello(body: bytes) -> ClientHello:
    """Parse a ClientHello without its handshake header."""
    cursor = _Cursor(body)
    cursor.take(2)
    random = cursor.take(RANDOM_BYTES)
    for width in (1, 2, 1):  # session id, cipher suites, compression methods
        cursor.block(width)
    extensions = _extensions(cursor)
    return ClientHello(random, _sni(extensions.get(_SNI)), _EARLY_DATA in extensions)


def truncated_client_hello(message: bytes | bytearray) -> ClientHello | None:
    """The ClientHello that begins with these bytes, with its handshake header; None if they end
    before the end of the random. Its other fields are unknown.
    """
    random = bytes(message[6:38])
    return ClientHello(random, None, False) if len(random) == RANDOM_BYTES else None


def server_hello(body: bytes) -> ServerHello:
    """Parse a ServerHello without its handshake header."""
    cursor = _Cursor(body)
    version = cursor.number(2)
    random = cursor.take(RANDOM_BYTES)
    session_id = cursor.block(1)
    cipher, compression = cursor.number(2), cursor.number(1)
    extensions = _extensions(cursor)
    if _VERSIONS in extensions:
        version = _Cursor(extensions[_VERSIONS]).number(2)
    return ServerHello(
        random, session_id, version, cipher, compression, _alpn(extensions),
        _ENCRYPT_THEN_MAC in extensions,
    )  # fmt: skip


def encrypted_extensions(body: bytes) -> tuple[str | None, bool]:
    """Parse an EncryptedExtensions message of TLS 1.3 without its handshake header: the application
    protocol, and whether the server accepts the client's early data."""
    extensions = _extensions(_Cursor(body))
    return _alpn(extensions), _EARLY_DATA in extensions


def _extensions(cursor: _Cursor) -> dict[int, bytes]:
    """Extensions by type; the whole block may be absent."""
    extensions: dict[int, bytes] = {}
    inner = _Cursor(cursor.block(2)) if cursor.left else cursor
    while inner.left:
        kind = inner.number(2)
        extensions[kind] = inner.block(2)
    return extensions


def _sni(value: bytes | None) -> str | None:
    """Server name (RFC 6066, section 3); empty in a server's message."""
    if not value:
        return None
    names = _Cursor(_Cursor(value).block(2))
    is_host = names.number(1) == 0
    name = names.block(2)
    return name.decode("ascii", "backslashreplace") if is_host else None


def _alpn(extensions: Mapping[int, bytes]) -> str | None:
    """Application protocol (RFC 7301, section 3.1)."""
    value = extensions.get(_ALPN)
    if value is None:
        return None
    name = _Cursor(_Cursor(value).block(2)).block(1)
    return name.decode("ascii", "backslashreplace")


class _Cursor:
    """Reads bytes from front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise DecodeError("a TLS handshake message is truncated", offset=self._at)
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def block(self, width: int) -> bytes:
        """Bytes with a length prefix of `width` bytes."""
        return self.take(self.number(width))
