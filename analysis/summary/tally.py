"""Sums of groups over any number of batches, and the columns that they need."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ROW: Final = "row"
"""A temporary column: the number of a row."""


class Tally:
    """Sums, minima and maxima of groups, over any number of batches.

    A batch is a table with the key columns and the columns to aggregate, perhaps with others;
    `total` has one row for each combination of keys, in order of their first appearance.
    """

    def __init__(self, keys: Sequence[str], **how: str) -> None:
        """`how`: for each column an associative aggregation: sum, min, max, first."""
        self.keys = list(keys)
        self._how = list(how.items())
        self.total: pa.Table | None = None

    def add(self, rows: pa.Table) -> None:
        if not len(rows):
            return
        names = [*self.keys, *(name for name, _ in self._how)]
        rows = rows.select(names)
        if self.total is not None:
            rows = pa.concat_tables([self.total, rows])
        # Arrow orders groups by hashes, if some of them are equal.
        rows = rows.append_column(_ROW, pa.array(np.arange(len(rows))))
        how = [*self._how, (_ROW, "min")]
        grouped = rows.group_by(self.keys, use_threads=False).aggregate(how)
        columns = [*self.keys, *(f"{name}_{how}" for name, how in self._how)]
        grouped = grouped.sort_by(f"{_ROW}_min")
        self.total = grouped.select(columns).rename_columns(names)

    def rows(self) -> list[dict[str, Any]]:
        """The groups; empty before the first `add`."""
        return [] if self.total is None else self.total.to_pylist()


def with_columns(rows: pa.Table, **columns: pa.Array | pa.ChunkedArray) -> pa.Table:
    """The rows with more columns, or other ones; booleans become 0 and 1."""
    for name, column in columns.items():
        numbers = column.cast(pa.int64()) if pa.types.is_boolean(column.type) else column
        index = rows.schema.get_field_index(name)
        add = rows.append_column if index < 0 else partial(rows.set_column, index)
        rows = add(name, numbers)
    return rows


def with_count(table: pa.Table) -> pa.Table:
    """The table with a column `count`; 1 if it is missing or null."""
    is_there = "count" in table.column_names
    count = pc.fill_null(table["count"], 1) if is_there else ones(len(table))
    return with_columns(table, count=count)


def ones(count: int) -> pa.Array:
    """A column of ones."""
    return pa.array(np.ones(count, np.int64))


def zeros(count: int) -> pa.Array:
    """A column of zeros."""
    return pa.array(np.zeros(count, np.int64))


def with_span(rows: pa.Table, time: str) -> pa.Table:
    """The rows, with first and last: a time in ns."""
    ns = rows[time].cast(pa.int64())
    return with_columns(rows, first=ns, last=ns)


def known(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column, with 0 for null."""
    return pc.fill_null(column, 0)
