"""Rows of the table `records`.

The offsets of produced records are in the response. So these rows wait for it, up to a limit of
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissector.arrays import arrays
from dissector.exchanges.columns import int_column, with_column
from dissector.exchanges.correlated_block import CorrelatedBlock
from dissector.exchanges.states import RequestIds
from dissector.exchanges.topic_names import TopicNames
from dissector.packets.block import Int64
from dissector.problems import Problem
from dissector.records.arrow import records_table
from dissector.records.batch_headers import Batches
from dissector.records.record_columns import Records
from dissector.records.record_reader import read_records
from dissector.tables.arrow import milliseconds, to_batch
from dissector.tables.record_batches import (
    CarriedBatches,
    message_columns,
    offset_columns,
    produce_results,
    with_location,
)
from dissector.tables.schema import RECORDS
from dissector.tables.shared_columns import with_connections


@arrays
class _RecordPart:
    """Rows of `records` from one part of a batch column."""

    rows: pa.RecordBatch
    batch: Int64
    """Index of each row's batch in `batches`."""
    batches: pa.Table
    """Columns `request`, `topic`, `topic_id` and `partition`."""
    position: pa.Array | None
    """Position of each produced record in the request's partition; None for fetched records."""

    def filter(self, chosen: NDArray[np.bool_]) -> _RecordPart:
        """The chosen rows."""
        if chosen.all():
            return self
        mask = pa.array(chosen)
        position = None if self.position is None else self.position.filter(mask)
        return replace(
            self, rows=self.rows.filter(mask), batch=self.batch[chosen], position=position
        )


class RecordRows:
    """Rows of `records`. Produced records wait for the response, which has their offset."""

    def __init__(self, names: TopicNames, memory: int) -> None:
        """`memory`: limit for the bytes of pending rows, apart from those of one block."""
        self._names = names
        self._memory = memory
        self.pending: list[_RecordPart] = []

    def completed(
        self, block: CorrelatedBlock, columns: Sequence[CarriedBatches], problems: list[Problem]
    ) -> Iterator[pa.RecordBatch]:
        """The rows that are complete with this block, some thousands at a time.

        `columns`: the record batches of the block. Decoding problems are appended to `problems`.
        """
        completed = block.ids[block.completed]
        pending, self.pending = self.pending, []
        evicted = self._evicted(pending)
        if evicted:
            problems.append(_eviction_problem(evicted, block))
            yield from (_with_offsets(None, part) for part in evicted)
        for part in pending[len(evicted) :]:
            yield from self._complete(block, part, completed)
        for carried in columns:
            for part in _read_parts(block, carried, self._names, problems):
                yield from self._complete(block, part, completed)

    def put(self, parts: list[_RecordPart], ids: RequestIds, connections: Int64) -> None:
        """Add pending rows of another object; see `pending.moved_rows`."""
        for part in parts:
            request, is_moved = ids.moved(int_column(part.batches, "request"))
            moved = part.filter(is_moved[part.batch])
            if len(moved.rows):
                batches = with_column(part.batches, "request", pa.array(request))
                rows = with_connections(moved.rows, connections)
                self.pending.append(replace(moved, batches=batches, rows=rows))

    def discard(self, ids: Int64) -> None:
        """Drop the rows of these requests."""
        kept = []
        for part in self.pending:
            is_dropped = np.isin(int_column(part.batches, "request"), ids)
            left = part.filter(~is_dropped[part.batch])
            if len(left.rows):
                kept.append(left)
        self.pending = kept

    def _complete(
        self, block: CorrelatedBlock, part: _RecordPart, completed: Int64
    ) -> Iterator[pa.RecordBatch]:
        """The rows whose exchange has ended; the others become pending."""
        if part.position is None:
            yield part.rows
            return
        is_complete = np.isin(int_column(part.batches, "request"), completed)[part.batch]
        if is_complete.any():
            yield _with_offsets(block, part.filter(is_complete))
        if not is_complete.all():
            self.pending.append(part.filter(~is_complete))

    def _evicted(self, pending: Sequence[_RecordPart]) -> Sequence[_RecordPart]:
        """The oldest of these, which exceed the memory limit."""
        size = np.cumsum([part.rows.nbytes for part in reversed(pending)])
        kept = int(np.searchsorted(size, self._memory, side="right"))
        return pending[: len(pending) - kept]


