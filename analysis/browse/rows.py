"""Rows in batches: of a mapped file, of a live capture, of an answer.

A row has a number, from `first` on. Only the rows on the screen, and the columns that a filter or a
sort needs, are read. So a million rows take as long as a thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analysis.input.filters import Filter
from analysis.names.addresses import broker_endpoints
from analysis.sql.conditions import Condition
from dissector.arrays import value
from dissector.tables import EXCHANGES

Numbers: TypeAlias = NDArray[np.int64]
"""Numbers of rows."""

TIME: Final = "time"
"""Column of exchanges: the time of the request, or if it is missing, of the response."""


Style: TypeAlias = Callable[[Any], str]
"""From a value to the style of its text."""
_NO_STYLES: Final[Mapping[str, Style]] = MappingProxyType({})


@value
class Column:
    """A column to show."""

    name: str
    values: Callable[[pa.RecordBatch], pa.Array]
    style: Style = lambda value: ""


@value
class Order:
    """By a column; empty: as the rows came."""

    column: str = ""
    descending: bool = False


class Rows:
    """Batches with the same schema."""

    def __init__(
        self, batches: Sequence[pa.RecordBatch], columns: Sequence[Column], first: int = 0
    ) -> None:
        """`first`: the number of the first row."""
        self.columns = {column.name: column for column in columns}
        self._batches = batches
        self._starts = first + np.cumsum([0, *map(len, batches)])

    def __len__(self) -> int:
        return int(self._starts[-1] - self._starts[0])

    @property
    def numbers(self) -> Numbers:
        """The numbers of all rows."""
        return np.arange(self._starts[0], self._starts[-1])

    def row(self, number: int) -> pa.RecordBatch:
        """A batch with only this row."""
        index = int(np.searchsorted(self._starts, number, "right")) - 1
        return self._batches[index].slice(number - int(self._starts[index]), 1)

    def take(self, name: str, numbers: Numbers) -> pa.Array:
        """The values of a column in these rows; of the type null if there are none."""
        if not len(numbers):
            return pa.nulls(0)
        values = self.columns[name].values
        batch = np.searchsorted(self._starts, numbers, "right") - 1
        order = np.argsort(batch, kind="stable")
        used, begin = np.unique(batch[order], return_index=True)
        parts = [
            values(self._batches[index]).take(pa.array(numbers[part] - self._starts[index]))
            for index, part in zip(used.tolist(), np.split(order, begin[1:]), strict=True)
        ]
        if len(parts) == 1:
            return parts[0]
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        return pa.concat_arrays(parts).take(pa.array(position))

    def all(self, name: str) -> NDArray[Any]:
        """The values of a column in all rows."""
        values = self.columns[name].values
        parts = [values(batch).to_numpy(zero_copy_only=False) for batch in self._batches]
        return np.concatenate(parts)

    def matching(
        self, chosen: Filter | None, is_cancelled: Callable[[], bool] = lambda: False
    ) -> Numbers:
        """The numbers of the exchanges that a filter selects, ascending. Raises DissectorError."""
        if not chosen:
            return self.numbers
        condition = Condition(chosen.sql, chosen.names)
        parts = [np.zeros(0, np.int64)]
        for start, batch in zip(self._starts.tolist(), self._batches, strict=False):
            if is_cancelled():
                break
            parts.append(start + condition.matches(batch.select(EXCHANGES.schema.names)))
        return np.concatenate(parts)

    def ordered(self, numbers: Numbers, order: Order) -> Numbers:
        """The rows in the order of a column; null comes last, equal rows stay in their order."""
        values = sortable(self.take(order.column, numbers))
        direction = "descending" if order.descending else "ascending"
        index = pc.array_sort_indices(values, order=direction, null_placement="at_end")
        return np.asarray(numbers[index.to_numpy()])


def sortable(values: pa.Array) -> pa.Array:
    """Values that Arrow can sort: a list by its texts."""
    if pa.types.is_list(values.type):
        return pc.binary_join(values.cast(pa.list_(pa.string())), ",")
    return values


def columns_of(schema: pa.Schema, styles: Mapping[str, Style] = _NO_STYLES) -> list[Column]:
    """Columns of a table; `styles`: by name."""

    def values(name: str) -> Callable[[pa.RecordBatch], pa.Array]:
        return lambda batch: batch.column(name)

    return [Column(name, values(name), styles.get(name, lambda value: "")) for name in schema.names]


def exchange_columns() -> list[Column]:
    """Columns of `exchanges`: the most useful first; all have the names that filters use."""
    named = {
        TIME: Column(TIME, _time),
        "broker": Column("broker", broker_endpoints),
        "client": Column("client", lambda batch: batch.column("client_ip")),
        "error": Column("error", _error, lambda value: "red" if value else ""),
    }
    styles: dict[str, Style] = {
        "throttle_time_ms": lambda value: "yellow" if value else "",
        "status": lambda value: "" if value == "answered" else "yellow",
    }
    plain = {column.name: column for column in columns_of(EXCHANGES.schema, styles)}
    columns = plain | named
    return [columns[name] for name in (*_FIRST, *(n for n in plain if n not in _FIRST))]


_FIRST: Final = (
    TIME, "client_id", "api", "topics", "latency_ms", "error", "throttle_time_ms", "status",
    "api_version", "record_count", "request_bytes", "response_bytes", "broker", "client",
    "connection_id", "correlation_id", "request_packet", "response_packet", "group_id",
)  # fmt: skip


def _time(batch: pa.RecordBatch) -> pa.Array:
    return pc.coalesce(batch.column("request_time"), batch.column("response_time"))


def _error(batch: pa.RecordBatch) -> pa.Array:
    """The name of the first error; null without one."""
    return pc.if_else(pc.greater(batch.column("error_count"), 0), batch.column("error"), None)
