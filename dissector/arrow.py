"""Small things that the rows of all tables need of Arrow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dissector.packets.block import Int64
from dissector.tables import Table


def batch(table: Table, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Columns (Arrow or NumPy arrays) as `table` declares them: its order, its types."""
    arrays = []
    for column in table.columns:
        array = columns[column.name]
        if not isinstance(array, pa.Array):
            array = one_chunk(array) if isinstance(array, pa.ChunkedArray) else pa.array(array)
        arrays.append(array if array.type == column.type else array.cast(column.type))
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


def by_code(code: Any, meaning: Callable[[Any], object], type: pa.DataType) -> pa.Array:
    """What each code means: one call for each code that occurs."""
    encoded = one_chunk(code).dictionary_encode()
    meanings = pa.array([meaning(each) for each in encoded.dictionary.to_pylist()], type)
    return meanings.take(encoded.indices)


def joined(*columns: Any) -> pa.Array:
    """The columns of each row as one text, so that rows can be told apart."""
    parts = [one_chunk(column).cast(pa.string()) for column in columns]
    return pc.binary_join_element_wise(*parts, "/", null_handling="replace")
