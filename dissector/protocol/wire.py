"""Encodings of single values.

A reader takes the bytes and a position, and returns the value and the position after it. Numbers
are big-endian. Values with a length have two encodings: plain, with an int16 or int32 length, where
-1 is null; and compact (KIP-482), with an unsigned varint of length + 1, where 0 is null.

Any byte but 0 is true, as in Kafka. Bytes of text that are not UTF-8 become ``\\xNN``, so that the
rest of the message can be decoded. All other invalid input raises DecodeError with the offset and
no path: a value beyond the end of the bytes, a null in a field that is not nullable. Memory is
allocated only for lengths and counts that the remaining bytes can hold.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64encode
from codecs import utf_8_decode
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from dissector.errors import DecodeError

Reader: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""(bytes, position) -> (value, position after it)."""


class Prefix(bytes):
    """The first bytes of a message. `len` is the length of the whole message.

    Readers check lengths and counts against the whole message. If they need a number that is not
    available, they raise IndexError. Incomplete text is read up to its end.
    """

    _size: int

    def __new__(cls, data: bytes, size: int) -> Prefix:
        """The message has `size` bytes, of which `data` are available."""
        prefix = super().__new__(cls, data)
        prefix._size = size
        return prefix

    def __len__(self) -> int:
        return self._size


_NUMBERS: Final = {
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
}


def _number(format: str) -> Reader:
    width, unpack = struct.calcsize(format), struct.Struct(format).unpack_from

    def read(data: bytes, at: int) -> tuple[Any, int]:
        try:
            return unpack(data, at)[0], at + width
        except struct.error:
            if at + width <= len(data):
                raise IndexError("the value is beyond the available bytes") from None
            raise DecodeError(_short(width, data, at), offset=at) from None

    return read


def _short(size: int, data: bytes, at: int) -> str:
    return f"{size} bytes are needed and {len(data) - at} are left"


_int16, _int32 = _number(">h"), _number(">i")


def _bool(data: bytes, at: int) -> tuple[bool, int]:
    if at >= len(data):
        raise DecodeError(_short(1, data, at), offset=at)
    return data[at] != 0, at + 1


def _uuid(data: bytes, at: int) -> tuple[str, int]:
    end = at + 16
    if end > len(data):
        raise DecodeError(_short(16, data, at), offset=at)
    return urlsafe_b64encode(data[at:end])[:22].decode(), end


def unsigned_varint(data: bytes, at: int) -> tuple[int, int]:
    """Seven bits per byte, lowest first; at most five bytes."""
    if at < len(data) and data[at] < 0x80:  # most are one byte
        return data[at], at + 1
    value = 0
    for index, shift in enumerate(range(0, 35, 7), at):
        if index >= len(data):
            raise DecodeError("the bytes end inside a varint", offset=at)
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, index + 1
    raise DecodeError("a varint of more than five bytes", offset=at)


def _compact(data: bytes, at: int) -> tuple[int, int]:
    size, at = unsigned_varint(data, at)
    return size - 1, at


def _sized(length: Reader, value: Callable[[bytes], Any], nullable: bool) -> Reader:
    least = -1 if nullable else 0

    def read(data: bytes, start: int) -> tuple[Any, int]:
        size, at = length(data, start)
        if size < 0:
            if size < least:
                raise DecodeError(_negative(size), offset=start)
            return None, at
        end = at + size
        if end > len(data):
            raise DecodeError(_short(size, data, at), offset=start)
        return value(data[at:end]), end

    return read


def _negative(size: int) -> str:
    return "null in a field that is not nullable" if size == -1 else f"a length of {size}"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _utf8(data: bytes) -> str:
    """Text that may end inside a character, since a `Prefix` may end there."""
    return utf_8_decode(data, "surrogateescape", False)[0]


_FIXED: Final[dict[str, Reader]] = {
    "bool": _bool,
    "uuid": _uuid,
    **{name: _number(format) for name, format in _NUMBERS.items()},
}

_SIZED: Final[dict[tuple[str, bool, bool], Reader]] = {
    (name, flexible, nullable): _sized(_compact if flexible else length, value, nullable)
    for name, length, value in (
        ("string", _int16, _text),
        ("utf8", _int16, _utf8),
        ("bytes", _int32, bytes),
        ("records", _int32, bytes),
    )
    for flexible in (False, True)
    for nullable in (False, True)
}


def scalar(type: str, flexible: bool, nullable: bool) -> Reader:
    """The reader of a type that is not a struct. The type `utf8` is a string in which
    bytes that are not UTF-8 are lone surrogates."""
    return _FIXED.get(type) or _SIZED[type, flexible, nullable]


def count(flexible: bool, nullable: bool) -> Reader:
    """The reader of an array's count; None if the array is null.

    An element takes at least a byte, so a count above the number of remaining bytes is an error.
    """
    length = _compact if flexible else _int32

    def read(data: bytes, start: int) -> tuple[int | None, int]:
        number, at = length(data, start)
        if number < 0:
            if number < -1 or not nullable:
                raise DecodeError(_negative(number), offset=start)
            return None, at
        left = len(data) - at
        if number > left:
            detail = f"{number} elements are announced and {left} bytes are left"
            raise DecodeError(detail, offset=start)
        return number, at

    return read


def numbers(type: str, number: Reader) -> Reader | None:
    """The reader of an array of numbers, given the reader of its count; None for other types."""
    if type not in _NUMBERS:
        return None
    format = _NUMBERS[type][1]
    width = struct.calcsize(format)

    def read(data: bytes, start: int) -> tuple[list[Any] | None, int]:
        size, at = number(data, start)
        if size is None:
            return None, at
        end = at + size * width
        if end > len(data):
            raise DecodeError(_short(size * width, data, at), offset=at)
        return list(struct.unpack_from(f">{size}{format}", data, at)), end

    return read


def present(tagged: bool) -> Reader:
    """The reader of the marker of a nullable struct: whether the struct is present.

    An int8, 1 or -1 for null; in a tagged field an unsigned varint, 1 or 0 for null (KIP-893).
    """
    read_mark = unsigned_varint if tagged else _FIXED["int8"]
    null = 0 if tagged else -1

    def read(data: bytes, at: int) -> tuple[bool, int]:
        mark, end = read_mark(data, at)
        if mark not in (1, null):
            detail = f"invalid nullable-struct marker {mark}: expected 1 (present) or {null} (null)"
            raise DecodeError(detail, offset=at)
        return mark == 1, end

    return read
