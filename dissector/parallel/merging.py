"""Merges the rows of several table workers into the rows that one would have made.

Each worker sends the rows of its connections in the order that `tables.builder` describes. Most
tables have one batch per block: its rows are joined and sorted. `records` has many batches: rows
are passed on when no earlier row can follow, so only one batch of each worker is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.exchanges.topic_names import TopicNames
from dissector.packets.block import Int64
from dissector.parallel.memory import Region
from dissector.parallel.stages import NewTopicNames
from dissector.parallel.workers import Workers
from dissector.problems import Problem
from dissector.tables.builder import TABLE_ORDER, TableRows
from dissector.tables.problems import problem_rows

if TYPE_CHECKING:
    from dissector.tables.record_batches import Rank


class Inbox:
    """Receives the messages of one table worker."""

    def __init__(
        self, workers: Workers, buffers: Sequence[Region], channel: Connection, names: TopicNames,
        *, alone: bool,
    ) -> None:  # fmt: skip
        """`alone`: there is only this table worker, so its batches are passed on unchanged."""
        self._alone = alone
        self._workers = workers
        self._buffers = buffers
        self._channel = channel
        self._names = names
        self._received = 0
        self.head: Any = None
        """The current message: valid until `advance`."""

    def advance(self) -> None:
        """Receive the next message; the arrays of the previous one become invalid."""
        if self._received:
            self.head = None
            self._channel.send_bytes(b"")
        buffer = self._buffers[self._received % len(self._buffers)]
        self._received += 1
        new_names: NewTopicNames | None
        message = self._workers.receive(self._channel)
        self.head, new_names = buffer.unpack(message, copy=self._alone)
        if new_names:
            self._names.names.update(new_names.names)
            self._names.unresolved.update(new_names.unresolved)

    @property
    def place(self) -> tuple[int, Rank] | None:
        """Sort key of the current rows in their block; None after the last rows of a block."""
        head = self.head
        return (
            (TABLE_ORDER.index(head.table), head.rank or ())
            if isinstance(head, TableRows)
            else None
        )


def merged(inboxes: Sequence[Inbox], problems: list[Problem]) -> Iterator[TableRows]:
    """The rows of one block. `problems`: those of the stages before the table workers."""
    for inbox in inboxes:
        inbox.advance()  # new topic names
    for inbox in inboxes:
        inbox.advance()
    while any(inbox.place for inbox in inboxes):
        place = min(inbox.place for inbox in inboxes if inbox.place)
        chosen = [inbox for inbox in inboxes if inbox.place == place]
        for table, batch, rank in _alone(chosen[0]) if len(inboxes) == 1 else _joined(chosen):
            if table == "problems":
                batch = pa.concat_batches([problem_rows(problems), batch])
            yield TableRows(table, batch, rank)


def _alone(inbox: Inbox) -> Iterator[TableRows]:
    """The current batch of the only table worker."""
    yield inbox.head
    inbox.advance()


def _joined(inboxes: Sequence[Inbox]) -> Iterator[TableRows]:
    """The current batches, and the next ones with the same sort key."""
    return _runs(inboxes) if inboxes[0].head.rank else iter([_together(inboxes)])


def _together(inboxes: Sequence[Inbox]) -> TableRows:
    """The current batches as one, in order."""
    table = inboxes[0].head.table
    batch = _sorted(table, [inbox.head.batch for inbox in inboxes])
    for inbox in inboxes:
        inbox.advance()
    return TableRows(table, batch)


def _runs(inboxes: Sequence[Inbox]) -> Iterator[TableRows]:
    """The batches of one rank, each in order of connection, merged in this order."""
    first = inboxes[0].head
    place = inboxes[0].place
    remaining = {inbox: inbox.head.batch for inbox in inboxes}
    while remaining:
        last = min(
            (_connections(batch)[-1] for batch in remaining.values() if len(batch)), default=0
        )
        parts = []
        for inbox, batch in [*remaining.items()]:
            until = int(np.searchsorted(_connections(batch), last, side="right"))
            parts.append(batch.slice(0, until))
            remaining[inbox] = batch.slice(until)
        yield TableRows(first.table, _sorted(first.table, parts), first.rank)
        del parts, batch
        for inbox in [inbox for inbox, batch in remaining.items() if not len(batch)]:
            del remaining[inbox]
            inbox.advance()
            if inbox.place == place:
                remaining[inbox] = inbox.head.batch


def _sorted(table: str, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """A copy of all rows in the order of their table."""
    whole = pa.concat_batches(batches)
    connection = _connections(whole)
    if table in ("records", "problems"):
        return whole.take(pa.array(np.argsort(connection, kind="stable")))
    if table == "exchanges":
        time = pc.coalesce(whole["request_time"], whole["response_time"])
    else:
        time = whole["time"]
    return whole.take(pa.array(np.lexsort((connection, _ints(time)))))


def _connections(batch: pa.RecordBatch) -> Int64:
    return _ints(batch["connection_id"])


def _ints(column: pa.Array) -> Int64:
    values: Int64 = pc.fill_null(column.cast(pa.int64()), -1).to_numpy()
    return values
