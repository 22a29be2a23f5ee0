"""Rows that start with a request and are completed by its response, possibly in a later block.

Tables that combine requests and responses keep a few columns of each request, not the message,
until the exchange ends. Rows refer to their exchange by `request`, the running number that
`request_table` assigns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.columns import int_column, with_column
from dissector.exchanges.correlated_block import CorrelatedBlock
from dissector.exchanges.states import RequestIds
from dissector.packets.block import Int64
from dissector.tables.shared_columns import request_columns, requests_of, with_connections


class PendingRows:
    """The rows of one table whose exchange has not ended. They have a column `request`."""

    def __init__(self) -> None:
        self.pending: pa.Table | None = None

    def completed(self, block: CorrelatedBlock, *tables: pa.Table) -> pa.Table:
        """Add the rows of the messages of this block; return those whose exchange has ended."""
        rows = pa.concat_tables(tables if self.pending is None else [self.pending, *tables])
        has_ended = pc.is_in(rows["request"], pa.array(block.ids[block.completed]))
        self.pending = rows.filter(pc.invert(has_ended))
        return rows.filter(has_ended).combine_chunks()

    def put(self, rows: pa.Table, ids: RequestIds, connections: Int64) -> None:
        """Add `rows` of another object, of requests that were moved; see `moved_rows`."""
        rows = moved_rows(rows, ids, connections)
        self.pending = rows if self.pending is None else pa.concat_tables([self.pending, rows])

    def discard(self, ids: Int64) -> None:
        """Drop the rows of these requests."""
        if self.pending is not None:
            is_dropped = pc.is_in(self.pending["request"], pa.array(ids))
            self.pending = self.pending.filter(pc.invert(is_dropped))


def moved_rows(rows: pa.Table, ids: RequestIds, connections: Int64) -> pa.Table:
    """The rows of the requests that were moved, with their new running numbers.

    `connections`: the new row of each connection, for tables with a column `connection_id`.
    """
    request, is_moved = ids.moved(int_column(rows, "request"))
    rows = with_column(rows, "request", pa.array(request)).filter(pa.array(is_moved))
    return with_connections(rows, connections)


def with_exchanges(block: CorrelatedBlock, rows: pa.Table) -> dict[str, Any]:
    """The columns of these rows, and those that all these tables have of their exchanges.

    Also `row`, the row of `CorrelatedBlock.requests`, and `response`, the index of the response, -1
    if there is none.
    """
    row = np.searchsorted(block.ids, int_column(rows, "request"))
    response = np.full(len(block.requests), -1)
    response[block.answered] = np.arange(len(block.answered))
    row_response = response[row]
    requests = requests_of(block, row)
    time = pa.array(block.response.headers.time)
    return {
        **{name: rows[name] for name in rows.column_names},
        "row": row,
        "response": row_response,
        **request_columns(requests),
        "time": requests["time"],
        "response_time": time.take(pa.array(row_response, mask=row_response < 0)),
    }
