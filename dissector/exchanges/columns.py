"""Columns of Arrow tables as single arrays, and as arrays of NumPy."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from numpy.typing import NDArray

from dissector.packets.block import Int64


def as_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column as one array."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])


def int_column(table: pa.Table, name: str) -> Int64:
    """A column without nulls, without a copy if it is one array. It must not be changed."""
    column: Int64 = as_array(table[name]).to_numpy()
    return column


def bool_column(table: pa.Table, name: str) -> NDArray[Any]:
    """A column of booleans without nulls."""
    column: NDArray[Any] = as_array(table[name]).to_numpy(zero_copy_only=False)
    return column
