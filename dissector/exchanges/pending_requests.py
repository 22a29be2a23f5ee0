"""Pending requests: those whose response may arrive in a later block.

A block concerns few of them: those of connections that have responses or end, and those whose time
is over. The others stay where they are, in tables of different sizes. Two tables are joined unless
the earlier one is at least twice as long. So a request is copied a number of times that grows with
the logarithm of the number of requests (Bentley and Saxe, "Decomposable searching problems", 1980).
"""

from __future__ import annotations

from typing import Self

import numpy as np
import pyarrow as pa

from dissector.arrays import arrays
from dissector.exchanges.columns import as_array, int_column
from dissector.packets.block import Int64
from dissector.streams.connections.table import LAST_TIME, Bools


@arrays
class _Part:
    """Some of the pending requests, and facts by connection; arrays of shape (connections,)."""

    requests: pa.Table
    connection: Int64
    due: Int64
    """ns; the earliest time after which a request of the connection is unanswered."""
    sent_time: Int64
    """ns; when the earliest request of the connection was sent."""

    @classmethod
    def of(cls, requests: pa.Table, connection: Int64, due: Int64, sent_time: Int64) -> Self:
        """`connection` may repeat, and is in any order."""
        distinct, place = np.unique(connection, return_inverse=True)
        earliest = np.full((2, len(distinct)), LAST_TIME)
        np.minimum.at(earliest[0], place, due)
        np.minimum.at(earliest[1], place, sent_time)
        return cls(requests, distinct, *earliest)

    def chosen(self, is_chosen: Bools) -> Self:
        """The part with the requests of these connections only. `is_chosen`: by connection."""
        row = np.flatnonzero(is_chosen[int_column(self.requests, "connection")])
        index = np.flatnonzero(is_chosen[self.connection])
        return type(self)(
            take_rows(self.requests, row), self.connection[index], self.due[index],
            self.sent_time[index],
        )  # fmt: skip


class PendingRequests:
    """The pending requests of all connections; see `request_table`."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._parts: list[_Part] = []

    def __len__(self) -> int:
        return sum(len(part.requests) for part in self._parts)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(part.requests.nbytes for part in self._parts)

    @property
    def connections(self) -> Int64:
        """The connections that have any; they may repeat."""
        return np.concatenate([np.zeros(0, np.int64), *(part.connection for part in self._parts)])

    @property
    def table(self) -> pa.Table:
        """All of them, by running number."""
        return self._joined([part.requests for part in self._parts])

    def add(self, requests: pa.Table, due: Int64) -> None:
        """Add requests that follow all others of their connections. `due`: see `take`."""
        if not len(requests):
            return
        columns = (int_column(requests, name) for name in ("connection", "sent_time"))
        connection, sent_time = columns
        part = _Part.of(requests, connection, due, sent_time)
        while self._parts and len(self._parts[-1].requests) < 2 * len(part.requests):
            before = self._parts.pop()
            part = _Part.of(
                self._joined([before.requests, part.requests]),
                np.append(before.connection, part.connection),
                np.append(before.due, part.due),
                np.append(before.sent_time, part.sent_time),
            )
        self._parts.append(part)

    def take(self, is_concerned: Bools, now: int) -> pa.Table:
        """Remove the requests of some connections, and return them by running number.

        `is_concerned`: by connection. All connections with a request that was due before `now`, in
        ns, are added to them.
        """
        for part in self._parts:
            is_concerned[part.connection[part.due < now]] = True
        parts, self._parts, taken = self._parts, [], []
        for part in parts:
            is_taken = is_concerned[part.connection]
            if is_taken.all():
                taken.append(part.requests)
            elif is_taken.any():
                taken.append(part.chosen(is_concerned).requests)
                self._parts.append(part.chosen(~is_concerned))
            else:
                self._parts.append(part)
        return self._joined(taken)

    def lower_to_sent(self, times: Int64) -> None:
        """Lower `times`, in ns by connection, to the time of its earliest pending request."""
        for part in self._parts:
            times[part.connection] = np.minimum(times[part.connection], part.sent_time)

    def _joined(self, tables: list[pa.Table]) -> pa.Table:
        """The rows of these tables, by running number."""
        if len(tables) < 2:
            return tables[0] if tables else self.schema.empty_table()
        table = pa.concat_tables(tables).combine_chunks()
        number = int_column(table, "id")
        is_sorted = (number[1:] > number[:-1]).all()
        return table if is_sorted else table.take(pa.array(np.argsort(number)))


def take_rows(table: pa.Table, row: Int64) -> pa.Table:
    """These rows, with dictionaries that contain only the words of these rows."""
    if not len(row):
        return table.schema.empty_table()
    table = table.take(pa.array(row))
    columns = [_compact(as_array(column)) for column in table.columns]
    return pa.table(columns, schema=table.schema)


def _compact(column: pa.Array) -> pa.Array:
    """The column with a dictionary that contains only its words."""
    if pa.types.is_list(column.type):
        values, is_null = _compact(column.values), column.is_null()
        return pa.ListArray.from_arrays(column.offsets, values, mask=is_null)
    if pa.types.is_dictionary(column.type):
        return column.cast(pa.string()).dictionary_encode()
    return column
