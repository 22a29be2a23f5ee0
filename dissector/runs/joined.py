"""A run that is joined: its rows become rows of the capture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.arrays import value
from dissector.exchanges.columns import with_column
from dissector.exchanges.ordering import ordered
from dissector.packets.block import Int64
from dissector.runs.rows import Content, StoredRows, batch_of
from dissector.streams.connections.table import NEVER
from dissector.tables.builder import TABLE_ORDER, TableRows

DROPPED: Final = -2
"""In place of a row: the row of the run is dropped."""
UNMOVED: Final = 1000
"""Rows that are in order, and worth a batch of their own."""
PACKET_COLUMNS: Final = ("request_packet", "response_packet", "packet")


@value
class Joined:
    """How the rows of a run become rows of the capture, and the rows that it lacks."""

    own: Iterable[Sequence[TableRows]]
    """Rows of the parent, by block: of the connections that it dissected again, or all rows."""
    blocks: Sequence[Sequence[StoredRows]] = ()
    """Rows of the process, by block; empty if the parent reads the whole run."""
    row_of: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """See `Verdict`."""
    before: int = 0
    earlier: int = 0
    """Packets of the file before the run, and before its end: see `states.shift_packets`."""

    def rows(self, stored: Content, number: Int64 | None = None) -> Iterator[TableRows]:
        """The rows of the run, block by block. `stored`: the file of its process.

        `number`: of each row of `connection_id`, its place in the order; None: its value.
        """
        if not self.blocks:
            yield from chain.from_iterable(self.own)
            return
        for block, own in zip(self.blocks, self.own, strict=True):
            moved = [TableRows(each.table, self.moved(batch_of(each, stored))) for each in block]
            yield from merged([*moved, *own], number)

    def moved(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of the run, with the connections of the parent and absolute packet numbers."""
        names = batch.schema.names
        for name in PACKET_COLUMNS:
            if name in names:
                batch = with_column(batch, name, self._shifted(batch[name]))
        if "connection_id" not in names:
            return batch
        column = batch["connection_id"]
        moved = self.row_of[ints(column)]
        is_dropped = moved == DROPPED
        connection = pa.array(moved, column.type, mask=moved == NEVER)
        batch = with_column(batch, "connection_id", connection)
        return batch.filter(pa.array(~is_dropped)) if is_dropped.any() else batch

    def _shifted(self, packets: pa.Array) -> pa.Array:
        if self.before == self.earlier:
            return pc.add(packets, self.before) if self.before else packets
        return pc.add(packets, pc.if_else(pc.greater(packets, 0), self.before, self.earlier))


def merged(rows: Sequence[TableRows], number: Int64 | None) -> Iterator[TableRows]:
    """The rows of one block, table by table, each in order of time and connection.

    `number`: of each connection, its place in the order; None: its `connection_id`.
    """
    for table in TABLE_ORDER:
        parts = [each for each in rows if each.table == table and len(each.batch)]
        if table == "records":
            yield from parts
        elif parts:
            batches = _in_order(table, [each.batch for each in parts], number)
            if table == "topics":  # `TopicChanges` needs all states of a block at once
                batches = iter([pa.concat_batches([*batches])])
            for batch in batches:
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