def _read_parts(
    block: CorrelatedBlock, carried: CarriedBatches, names: TopicNames, problems: list[Problem]
) -> Iterator[_RecordPart]:
    """Rows of `records`, some thousands at a time."""
    if not len(carried.batches):
        return
    message = message_columns(block, carried, names)
    shared = pa.table({name: message[name] for name in message if name in RECORDS.schema.names})
    request = block.requests["id"].take(pa.array(carried.row[carried.message]))
    keys = ("topic", "topic_id", "partition")
    batches = pa.table({"request": request, **{name: message[name] for name in keys}})
    is_produced = carried.messages is block.request
    batch_position = offset_columns(carried.batches)["position"] if is_produced else None
    seen = np.zeros(len(carried.batches), np.int64)

    def read_rows(part: Records) -> tuple[pa.RecordBatch, Int64]:
        problems.extend(
            with_location(problem, carried, int(carried.message[index]))
            for index, problem in part.problems
        )
        return record_rows(part, carried.batches, shared)

    # No variable keeps a part, so its memory serves the next one.
    for rows, batch in map(read_rows, read_records(carried.group.space, carried.batches)):
        position = None
        if batch_position is not None:
            in_batch = _positions_in_batch(carried.batches, rows, batch, seen)
            position = pc.add(batch_position.take(pa.array(batch)), pa.array(in_batch))
        yield _RecordPart(rows, batch, batches, position)


def _positions_in_batch(batches: Batches, rows: pa.RecordBatch, batch: Int64, seen: Int64) -> Int64:
    """Position of each record in its batch, from 0. `seen`: records of each batch so far."""
    first = np.searchsorted(batch, batch)
    number = seen[batch] + np.arange(len(batch)) - first
    seen += np.bincount(batch, minlength=len(seen))
    # A record batch contains offset deltas; of older messages only the order is known.
    delta = rows["offset"].to_numpy() - batches.base_offset[batch]
    return np.where(batches.magic[batch] == 2, delta, number)


def _with_offsets(block: CorrelatedBlock | None, part: _RecordPart) -> pa.RecordBatch:
    """The produced rows with the offsets from the response; null without a response."""
    offset = pa.nulls(len(part.rows), pa.int64())
    if block is not None:
        first, _ = produce_results(block, part.batches)
        offset = pc.add(first.take(pa.array(part.batch)), part.position)
    return with_column(part.rows, "offset", offset)


def _eviction_problem(evicted: Sequence[_RecordPart], block: CorrelatedBlock) -> Problem:
    count = sum(len(part.rows) for part in evicted)
    detail = f"memory limit reached: {count} produced records have no offset"
    times = block.request.headers.time
    return Problem("records", "memory", detail, time=int(times.max()) if len(times) else None)


def record_rows(
    records: Records, batches: Batches, shared: pa.Table
) -> tuple[pa.RecordBatch, Int64]:
    """Rows of `records`, and the batch of each. `shared`: columns of the batches, by batch.

    `decoded` is null: internal topics are decoded when all topic names are known.
    """
    rows = records_table(records, batches)
    of_batch = shared.take(rows.column("batch"))
    columns = {name: of_batch[name] for name in shared.column_names}
    columns |= {name: rows.column(name) for name in rows.schema.names}
    columns["timestamp"] = milliseconds(rows.column("timestamp").to_numpy())
    columns["decoded"] = pa.nulls(len(rows), pa.string())
    return to_batch(RECORDS, columns), rows.column("batch").to_numpy()
