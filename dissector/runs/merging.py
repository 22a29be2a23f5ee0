"""Merges the rows of a block that several processes made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.ordering import ordered
from dissector.packets.block import Int64
from dissector.tables.builder import TABLE_ORDER, TableRows

UNMOVED: Final = 1000
"""Rows that are in order, and worth a batch of their own."""


def merged(rows: Sequence[TableRows], number: Int64 | None) -> Iterator[TableRows]:
    """The rows of one block, table by table, each in order of time and connection.

    `number`: of each connection, its place in the order; None: its `connection_id`.
    """
    for table in TABLE_ORDER:
        parts = [each for each in rows if each.table == table and len(each.batch)]
        if table == "records":
            yield from parts
        elif parts:
            for batch in _in_order(table, [each.batch for each in parts], number):
                yield TableRows(table, batch)


def _in_order(
    table: str, batches: Sequence[pa.RecordBatch], number: Int64 | None
) -> Iterator[pa.RecordBatch]:
    """The rows in order. Only those that change places are copied."""
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    connection = ints(batch["connection_id"])
    if number is not None:
        has_connection = connection >= 0
        connection = connection.copy()
        connection[has_connection] = number[connection[has_connection]]
    if table == "exchanges":
        request = batch["request_time"]
        time = ints(pc.coalesce(request, batch["response_time"]) if request.null_count else request)
    else:
        time = ints(batch["time"])
    later = time[1:] > time[:-1]
    if (later | ((time[1:] == time[:-1]) & (connection[1:] >= connection[:-1]))).all():
        yield batch
        return
    order = ordered(time, connection)
    moved = np.flatnonzero(order != np.arange(len(order)))
    gaps = np.flatnonzero(np.diff(moved) > UNMOVED)
    done = 0
    for begin, last in zip(
        moved[[0, *gaps + 1]].tolist(), moved[[*gaps, -1]].tolist(), strict=True
    ):
        if begin > done:
            yield batch[done:begin]
        done = last + 1
        yield batch.take(pa.array(order[begin:done]))
    if done < len(batch):
        yield batch[done:]


def ints(column: pa.Array) -> Int64:
    """The numbers of a column; -1 for null."""
    values = column.cast(pa.int64())
    numbers: Int64 = (pc.fill_null(values, -1) if values.null_count else values).to_numpy()
    return numbers
