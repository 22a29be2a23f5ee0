"""Helpers for the Arrow arrays of all tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissector.exchanges.columns import as_array
from dissector.packets.block import Int64
from dissector.tables.schema import Table

MANY_CODES = 1 << 16
"""Codes in messages have two bytes."""


NS_PER_MS = 10**6
MAX_MS = (1 << 63) // NS_PER_MS - 1
"""Later times, after the year 2262, do not fit into ns."""


def to_batch(table: Table, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """A batch of these columns (Arrow or NumPy arrays) in the order and types of `table`."""
    arrays = []
    for column in table.columns:
        array = columns[column.name]
        if not isinstance(array, pa.Array):
            array = as_array(array) if isinstance(array, pa.ChunkedArray) else pa.array(array)
        if array.type != column.type:
            is_empty = array.null_count == len(array)
            array = pa.nulls(len(array), column.type) if is_empty else array.cast(column.type)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


def empty_batch(table: Table) -> pa.RecordBatch:
    """An empty batch."""
    return to_batch(table, {name: pa.nulls(0) for name in table.schema.names})


def as_batch(table: pa.Table) -> pa.RecordBatch:
    """The table as one batch."""
    arrays = [as_array(column) for column in table.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


class SelectedRows:
    """Selected rows of a table; only the columns that are used are built."""

    def __init__(self, table: pa.Table, row: Int64) -> None:
        """`row`: index of each row, -1 for a row of nulls."""
        self._table = table
        self._row = masked(row, row < 0)

    def __getitem__(self, name: str) -> pa.Array:
        column = as_array(self._table[name])
        if column.null_count == len(column):
            return pa.nulls(len(self._row), column.type)
        return column.take(self._row)


def masked(values: NDArray[np.generic], mask: NDArray[np.bool_]) -> pa.Array:
    """The values, null where `mask` is true."""
    return pa.array(values, mask=mask) if mask.any() else pa.array(values)


def take_words(words: pa.Array, index: NDArray[np.integer]) -> pa.Array:
    """The word at each index. Fast if the index is the same for all rows."""
    if len(index) and (index == index[0]).all():
        return pa.repeat(words[int(index[0])], len(index))
    return words.take(pa.array(index))


def dictionary_codes(text: pa.DictionaryArray) -> Int64:
    """Dictionary index of each text, -1 for null."""
    index: Int64 = pc.fill_null(text.indices, -1).to_numpy()
    return index


def without_dictionary(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The column with its values in place of dictionary codes."""
    is_dictionary = pa.types.is_dictionary(column.type)
    return column.cast(column.type.value_type) if is_dictionary else column


def map_codes(code: Any, meaning: Callable[[Any], object], type: pa.DataType) -> pa.Array:
    """The meaning of each code, with one call for each distinct code."""
    code = as_array(code)
    if pa.types.is_integer(code.type) and (counted := _small_range(code)):
        distinct, index = counted
    else:
        encoded = code.dictionary_encode()
        distinct, index = encoded.dictionary.to_pylist(), encoded.indices
    return pa.array([meaning(each) for each in distinct], type).take(index)


def _small_range(code: pa.Array) -> tuple[list[int], pa.Array] | None:
    """The distinct numbers, and possibly 0, and the index of each; None if their range is large."""
    values = pc.fill_null(code, 0).to_numpy() if code.null_count else code.to_numpy()
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if high - low >= MANY_CODES:
        return None
    values = values - low
    occurs = np.zeros(high - low + 1, np.bool_)
    occurs[values] = True
    index = (np.cumsum(occurs, dtype=np.int32) - 1)[values]
    is_null = np.asarray(code.is_null()) if code.null_count else np.zeros(0, np.bool_)
    return (np.flatnonzero(occurs) + low).tolist(), masked(index, is_null)


def unless_empty(text: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The texts; null if empty, which is Kafka's null in many fields."""
    text = as_array(without_dictionary(text))
    return pc.if_else(pc.equal(text, ""), None, text)


def row_keys(*columns: Any) -> pa.Array:
    """The columns of each row as one text, which identifies equal rows."""
    parts = [as_array(column).cast(pa.string()) for column in columns]
    return pc.binary_join_element_wise(*parts, "/", null_handling="replace")


def milliseconds(value: Int64) -> pa.Array:
    """Kafka's times in ms as ns; null for -1, which is Kafka's null, and for times beyond 2262."""
    is_null = (value < 0) | (value > MAX_MS)
    return pa.array(np.where(is_null, 0, value) * NS_PER_MS, mask=is_null)
