"""Merges the rows of a block that several processes made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.packets.block import Int64
from dissector.tables.builder import TABLE_ORDER, TableRows


def merged(rows: Sequence[TableRows], number: Int64 | None) -> Iterator[TableRows]:
    """The rows of one block, table by table, each in order of time and connection.

    `number`: of each connection, its place in the order; None: its `connection_id`.
    """
    for table in TABLE_ORDER:
        parts = [each for each in rows if each.table == table and len(each.batch)]
        if table == "records":
            yield from parts
        elif parts:
            yield TableRows(table, _in_order(table, [each.batch for each in parts], number))


def _in_order(
    table: str, batches: Sequence[pa.RecordBatch], number: Int64 | None
) -> pa.RecordBatch:
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    connection = ints(batch["connection_id"])
    if number is not None:
        connection = np.where(connection < 0, connection, number[connection])
    if table == "exchanges":
        request = batch["request_time"]
        time = ints(pc.coalesce(request, batch["response_time"]) if request.null_count else request)
    else:
        time = ints(batch["time"])
    later = time[1:] > time[:-1]
    if (later | ((time[1:] == time[:-1]) & (connection[1:] >= connection[:-1]))).all():
        return batch
    return batch.take(pa.array(np.lexsort((connection, time))))


def ints(column: pa.Array) -> Int64:
    """The numbers of a column; -1 for null."""
    values = column.cast(pa.int64())
    numbers: Int64 = (pc.fill_null(values, -1) if values.null_count else values).to_numpy()
    return numbers
