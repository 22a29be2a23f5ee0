"""The work of a process: it dissects a run without knowing the runs before it.

Connections that begin in the run, with a SYN, are dissected as in one process. So are connections
that are in the normal state at the start of the run, as far as the bytes before it show
(`states.is_normal`). The packets of all other connections are kept: they are dissected when the
state before the run is known.

Rows are written to a file (`rows`), batch by batch. The parent gets a description of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np

from dissector.exchanges.topic_names import TopicNames
from dissector.frame_reader import Broker, FrameReader
from dissector.packets.block import SYN, Int64, PacketBlock, UInt64
from dissector.packets.prefetch import FRONT, with_room
from dissector.problems import Problem
from dissector.runs.blocks import chosen, compact
from dissector.runs.plan import AnyRun
from dissector.runs.rows import RowFile, StoredRows
from dissector.runs.sources import Position, RunSource, TimeSource, opened
from dissector.runs.states import States, is_normal, take, take_border
from dissector.streams.table import FRAMED, Bools
from dissector.tables.builder import TableBuilder

KEPT_BYTES: Final = 64 << 20
"""Most payload of a run that is kept for the parent. The parent reads a larger one again."""
Make: TypeAlias = Callable[[], tuple[FrameReader, TableBuilder]]
"""Returns new stages without a source."""


@dataclass(slots=True)
class BlockResult:
    """A block of a run."""

    now: int
    packets: int
    bytes_read: int
    rows: list[StoredRows]
    kept: PacketBlock | None
    """The packets of connections that are not dissected, with `until`; None: they are not kept."""
    brokers: list[Broker]
    """Brokers in the responses of this block."""


@dataclass(slots=True)
class RunResult:
    """What a process knows about a run, apart from the rows, which are in a file."""

    names: TopicNames
    border: States
    """State of the connections that go on, at the start of the run, as far as it is known."""
    end: States
    """State of the connections at the end of the run; first those of `border`."""
    waiting: dict[str, Any]
    """Rows that wait for responses, by table."""
    rows: Int64
    """Row of each connection of `end`: the `connection_id` of the rows."""
    keys: UInt64
    """Key of the pair of endpoints of each connection of `end`."""
    is_current: Bools
    """Whether the next packets of the pair belong to the connection."""
    is_doubtful: Bools
    """Whether a connection of `border` left the normal state, or may have been replaced."""
    reserved: Bools
    """Whether a connection of `border` used reserved correlation ids."""
    unknown: UInt64
    """Keys of the pairs of connections that were not dissected."""
    brokers: set[Broker]
    """Brokers that were known at the start of the run."""
    position: Position
    """Packets are counted from the start of the run."""
    is_between_packets: bool
    is_exact: bool
    """Whether no limit of memory was reached, and no secret was found."""
    most_buffered: int
    most_waiting: int
    """Most bytes of streams, and of messages, that waited at a time."""
    blocks: list[BlockResult] = field(default_factory=list)


class PairFilter:
    """Divides the packets of a run: those to dissect, and those of unknown connections."""

    def __init__(self, reader: FrameReader, known: UInt64, unknown: UInt64, *, is_first: bool):
        """`known`: pairs in the normal state. `unknown`: other pairs before the run."""
        self._flows = reader.streams.flows
        self._known = np.sort(known)
        self._unknown = np.sort(unknown)
        self._is_first = is_first
        self._kept_bytes = 0
        self.reopened: list[UInt64] = []
        """Known pairs with a SYN in the run."""

    @property
    def unknown(self) -> UInt64:
        """The pairs whose packets are not dissected."""
        return self._unknown

    def divide(self, block: PacketBlock) -> tuple[PacketBlock, PacketBlock | None]:
        """The packets to dissect, and the others, in memory of their own; None: too many bytes."""
        latest = block.latest
        kept: PacketBlock | None = replace(PacketBlock.empty(0), until=latest)
        if self._is_first or not len(block):
            return block, kept
        key, code, first = self._flows.pair_keys(block)
        syn = block.flags & SYN != 0
        reopened = key[np.unique(code[syn])]
        self.reopened.append(reopened[_isin(reopened, self._known)])
        is_unknown = _isin(key, self._unknown)
        is_new = ~is_unknown & (self._flows.find(key) < 0) & ~syn[first]
        if is_new.any():
            self._unknown = np.sort(np.concatenate([self._unknown, key[is_new]]))
            is_unknown |= is_new
        if not is_unknown.any():
            return block, kept
        is_kept = is_unknown[code]
        self._kept_bytes += int(block.captured[is_kept].sum(dtype=np.int64))
        if self._kept_bytes > KEPT_BYTES:
            kept = None
        else:
            kept = replace(compact(chosen(block, is_kept)), until=latest)
        return replace(chosen(block, ~is_kept), until=latest), kept


def _isin(keys: UInt64, known: UInt64) -> Bools:
    """Whether each key is in the sorted array `known`."""
    if not len(known):
        return np.zeros(len(keys), np.bool_)
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    is_in: Bools = known[at] == keys
    return is_in


def dissect(
    run: AnyRun, warm_up: AnyRun | None, make: Make, names: Sequence[str], block_bytes: int,
    brokers: Collection[Broker], hash_key: UInt64, file: RowFile,
) -> RunResult:  # fmt: skip
    """Dissect a run, and write its rows to `file`.

    `brokers`: known addresses. `hash_key`: of the parent's pairs of endpoints.
    """
    reader, builder = make()
    reader.streams.flows.hash_key = hash_key
    reader.learn_brokers(brokers)
    if warm_up is not None:
        _warm_up(warm_up, reader, builder, names, block_bytes)
    rows, others = _select(reader, builder)
    flows = reader.streams.flows
    known, unknown = flows.keys(rows), flows.keys(others)
    reader.streams.remove(others)
    builder.remove(others)
    _clear(reader, builder)
    border = take_border(reader, builder, rows)
    reader.streams.forget_brokers()  # those that were guessed
    reader.learn_brokers({*brokers, *reader.streams.servers(rows)})
    brokers_before = set(reader.streams.brokers)
    pairs = PairFilter(reader, known, unknown, is_first=run.is_first)
    dissection = _Dissection(reader, builder, pairs, file)
    source = opened(names, run, block_bytes)
    try:
        while (block := source.read(FRONT)) is not None:
            dissection.feed(block)
            del block  # so that its memory is free for the next one
    finally:
        source.close()
    return dissection.result(rows, border, brokers_before, source)


def _warm_up(
    run: AnyRun, reader: FrameReader, builder: TableBuilder, names: Sequence[str], block_bytes: int
) -> None:
    """Feed the packets before a run; their numbers are 0 and less."""
    reader.streams.guess(True)
    source = opened(names, run, block_bytes)
    blocks = []
    while (block := source.read(FRONT)) is not None:
        blocks.append(block)
    source.close()
    for block in blocks:
        block = replace(block, number=block.number - source.packets, problems=[])
        for _ in builder.rows(reader.feed(with_room(block, reader.streams.reserve))):
            pass
    reader.streams.guess(False)


def _select(reader: FrameReader, builder: TableBuilder) -> tuple[Int64, Int64]:
    """The connections that go on into the run, and the others."""
    streams = reader.streams
    builder.drop_responses()  # their requests are before the bytes that were read
    rows = streams.connections.in_use
    is_chosen = is_normal(streams.connections, streams.states, rows)
    is_chosen &= streams.flows.find(streams.flows.keys(rows)) == rows
    return rows[is_chosen], rows[~is_chosen]


def _clear(reader: FrameReader, builder: TableBuilder) -> None:
    """Set all counts of the table `connections` to 0."""
    table = reader.streams.connections
    for name in ("packets", "bytes", "retransmitted", "out_of_order", "lost", "cut"):
        getattr(table, name)[:] = 0
    builder.connections.clear_counts()
    if reader.streams.round_trips is not None:
        reader.streams.round_trips.clear_samples()


class _Dissection:
    """A run while it is read."""

    def __init__(
        self, reader: FrameReader, builder: TableBuilder, pairs: PairFilter, file: RowFile
    ) -> None:
        self._reader = reader
        self._builder = builder
        self._pairs = pairs
        self._file = file
        self._blocks: list[BlockResult] = []
        self._troubled: set[int] = set()
        self._is_exact = True
        self._most_buffered = self._most_waiting = 0

    def feed(self, block: PacketBlock) -> None:
        """Dissect a block."""
        reader, builder = self._reader, self._builder
        block, kept = self._pairs.divide(block)
        batch = reader.feed(with_room(block, reader.streams.reserve))
        for frames in batch.frames:
            self._note(frames.problems)
        stored = []
        for rows in builder.rows(batch):
            if len(rows.batch):
                stored.append(self._file.write(rows))
            if rows.table == "problems":
                kinds = rows.batch["kind"].to_pylist()
                self._is_exact &= "memory" not in kinds
        reader.learn_brokers(builder.brokers)
        self._blocks.append(
            BlockResult(
                reader.now, block.packets_seen, block.bytes_read, stored, kept, builder.brokers
            )
        )
        self._most_buffered = max(self._most_buffered, reader.streams.buffered)
        self._most_waiting = max(self._most_waiting, builder.waiting_bytes)

    def _note(self, problems: Sequence[Problem]) -> None:
        """Record the connections with problems."""
        self._troubled |= {
            each.connection_id for each in problems if each.connection_id is not None
        }
        self._is_exact &= all(each.kind != "memory" for each in problems)

    def result(
        self, rows: Int64, border: States, brokers: set[Broker], source: RunSource | TimeSource
    ) -> RunResult:
        """The result, when all blocks are read. `rows`: the connections that were known."""
        streams = self._reader.streams
        in_use = streams.connections.in_use
        all_rows = np.concatenate([rows, np.setdiff1d(in_use, rows)])
        end = take(self._reader, self._builder, all_rows)
        keys = streams.flows.keys(all_rows)
        count = len(rows)
        doubtful = np.isin(rows, list(self._troubled))
        doubtful |= np.isin(keys[:count], np.concatenate([keys[:0], *self._pairs.reopened]))
        doubtful |= np.isin(keys[:count], keys[count:])
        columns = end.streams.streams
        doubtful |= (columns["state"][:count] != FRAMED).any(axis=1)
        gaps = columns["gap_count"][:count] != border.streams.streams["gap_count"]
        doubtful |= gaps.any(axis=1)
        following = end.exchanges.matching[1][:count], border.exchanges.matching[1]
        return RunResult(
            self._builder.names, border, end, self._builder.take_rows(), all_rows, keys,
            streams.flows.find(keys) == all_rows, doubtful,
            following[0][:, 1] != following[1][:, 1], self._pairs.unknown, brokers, source.position,
            source.is_between_packets, self._is_exact and not source.secrets,
            self._most_buffered, self._most_waiting, self._blocks,
        )  # fmt: skip
