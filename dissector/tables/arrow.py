"""Small things that the rows of all tables need of Arrow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissector.packets.block import Int64
from dissector.tables.schema import Table

MANY_CODES = 1 << 16
"""Codes of the wire have two bytes."""


def batch(table: Table, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Columns (Arrow or NumPy arrays) as `table` declares them: its order, its types."""
    arrays = []
    for column in table.columns:
        array = columns[column.name]
        if not isinstance(array, pa.Array):
            array = one_chunk(array) if isinstance(array, pa.ChunkedArray) else pa.array(array)
        if array.type != column.type:
            is_empty = array.null_count == len(array)
            array = pa.nulls(len(array), column.type) if is_empty else array.cast(column.type)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


def no_rows(table: Table) -> pa.RecordBatch:
    """An empty batch."""
    return batch(table, {name: pa.nulls(0) for name in table.schema.names})


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The table as one batch."""
    arrays = [one_chunk(column) for column in table.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


def ints(table: pa.Table, name: str) -> Int64:
    """A column without nulls, as NumPy sees it."""
    column: Int64 = table[name].to_numpy()
    return column


def one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column as one array."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])


class Picked:
    """Some rows of a table, column by column, and only of the columns that are asked for."""

    def __init__(self, table: pa.Table, row: Int64) -> None:
        """`row`: which ones, -1 for a row of nulls."""
        self._table = table
        self._row = masked(row, row < 0)

    def __getitem__(self, name: str) -> pa.Array:
        return one_chunk(self._table[name]).take(self._row)


def masked(values: NDArray[np.generic], none: NDArray[np.bool_]) -> pa.Array:
    """The values, null where there is none."""
    return pa.array(values, mask=none) if none.any() else pa.array(values)


def spread(words: pa.Array, index: NDArray[np.integer]) -> pa.Array:
    """The word at each index; often it is the same for all."""
    if len(index) and (index == index[0]).all():
        return pa.repeat(words[int(index[0])], len(index))
    return words.take(pa.array(index))


def codes(text: pa.DictionaryArray) -> Int64:
    """Index of each text in the dictionary, -1 for null."""
    index: Int64 = pc.fill_null(text.indices, -1).to_numpy()
    return index


def plain(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The column without a dictionary, if it has one."""
    coded = pa.types.is_dictionary(column.type)
    return column.cast(column.type.value_type) if coded else column


def by_code(code: Any, meaning: Callable[[Any], object], type: pa.DataType) -> pa.Array:
    """What each code means: one call for each code that occurs."""
    code = one_chunk(code)
    if pa.types.is_integer(code.type) and (found := _few_codes(code)):
        words, index = found
    else:
        encoded = code.dictionary_encode()
        words, index = encoded.dictionary.to_pylist(), encoded.indices
    return pa.array([meaning(each) for each in words], type).take(index)


def _few_codes(code: pa.Array) -> tuple[list[int], pa.Array] | None:
    """The numbers that occur, 0 perhaps not, and the index of each; None if they lie far apart."""
    values = pc.fill_null(code, 0).to_numpy() if code.null_count else code.to_numpy()
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if high - low >= MANY_CODES:
        return None
    values = values - low
    occurs = np.zeros(high - low + 1, np.bool_)
    occurs[values] = True
    index = (np.cumsum(occurs, dtype=np.int32) - 1)[values]
    none = np.asarray(code.is_null()) if code.null_count else np.zeros(0, np.bool_)
    return (np.flatnonzero(occurs) + low).tolist(), masked(index, none)


def joined(*columns: Any) -> pa.Array:
    """The columns of each row as one text, so that rows can be told apart."""
    parts = [one_chunk(column).cast(pa.string()) for column in columns]
    return pc.binary_join_element_wise(*parts, "/", null_handling="replace")
