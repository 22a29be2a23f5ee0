"""Columns of Arrow tables as single arrays, and as arrays of NumPy."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissector import _native
from dissector.packets.block import Int64

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)

CUT = "…"
"""Suffix of a text of which only the beginning is in the capture, or in its column."""

_NO_BITS = np.zeros(0, np.uint8)


def as_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column as one array."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])


def with_column(rows: Rows, name: str, column: pa.Array | pa.ChunkedArray) -> Rows:
    """The rows with other values in a column."""
    return rows.set_column(rows.schema.get_field_index(name), name, column)


def int_column(table: pa.Table, name: str) -> Int64:
    """The numbers of a column, also those under nulls. They must not be changed: if the column is
    one array, they are no copy."""
    column: Int64 = unmasked(as_array(table[name]))[0]
    return column


def bool_column(table: pa.Table, name: str) -> NDArray[Any]:
    """A column of booleans without nulls."""
    column: NDArray[Any] = as_array(table[name]).to_numpy(zero_copy_only=False)
    return column


def masked(values: NDArray[Any], is_null: NDArray[np.bool_] | None) -> pa.Array:
    """The values, null where the mask is true; without a copy of numbers."""
    array = pa.array(values)
    if is_null is None or not is_null.any():
        return array
    valid = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    return pa.Array.from_buffers(array.type, len(array), [valid, array.buffers()[1]])


def unmasked(column: pa.Array) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """The numbers of a column, also those under nulls, and which are null; None if none is."""
    valid, data = column.buffers()
    whole = pa.Array.from_buffers(column.type, len(column), [None, data], offset=column.offset)
    values = whole.to_numpy()
    if not column.null_count:
        return values, None
    end = column.offset + len(column)
    bits = np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little", count=end)
    return values, bits[column.offset :] == 0


def dictionary_codes(text: pa.DictionaryArray) -> NDArray[np.int32]:
    """Dictionary index of each text, -1 for null."""
    codes, is_null = unmasked(text.indices)
    return codes if is_null is None else np.where(is_null, np.int32(-1), codes)


def take_rows(column: pa.Array, row: Int64) -> pa.Array:
    """The values at these rows; null for a negative row. Fast for integers of 2, 4 and 8 bytes,
    and for dictionaries."""
    if column.null_count == len(column):
        return pa.nulls(len(row), column.type)
    if pa.types.is_dictionary(column.type):
        codes = take_rows(column.indices, row)
        return pa.DictionaryArray.from_arrays(codes, column.dictionary, safe=False)
    if not pa.types.is_integer(column.type):
        return column.take(masked(row, row < 0))
    valid, data = column.buffers()
    values = np.frombuffer(data, f"i{column.type.byte_width}")
    values = values[column.offset : column.offset + len(column)]
    bits = np.frombuffer(valid, np.uint8) if column.null_count else _NO_BITS
    chosen = np.empty(len(row), values.dtype)
    has_value = np.full(len(row) + 7 >> 3, 0xFF, np.uint8)
    missing = _native.gather(values, row, bits, column.offset, chosen, has_value)
    buffers = [pa.py_buffer(has_value) if missing else None, pa.py_buffer(chosen)]
    return pa.Array.from_buffers(column.type, len(row), buffers, missing)
