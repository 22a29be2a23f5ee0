"""Writes random messages by a layout, for tests of properties of all messages.

It shares no code with the walkers. What the right bytes are is for the tests with vectors from
elsewhere; here only the shape matters.
"""

from __future__ import annotations

import random
import struct

from dissector.protocol.notation import Definition, Field
from tests.kafka_bytes import unsigned_varint

NUMBERS = {
    "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q",
    "float64": "d",
}  # fmt: skip


def length(value: int | None, flexible: bool, code: str) -> bytes:
    if flexible:
        return unsigned_varint(0 if value is None else value + 1)
    return struct.pack(">" + code, -1 if value is None else value)


def write(layout: Definition, pick: random.Random) -> bytes:
    """A body of that layout."""
    return _struct(layout.fields, layout.flexible, pick)


def _struct(fields: tuple[Field, ...], flexible: bool, pick: random.Random) -> bytes:
    out = b"".join(_field(each, flexible, pick) for each in fields if each.tag is None)
    if flexible:
        tagged = [each for each in fields if each.tag is not None and pick.random() < 0.6]
        sections = [(each.tag, _field(each, True, pick)) for each in tagged]
        if pick.random() < 0.2:
            sections.append((1000, b"unknown"))
        out += unsigned_varint(len(sections))
        for tag, content in sections:
            out += unsigned_varint(tag or 0) + unsigned_varint(len(content)) + content
    return out


def _field(each: Field, flexible: bool, pick: random.Random) -> bytes:
    null = each.nullable and pick.random() < 0.25
    if not each.is_array:
        return _value(each, flexible, pick, each.nullable, null)
    if null:
        return length(None, flexible, "i")
    count = pick.choice((0, 1, 1, 2))
    items = [_value(each, flexible, pick, False, False) for _ in range(count)]
    return length(count, flexible, "i") + b"".join(items)


def _value(each: Field, flexible: bool, pick: random.Random, nullable: bool, null: bool) -> bytes:
    match each.type:
        case "struct":
            absent = b"\xff" if each.tag is None else b"\0"
            marker = (absent if null else b"\1") if nullable else b""
            return marker + (b"" if null else _struct(each.fields, flexible, pick))
        case "bool":
            return pick.choice((b"\0", b"\1"))
        case "uuid":
            return pick.randbytes(16)
        case "float64":
            return struct.pack(">d", 0.5)
        case "string" | "bytes" | "records":
            code = "h" if each.type == "string" else "i"
            content = pick.choice((b"", b"t", b"orders", b"o" * 130))
            return length(None if null else len(content), flexible, code) + (
                b"" if null else content
            )
    return pick.randbytes(struct.calcsize(">" + NUMBERS[each.type]))
