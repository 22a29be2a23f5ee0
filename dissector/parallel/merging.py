"""Merging: the rows of several tellers, as one would have told them.

Each teller tells the rows of its connections in the order that `builder` describes. Of a table that
comes in one batch a turn, all rows are put together and sorted; of `records`, which come in many,
those are taken that nothing can precede any more, so that a batch of each teller is held at a time.
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
from dissector.parallel.crew import Crew
from dissector.parallel.memory import Region
from dissector.parallel.stages import Learned
from dissector.problems import Problem
from dissector.tables.builder import TABLE_ORDER, TableRows
from dissector.tables.problems import problem_rows

if TYPE_CHECKING:
    from dissector.tables.record_batches import Rank


class Inbox:
    """What one teller sends."""

    def __init__(
        self, crew: Crew, boxes: Sequence[Region], channel: Connection, names: TopicNames, *,
        alone: bool,
    ) -> None:  # fmt: skip
        """`alone`: there are no others, so that what comes goes out as it is."""
        self._alone = alone
        self._crew = crew
        self._boxes = boxes
        self._channel = channel
        self._names = names
        self._received = 0
        self.head: Any = None
        """The message at hand: valid until the next one is asked for."""

    def advance(self) -> None:
        """Have the next message at hand; the arrays of the one before are no more."""
        if self._received:
            self.head = None
            self._channel.send_bytes(b"")
        box = self._boxes[self._received % len(self._boxes)]
        self._received += 1
        learned: Learned | None
        self.head, learned = box.unpack(self._crew.receive(self._channel), copy=self._alone)
        if learned:
            self._names.names.update(learned.names)
            self._names.unresolved.update(learned.unresolved)

    @property
    def place(self) -> tuple[int, Rank] | None:
        """Where the rows at hand stand in their turn; None where there are none any more."""
        head = self.head
        return (
            (TABLE_ORDER.index(head.table), head.rank or ())
            if isinstance(head, TableRows)
            else None
        )


def merged(inboxes: Sequence[Inbox], problems: list[Problem]) -> Iterator[TableRows]:
    """The rows of one turn. `problems`: what could not be read before it came to be told."""
    for inbox in inboxes:
        inbox.advance()  # what it has learned by now
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
    """The batch at hand of the only teller."""
    yield inbox.head
    inbox.advance()


def _joined(inboxes: Sequence[Inbox]) -> Iterator[TableRows]:
    """The batches at hand, and those behind them that have the same place."""
    return _runs(inboxes) if inboxes[0].head.rank else iter([_together(inboxes)])


def _together(inboxes: Sequence[Inbox]) -> TableRows:
    """The batches at hand as one, in order."""
    table = inboxes[0].head.table
    batch = _sorted(table, [inbox.head.batch for inbox in inboxes])
    for inbox in inboxes:
        inbox.advance()
    return TableRows(table, batch)


def _runs(inboxes: Sequence[Inbox]) -> Iterator[TableRows]:
    """The batches of one rank, which come in order of connection, as one row of batches."""
    first = inboxes[0].head
    place = inboxes[0].place
    rest = {inbox: inbox.head.batch for inbox in inboxes}
    while rest:
        last = min((_connections(batch)[-1] for batch in rest.values() if len(batch)), default=0)
        parts = []
        for inbox, batch in [*rest.items()]:
            until = int(np.searchsorted(_connections(batch), last, side="right"))
            parts.append(batch.slice(0, until))
            rest[inbox] = batch.slice(until)
        yield TableRows(first.table, _sorted(first.table, parts), first.rank)
        del parts, batch
        for inbox in [inbox for inbox, batch in rest.items() if not len(batch)]:
            del rest[inbox]
            inbox.advance()
            if inbox.place == place:
                rest[inbox] = inbox.head.batch


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
