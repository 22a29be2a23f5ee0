"""Columns as text, for jsonl and csv.

A column becomes text in a few passes over whole Arrow buffers, and a row of text is one join of its
columns; no value becomes a Python object. Times are ISO 8601, in UTC, with nanoseconds. Bytes are
base64 (RFC 4648, section 4).

Strings come from the wire and may contain any character. Besides the characters that JSON requires
(RFC 8259, section 7), the C1 controls and other line terminators (DEL, NEL, U+2028, U+2029) are
escaped. So a row is one line for every reader, and a client id cannot control a terminal. On a
terminal, characters that are invisible or change the direction of text are escaped, too.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from io import RawIOBase
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

TEXT = pa.large_string()  # a column of base64 can pass the 2 GiB that the offsets of a string reach

_CONTROLS = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029]))
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_CONTROL_ESCAPES = {each: _SHORT.get(each, f"\\u{ord(each):04x}") for each in _CONTROLS}
_INVISIBLE = map(
    chr, (0x61C, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070))
)
"""Characters without width: Bidi_Control of Unicode, spaces, joiners; and the byte order mark."""
_TERMINAL_ESCAPES = _CONTROL_ESCAPES | {
    each: f"\\u{ord(each):04x}" for each in (*_INVISIBLE, "\ufeff")
}
_LINE_JSON = str.maketrans(_CONTROL_ESCAPES)
_TERMINAL_JSON = str.maketrans({each: e for each, e in _TERMINAL_ESCAPES.items() if each != "\n"})
_ESCAPES = {"\\": "\\\\", '"': '\\"'} | _CONTROL_ESCAPES
"""The backslash comes first, because other escapes add backslashes."""

_SUSPECT = np.zeros(256, np.bool_)
_SUSPECT[[each.encode()[0] for each in (*_ESCAPES, *_TERMINAL_ESCAPES)]] = True
"""First bytes, in UTF-8, of the escaped characters."""


_BARE = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_boolean)
"""Tests for types whose text is valid JSON."""


def json_lines(batch: pa.RecordBatch) -> pa.Array:
    """A JSON object for each row, its newline included: large_string."""
    return _joined(*_members(batch.schema.names, batch.columns), _literal("}\n"))


def json_text(array: pa.Array) -> pa.Array:
    """Each value as JSON, ``null`` if null: large_string without nulls."""
    if pa.types.is_struct(array.type):
        text = _object(array)
    elif pa.types.is_list(array.type):
        text = _list(array)
    elif pa.types.is_floating(array.type):  # JSON has neither NaN nor infinity
        text = pc.if_else(pc.is_finite(array), plain_text(array), None)
    elif any(test(array.type) for test in _BARE):
        text = plain_text(array)
    else:
        quote = _literal('"')
        text = _joined(quote, escaped(plain_text(array)), quote)
    return pc.coalesce(text, _literal("null"))


def plain_text(array: pa.Array) -> pa.Array:
    """Each value as plain text, null if null; lists and structs as JSON: large_string."""
    if pa.types.is_timestamp(array.type):
        naive = array.cast(pa.timestamp("ns"))  # in UTC anyway, and needs no database of zones
        text = pc.utf8_replace_slice(naive.cast(TEXT), start=10, stop=11, replacement="T")
        return _joined(text, _literal("Z"))
    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        return base64_text(array)
    if pa.types.is_struct(array.type) or pa.types.is_list(array.type):
        return pc.if_else(array.is_valid(), json_text(array), None)
    return array.cast(TEXT)


def base64_text(array: pa.Array) -> pa.Array:
    """The bytes of each value in base64, null where null: large_string.

    All values are encoded at once: each is padded to a multiple of three bytes, and the characters
    of the padding are then replaced.
    """
    values = pc.fill_null(array.cast(pa.large_binary()), b"")
    length = np.asarray(pc.binary_length(values))
    missing = -length % 3
    padding = pa.array([b"", b"\0", b"\0\0"], pa.large_binary()).take(pa.array(missing))
    padded = pc.binary_join_element_wise(values, padding, pa.scalar(b"", pa.large_binary()))
    encoded = np.frombuffer(binascii.b2a_base64(text_bytes(padded), newline=False), np.uint8).copy()
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum((length + missing) // 3 * 4, out=offsets[1:])
    for mark in (1, 2):
        encoded[offsets[1:][missing >= mark] - mark] = ord("=")
    text = pa.Array.from_buffers(
        TEXT, len(array), [None, pa.py_buffer(offsets), pa.py_buffer(encoded)]
    )
    return pc.if_else(array.is_valid(), text, None)


def escaped(text: pa.Array, escapes: Mapping[str, str] = _ESCAPES) -> pa.Array:
    """Large_string with every character that a JSON string cannot hold, or should not, escaped."""
    held = np.frombuffer(text_bytes(text), np.uint8)
    if not _SUSPECT[held].any():
        return text
    present = set(np.unique(held).tolist())
    for each, escape in escapes.items():
        if present.issuperset(each.encode()):
            text = pc.replace_substring(text, each, escape)
    return text


def without_controls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with escaped control and invisible characters, for a terminal."""
    columns = [
        escaped(column.cast(TEXT), _TERMINAL_ESCAPES).cast(column.type)
        if pa.types.is_string(column.type)
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=names_without_controls(batch.schema))


