"""Parts of Kafka messages as bytes."""

from __future__ import annotations

import struct


def text(value: str | bytes, size: str = ">h") -> bytes:
    """A string, or bytes, behind its size."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(size, len(data)) + data


def unsigned_varint(value: int) -> bytes:
    """Groups of 7 bits, the lowest first."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def varint(value: int) -> bytes:
    """In zigzag form, of up to 64 bits."""
    return unsigned_varint((value << 1) ^ (value >> 63))


def request(api_key: int, version: int, body: bytes, client_id: str = "app") -> bytes:
    """A request with correlation id 7, without its size."""
    return struct.pack(">hhi", api_key, version, 7) + text(client_id) + body


def envelope(inside: bytes) -> bytes:
    """An Envelope request, version 0, which forwards a request (KIP-590)."""
    return request(58, 0, b"\0" + unsigned_varint(len(inside) + 1) + inside + b"\0\1\0")
