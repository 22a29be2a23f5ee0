"""How single values lie on the wire.

A reader takes the bytes and a position, and gives the value and the position behind it. Numbers are
big-endian. What has a length comes in two encodings: plain, with an int16 or int32 where -1 is
null, and compact (KIP-482), with an unsigned varint of the length + 1 where 0 is null.

Any byte but 0 is true, as in Kafka. Text that is not UTF-8 keeps its bytes as ``\\xNN``, so that
the rest of the message can be read. Everything else that cannot be raises DecodeError, with the
offset and no path: a value that does not end inside the bytes, a null where there is none.
Nothing is allocated for a length or a count that the bytes left cannot hold.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64encode
from codecs import utf_8_decode
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from dissector.errors import DecodeError

Reader: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""(bytes, position) -> (value, position behind it)."""


class Unfinished(IndexError):
    """A value lies behind the bytes of a `Prefix`. Indexing raises an IndexError there, too."""


class Prefix(bytes):
    """The first bytes of a message. `len` is the length of the whole message.

    A reader that is given a prefix checks lengths and counts against the whole message. Where it
    needs a number that is not there, it raises `Unfinished` or another IndexError. A text that is
    there in part is read as far as it is there.
    """

    _size: int

    def __new__(cls, data: bytes, size: int) -> Prefix:
        """The message has `size` bytes, of which `data` are there."""
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
                raise Unfinished from None
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
    """Seven bits a byte, the lowest first; at most five bytes."""
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
    return "null where there is no null" if size == -1 else f"a length of {size}"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _utf8(data: bytes) -> str:
    """Text that may end inside a character, since the rest of it may not be in a `Prefix`."""
    try:
        return utf_8_decode(data, "strict", False)[0]
    except UnicodeDecodeError as error:
        raise DecodeError("text that is not UTF-8", offset=error.start) from None


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
    """The reader of a type that is not a struct. The type `utf8` is a string that must be UTF-8."""
    return _FIXED.get(type) or _SIZED[type, flexible, nullable]


def count(flexible: bool, nullable: bool) -> Reader:
    """The reader of an array's count; None where the array is null.

    Every element takes a byte or more, so a count above the bytes left is an error before the
    first of them.
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
    """The reader of a whole array of numbers, given that of its count; None for other types."""
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
    """The reader of what says whether a struct that may be null is there.

    An int8, 1 or -1 where it is null; in a tagged field an unsigned varint, 1 or 0 (KIP-893).
    """
    read_mark = unsigned_varint if tagged else _FIXED["int8"]
    null = 0 if tagged else -1

    def read(data: bytes, at: int) -> tuple[bool, int]:
        mark, end = read_mark(data, at)
        if mark not in (1, null):
            raise DecodeError(f"{mark} where a struct is 1, or {null} for null", offset=at)
        return mark == 1, end

    return read