def names_without_controls(schema: pa.Schema) -> pa.Schema:
    """The schema of `without_controls`."""
    names = escaped(pa.array(schema.names, TEXT), _TERMINAL_ESCAPES).to_pylist()
    return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])


def json_line(value: object) -> bytes:
    """A value of Python as a line of JSON, with the escapes of `json_lines`."""
    return f"{json.dumps(value, ensure_ascii=False).translate(_LINE_JSON)}\n".encode()


def terminal_json(lines: bytes) -> bytes:
    """Lines of JSON for a terminal."""
    return lines.decode().translate(_TERMINAL_JSON).encode()


class TerminalJson(RawIOBase):
    """A terminal for lines of JSON: invisible characters in them are escaped."""

    def __init__(self, terminal: BinaryIO) -> None:
        self._terminal = terminal

    def write(self, lines: ReadableBuffer, /) -> int:
        """Write whole lines."""
        return self._terminal.write(terminal_json(bytes(lines)))

    def flush(self) -> None:
        self._terminal.flush()


def text_bytes(text: pa.Array) -> memoryview:
    """The concatenated bytes of all values of a large_string or large_binary, without a copy."""
    _, offsets, data = text.buffers()
    border = np.frombuffer(offsets, np.int64)[[text.offset, text.offset + len(text)]]
    return memoryview(data or b"")[border[0] : border[1]]


def _object(array: pa.StructArray) -> pa.Array:
    names = array.type.names
    columns = (pc.struct_field(array, index) for index in range(len(names)))
    text = _joined(*_members(names, columns), _literal("}"))
    return pc.if_else(array.is_valid(), text, None)


def _members(names: Iterable[str], columns: Iterable[pa.Array]) -> Iterator[pa.Array | pa.Scalar]:
    """The names and values of JSON objects, without the closing brace."""
    for index, (name, column) in enumerate(zip(names, columns, strict=True)):
        key = json_text(pa.array([name]))[0].as_py()
        yield _literal(f"{',' if index else '{'}{key}:")
        yield json_text(column)


def _list(array: pa.ListArray) -> pa.Array:
    elements = json_text(array.flatten())
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(pc.fill_null(pc.list_value_length(array), 0), out=offsets[1:])
    lists = pa.ListArray.from_arrays(pa.array(offsets), elements)
    text = _joined(_literal("["), pc.binary_join(lists, _literal(",")), _literal("]"))
    return pc.if_else(array.is_valid(), text, None)


def _literal(text: str) -> pa.Scalar:
    return pa.scalar(text, TEXT)


def _joined(*pieces: pa.Array | pa.Scalar) -> pa.Array:
    """The pieces of each row, joined; null if one is null."""
    return pc.binary_join_element_wise(*pieces, _literal(""))
