"""The work of a process: it dissects a run without knowing the runs before it.

Connections that begin in the run, with a SYN, are dissected as in one process. So are connections
that are in the normal state at the start of the run, as far as the bytes before it show
(`states.is_normal`). The packets of all other connections are kept: they are dissected when the
state before the run is known. Most of these connections are idle before the run. Their state is
learned from the kept packets (`Learner`), so that only their first packets in the run are kept.

Rows are written to a file (`rows`), batch by batch. The parent gets a description of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import field, replace
from typing import Any, Final, TypeAlias

import numpy as np

from dissector.arrays import mutable
from dissector.exchanges.topic_names import TopicNames
from dissector.frame_reader import Broker, FrameReader
from dissector.packets.block import SYN, Int64, PacketBlock, UInt64
from dissector.packets.prefetch import FRONT, with_room
from dissector.problems import Problem
from dissector.runs.blocks import chosen, compact, together
from dissector.runs.plan import AnyRun
from dissector.runs.rows import RowFile, StoredRows
from dissector.runs.sources import Position, RunSource
from dissector.runs.states import COUNTS, States, is_normal, put, take
from dissector.streams.connections.pair_index import lookup
from dissector.streams.connections.table import FRAMED, NEVER, Bools
from dissector.tables.builder import TableBuilder

FIRST_PART: Final = 4
"""Connections may continue after each block, and after this fraction of the first one."""
LEAST_PACKETS, LEAST_BYTES = 4_000, 1 << 22
"""Kept packets, and bytes of them, that are worth a comparison of states."""
KEPT_BYTES: Final = 64 << 20
"""Maximum payload of a run that is kept for the parent. The parent reads a larger one again."""
Make: TypeAlias = Callable[[], tuple[FrameReader, TableBuilder]]
"""Returns new stages without a source."""


@mutable
class Border:
    """Connections that are dissected from a place in the run on."""

    rows: Int64
    states: States
    """Their state at this place, as far as it is known."""


@mutable
class KeptPackets:
    """The packets of connections that are not dissected, in a part of a block."""

    end: int
    """Index of the packet after the part."""
    packets: PacketBlock | None
    """With `until`; None: they are not kept."""
    border: Border | None = None
    """The connections that are dissected after this part."""


@mutable
class BlockResult:
    """A block of a run."""

    now: int
    packets: int
    bytes_read: int
    rows: list[StoredRows]
    kept: list[KeptPackets]
    """By part of the block."""
    brokers: list[Broker]
    """Brokers in the responses of this block."""


@mutable
class RunResult:
    """What a process knows about a run, apart from the rows, which are in a file."""

    names: TopicNames
    border: Border
    """The connections that continue at the start of the run."""
    end: States
    """State of the connections at the end of the run; first those of all borders, in order."""
    waiting: dict[str, Any]
    """Rows that wait for responses, by table."""
    rows: Int64
    """Row of each connection of `end`: the `connection_id` of the rows."""
    keys: UInt64
    """Key of the pair of endpoints of each connection of `end`."""
    is_current: Bools
    """Whether the next packets of the pair belong to the connection."""
    is_doubtful: Bools
    """Whether a connection of a border left the normal state, or may have been replaced."""
    reserved: Bools
    """Whether a connection of a border used reserved correlation ids."""
    unknown: UInt64
    """Keys of the pairs of connections that were not dissected."""
    brokers: set[Broker]
    """Brokers that were known at the start of the run."""
    position: Position
    """Packets are counted from the start of the run."""
    is_exact: bool
    """Whether no limit of memory was reached, and no secret was found."""
    most_buffered: int
    most_waiting: int
    """Maximum number of bytes of streams, and of messages, that waited at a time."""
    file_problems: list[Problem]
    without_tcp: Counter[str]
    """See `FrameReader`."""
    blocks: list[BlockResult] = field(default_factory=list)


class Learner:
    """Learns the state of connections from their packets, without rows."""

    def __init__(self, make: Make, reader: FrameReader, builder: TableBuilder) -> None:
        """`reader`, `builder`: the stages of the run, to which connections move."""
        self._reader, self._builder = reader, builder
        self._stages = make()
        self._stages[0].streams.flows.index.key = reader.streams.flows.index.key
        self._stages[0].streams.guess(True)
        names = self._stages[1].names  # of rows that will move
        names.names, names.unresolved = builder.names.names, builder.names.unresolved
        self._waiting: list[PacketBlock] = []

    @property
    def unknown(self) -> UInt64:
        """The pairs of the connections that have not moved."""
        streams = self._stages[0].streams
        return streams.flows.keys(streams.connections.in_use)

    def add(self, packets: PacketBlock) -> None:
        """Add packets that `compact` returned."""
        if len(packets):
            self._waiting.append(packets)

    def move(self) -> Border | None:
        """Learn from the packets that were added, if it is worth it; None if nothing moves."""
        size = sum(len(each.data) for each in self._waiting)
        if sum(map(len, self._waiting)) < LEAST_PACKETS and size < LEAST_BYTES:
            return None
        packets = together(self._waiting)
        self._waiting.clear()
        border = self.learn([packets])
        return border if len(border.rows) else None

    def learn(self, blocks: Iterable[PacketBlock]) -> Border:
        """Learn from packets, and move the connections in the normal state."""
        # What is learned will be verified, so the brokers need not be those of one process.
        self._stages[0].learn_brokers(self._reader.streams.brokers)
        for block in blocks:
            _learn(block, *self._stages)
        before = _select(*self._stages)
        _clear(self._stages[0])
        border = take(*self._stages, before, with_history=False)
        states = take(*self._stages, before)
        table = self._reader.streams.connections
        rows = table.count + np.arange(len(before))
        row_of = np.full(int(before.max(initial=-1)) + 1, NEVER)
        row_of[before] = rows
        keys = self._stages[0].streams.flows.keys(before)
        put(self._reader, self._builder, rows, states, self._stages[1].take_rows(), row_of)
        self._reader.streams.flows.put(keys, rows)
        table.number[rows], table.known = rows, table.count
        for each in (self._stages[0].streams, self._stages[1]):
            each.remove(before)
        return Border(rows, border)


class PairFilter:
    """Divides the packets of a run: those to dissect, and those of unknown connections."""

    def __init__(
        self, reader: FrameReader, border: Border, unknown: UInt64, learner: Learner | None
    ) -> None:
        """`border`: the connections in the normal state before the run. `unknown`: pairs of the
        others. `learner`: None for the first run, in which all connections are known."""
        self._reader = reader
        self._known = np.sort(reader.streams.flows.keys(border.rows))
        # An earlier connection of a known pair may be among the others.
        self.unknown = np.setdiff1d(unknown, self._known)
        """The pairs whose packets are not dissected."""
        self._learner = learner
        self._kept_bytes = 0
        self._first_part = FIRST_PART
        self.reopened: list[UInt64] = []
        """Known pairs with a SYN in the run."""
        self.borders = [border]
        """The connections whose state was learned before the run, and in it."""

    def divide(self, block: PacketBlock) -> tuple[PacketBlock, list[KeptPackets]]:
        """The packets to dissect, and the others, in memory of their own, by part of the block."""
        latest = block.latest
        nothing = [KeptPackets(len(block), replace(PacketBlock.empty(0), until=latest))]
        if self._learner is None or not len(block):
            return block, nothing
        key, code, first = self._reader.streams.flows.pair_keys(block)
        syn = block.flags & SYN != 0
        self._reopen(key[np.unique(code[syn])])
        is_unknown = _isin(key, self.unknown)
        is_new = ~is_unknown & (self._reader.streams.flows.index.find(key) < 0) & ~syn[first]
        if is_new.any():
            self.unknown = np.sort(np.concatenate([self.unknown, key[is_new]]))
            is_unknown |= is_new
        if not is_unknown.any():
            return block, nothing
        is_kept = is_unknown[code]
        kept, begin = [], 0
        for end in sorted({0, len(block) // self._first_part, len(block)}):
            packets = compact(block, is_kept, begin, end)
            self._learner.add(packets)
            self._kept_bytes += int(packets.captured.sum(dtype=np.int64))
            kept.append(KeptPackets(end, packets if self._kept_bytes <= KEPT_BYTES else None))
            if end < len(block) and (border := self._learner.move()):
                self.borders.append(border)
                kept[-1].border = border
                learned = np.sort(self._reader.streams.flows.keys(border.rows))
                self._known = np.sort(np.concatenate([self._known, learned]))
                self.unknown = self.unknown[~_isin(self.unknown, learned)]
                self._reopen(key[np.unique(code[end:][syn[end:]])])
                is_kept[end:] &= ~_isin(key, learned)[code[end:]]
            begin = end
        self._first_part = 1
        return replace(chosen(block, ~is_kept), until=latest), kept

    def _reopen(self, key: UInt64) -> None:
        self.reopened.append(key[_isin(key, self._known)])


def _isin(keys: UInt64, known: UInt64) -> Bools:
    """Whether each key is in the sorted array `known`."""
    return lookup(known, keys)[1]


def dissect(
    run: AnyRun, warm_up: AnyRun | None, make: Make, names: Sequence[str], block_bytes: int,
    brokers: Collection[Broker], hash_key: UInt64, file: RowFile, *, is_first: bool,
) -> RunResult:  # fmt: skip
    """Dissect a run, and write its rows to `file`.

    `warm_up`: the packets before it. `brokers`: known addresses. `hash_key`: of the parent's pairs
    of endpoints. `is_first`: no run is before it.
    """
    reader, builder = make()
    reader.streams.flows.index.key = hash_key
    reader.learn_brokers(brokers)
    learner = Learner(make, reader, builder)
    before = [] if warm_up is None else _packets_before(warm_up, names, block_bytes)
    border = learner.learn(before)
    del before
    reader.learn_brokers(reader.streams.detector.servers(border.rows))
    brokers_before = set(reader.streams.brokers)
    pairs = PairFilter(reader, border, learner.unknown, None if is_first else learner)
    dissection = _Dissection(reader, builder, pairs, file)
    source = RunSource(names, run, block_bytes)
    try:
        while (block := source.read(FRONT)) is not None:
            dissection.feed(block)
            del block  # so that its memory is free for the next one
    finally:
        source.close()
    return dissection.result(brokers_before, source)


def _packets_before(run: AnyRun, names: Sequence[str], block_bytes: int) -> list[PacketBlock]:
    """The packets of a range before a run; their numbers are 0 and less."""
    source = RunSource(names, run, block_bytes)
    blocks = []
    while (block := source.read(FRONT)) is not None:
        blocks.append(block)
    source.close()
    return [replace(each, number=each.number - source.packets, problems=[]) for each in blocks]


def _learn(block: PacketBlock, reader: FrameReader, builder: TableBuilder) -> None:
    """Feed packets, and make no rows."""
    builder.learn(reader.feed(with_room(block, reader.streams.reserve)))


def _select(reader: FrameReader, builder: TableBuilder) -> Int64:
    """The connections that continue into the run."""
    streams = reader.streams
    builder.correlator.drop_responses()  # their requests are before the bytes that were read
    rows = streams.connections.in_use
    is_chosen = is_normal(streams.connections, streams.states, rows)
    is_chosen &= streams.flows.index.find(streams.flows.keys(rows)) == rows
    # Kafka responds in order: once a request has its response, no earlier one waits.
    states = builder.correlator.take(rows)
    has_answer = np.isin(np.arange(len(rows)), states.answers[0])
    is_chosen &= has_answer | (states.columns["last_answered"] > 0)
    return rows[is_chosen]


def _clear(reader: FrameReader) -> None:
    """Set all counts of the table `connections` to 0."""
    table = reader.streams.connections
    for name in COUNTS:
        getattr(table, name)[:] = 0
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

    def result(self, brokers: set[Broker], source: RunSource) -> RunResult:
        """The result, when all blocks are read. `brokers`: at the start of the run."""
        streams = self._reader.streams
        borders = self._pairs.borders
        rows = np.concatenate([each.rows for each in borders])
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
        gaps = [each.states.streams.streams["gap_count"] for each in borders]
        doubtful |= (columns["gap_count"][:count] != np.concatenate(gaps)).any(axis=1)
        next_id = [each.states.exchanges.columns["next_id"][:, 1] for each in borders]
        reserved = end.exchanges.columns["next_id"][:count, 1] != np.concatenate(next_id)
        return RunResult(
            self._builder.names, borders[0], end, self._builder.take_rows(), all_rows, keys,
            streams.flows.index.find(keys) == all_rows, doubtful, reserved, self._pairs.unknown,
            brokers, source.position, self._is_exact and not source.secrets, self._most_buffered,
            self._most_waiting, self._reader.file_problems, self._reader.without_tcp,
            self._blocks,
        )  # fmt: skip
