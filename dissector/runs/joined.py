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
from dissector.packets.block import Int64
from dissector.runs.merging import ints, merged
from dissector.runs.rows import Content, StoredRows, batch_of
from dissector.streams.table import NEVER
from dissector.tables.builder import TableRows

DROPPED: Final = -2
"""In place of a row: the row of the run is dropped."""
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
