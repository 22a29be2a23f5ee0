"""Decodes one body into nested dicts.

A definition is compiled once into a reader, which consists of smaller readers; decoding a body then
does not look at the definition. A reader knows positions, not paths: if it fails, `explain` decodes
the bytes again to find the field.

The dict has the field names of Kafka's protocol guide. Absent are fields that the version does not
have, tagged fields that are not on the wire, and tagged fields that the version does not know. A
uuid is Kafka's text of 22 characters; null is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from dissector.errors import DecodeError
from dissector.protocol.explain import explain
from dissector.protocol.notation import Definition, Field
from dissector.protocol.wire import Reader, count, numbers, present, scalar, unsigned_varint


def decode(layout: Definition, data: bytes, start: int = 0) -> dict[str, Any]:
    """Decode the bytes from `start` to the end. Raises DecodeError with path and offset."""
    body, end = decode_fields(layout, data, start)
    if end < len(data):
        fault = DecodeError(f"{len(data) - end} bytes are left over", offset=end)
        raise explain(layout, data, start).error or fault
    return body


def decode_fields(layout: Definition, data: bytes, start: int = 0) -> tuple[dict[str, Any], int]:
    """The fields from `start` on, and the offset after them. Raises DecodeError as `decode`."""
    try:
        return _reader(layout)(data, start)
    except DecodeError as error:
        raise explain(layout, data, start).error or error from None


@cache
def _reader(layout: Definition) -> Reader:
    return _struct(layout.fields, layout.flexible)


def _struct(fields: tuple[Field, ...], flexible: bool) -> Reader:
    plain = [(item.name, _field(item, flexible)) for item in fields if item.tag is None]
    tagged = {
        item.tag: (item.name, _field(item, flexible)) for item in fields if item.tag is not None
    }

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        body = {}
        for name, value in plain:
            body[name], at = value(data, at)
        if flexible:
            at = _tags(body, tagged, data, at)
        return body, at

    return read


def _tags(
    body: dict[str, Any], known: Mapping[int, tuple[str, Reader]], data: bytes, at: int
) -> int:
    """Read a tagged section into `body`; returns the position after it."""
    number, at = unsigned_varint(data, at)
    for _ in range(number):
        tag, at = unsigned_varint(data, at)
        size, at = unsigned_varint(data, at)
        end = at + size
        if tag in known:
            name, value = known[tag]
            body[name], at = value(data, at)
            if at != end:
                raise DecodeError("a tagged field does not fill its size", offset=at)
        elif end > len(data):
            raise DecodeError("a tagged field is cut", offset=at)
        at = end
    return at


def _field(item: Field, flexible: bool) -> Reader:
    if not item.is_array:
        return _value(item, flexible, item.nullable)
    number = count(flexible, item.nullable)
    return numbers(item.type, number) or _array(_value(item, flexible, False), number)


def _value(item: Field, flexible: bool, nullable: bool) -> Reader:
    if item.type != "struct":
        return scalar(item.type, flexible, nullable)
    value = _struct(item.fields, flexible)
    return _nullable(value, present(item.tag is not None)) if nullable else value


def _nullable(value: Reader, mark: Reader) -> Reader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        is_present, at = mark(data, at)
        return value(data, at) if is_present else (None, at)

    return read


def _array(value: Reader, number: Reader) -> Reader:
    def read(data: bytes, at: int) -> tuple[list[Any] | None, int]:
        left, at = number(data, at)
        if left is None:
            return None, at
        items = []
        for _ in range(left):
            item, at = value(data, at)
            items.append(item)
        return items, at

    return read
