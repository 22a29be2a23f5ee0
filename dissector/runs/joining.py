"""The work of the parent: it joins the runs, in order, to the rows of one process.

The parent has the exact state of all connections at the border. A connection that continues into
the run (`states.continues`) takes its state from there. The parent dissects the packets of the
others from the exact state: those that the process of the run kept, and those of connections that
do not continue, which are read again. If nothing is certain, the parent reads the whole run.

Rows of a block are in order of time and connection, for any number of runs. A connection has the
number of its first packet among those of the capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from typing import Any

import numpy as np

from dissector.arrays import mutable
from dissector.frame_reader import Broker, FrameReader
from dissector.packets.block import Int64, PacketBlock, UInt64
from dissector.packets.layers.fragments import Fragments
from dissector.packets.prefetch import with_room
from dissector.runs.blocks import compact, together
from dissector.runs.joined import DROPPED, Joined
from dissector.runs.plan import AnyRun, TimeRun
from dissector.runs.sources import Position, RunSource
from dissector.runs.states import States, continues, is_normal, join, put, shift_packets, take
from dissector.runs.worker import Border, RunResult
from dissector.streams.connections.table import NEVER, Bools
from dissector.streams.limits import GRACE, PATIENCE
from dissector.tables.builder import TableBuilder, TableRows

FEED_PACKETS, FEED_BYTES = 50_000, 1 << 24
"""Packets, and bytes of them, that the parent dissects at a time: a block has fixed costs."""


@mutable
class Counts:
    """Runs, and connections at their borders, for tests and reports."""

    runs: int = 0
    whole: int = 0
    """Runs that the parent read as a whole."""
    reread: int = 0
    """Runs that the parent read again for some connections."""
    continued: int = 0
    """Connections that went on into a run."""
    repeated: int = 0
    """Connections that were dissected again."""


@mutable
class Continued:
    """Connections that continue after a border."""

    index: Int64
    """Their index among the connections of the run's end."""
    left: States
    border: States
    """Their state at the border: that of the parent, and as the run has learned it."""


@mutable
class Verdict:
    """What the parent takes over from a run; arrays by connection of its end."""

    row: Int64
    """Row of each connection in the tables of the parent; -1: its rows are dropped."""
    again: UInt64
    """Keys of the pairs to dissect again."""
    replaced: Int64
    """Row of the connection that ends since its pair is used again; -1 if there is none."""
    begins: Bools
    """Whether the connection begins in the run."""
    unknown: UInt64
    """Keys of the pairs whose packets in the next part of the run are kept."""
    continued: list[Continued] = field(default_factory=list)
    row_of: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """Row in the parent by `connection_id` in the run; `DROPPED`; NEVER after the last one."""


class Joiner:
    """The stages of the parent, with the exact state of all connections."""

    def __init__(
        self, reader: FrameReader, builder: TableBuilder, block_bytes: int, limits: tuple[int, int],
        progress: Callable[[int, int], None],
    ) -> None:  # fmt: skip
        """`limits`: bytes of streams, and of messages, that may wait in one process."""
        self._reader = reader
        self._builder = builder
        self._streams = reader.streams
        self._table = reader.streams.connections
        self._block_bytes = block_bytes
        self._limits = limits
        self._progress = progress
        self._position = Position(None, Fragments())
        self._packets_earlier = 0
        self._secrets: list[bytes] = getattr(reader.source, "secrets", [])
        self.counts = Counts()

    # A whole run

    def read(self, run: AnyRun) -> Iterator[TableRows]:
        """Dissect a run in this process."""
        source = RunSource(
            self._reader.captures, run, self._block_bytes, self._position, self._secrets
        )
        try:
            while (block := source.read(self._streams.reserve)) is not None:
                batch = self._reader.feed(block)
                self._progress(block.packets_seen, block.bytes_read)
                del block
                yield from self._builder.rows(batch)
                self._reader.learn_brokers(self._builder.brokers)
        finally:
            source.close()
        self._packets_earlier = source.packets
        self._position = source.position

    def finish(self) -> Iterator[TableRows]:
        """The rows that are completed at the end."""
        yield from self._builder.rows(self._reader.finish())

    # A run that was dissected by another process

    def join(self, run: AnyRun, result: RunResult) -> Joined:
        """What to do with the rows of a run. The state after it is known when the rows of the
        parent have been taken."""
        self.counts.runs += 1
        self._builder.names.names.update(result.names.names)
        self._builder.names.unresolved.update(result.names.unresolved)
        if not self._may_join(run, result):
            self.counts.whole += 1
            return Joined([rows] for rows in self.read(run))
        before, earlier = self._position.packets, self._packets_earlier
        parts = [part for block in result.blocks for part in block.kept]
        borders = [result.border, *(part.border for part in parts if part.border)]
        for states in (*(border.states for border in borders), result.end):
            shift_packets(states, before, earlier)
        verdict = self._compare(result)
        own = self._dissect_again(run, result, verdict)
        self._take_over(result, verdict)
        self._reader.file_problems += result.file_problems
        self._reader.without_tcp.update(result.without_tcp)
        for block in result.blocks:
            self._progress(block.packets, block.bytes_read)
        self._position = _behind(result.position, before)
        self._packets_earlier = before + sum(block.packets for block in result.blocks)
        blocks = [block.rows for block in result.blocks]
        return Joined(own, blocks, verdict.row_of, before, earlier)

    def _may_join(self, run: AnyRun, result: RunResult) -> bool:
        """Whether the run is exact apart from single connections."""
        files = run.files if isinstance(run, TimeRun) else ()
        has_all = {*self._position.pending} <= {*files}
        has_memory = self._streams.buffered + result.most_buffered <= self._limits[0]
        has_memory &= self._builder.waiting_bytes + result.most_waiting <= self._limits[1]
        in_order = not result.blocks or self._reader.now <= result.blocks[0].now
        is_exact = result.is_exact and not self._secrets  # which the other processes do not have
        return has_all and self._position.is_certain and is_exact and has_memory and in_order

    def _compare(self, result: RunResult) -> Verdict:
        """Find the connections that continue, those that begin, and those to dissect again."""
        count = len(result.is_doubtful)
        row = np.full(len(result.rows), NEVER)
        present = self._streams.flows.index.find(result.keys)
        replaced, is_clear = self._replaced(result, present, count)
        begins = np.ones(len(row), np.bool_)
        begins[:count] = False
        begins[count:] &= is_clear
        begins &= ~self._depends_on_brokers(result)
        is_again = np.concatenate([result.is_doubtful, ~begins[count:]])
        again = np.unique(result.keys[is_again])
        later = result.keys[len(result.border.rows) : count]
        verdict = Verdict(row, again, replaced, begins, np.union1d(result.unknown, later))
        self._go_on(result, result.border, 0, verdict)
        begins &= ~np.isin(result.keys, verdict.again)
        return verdict

    def _go_on(self, result: RunResult, border: Border, first: int, verdict: Verdict) -> None:
        """Compare the state at a border, whose connections are those of the end from `first` on,
        with that of the parent. Drop what waits in the connections that continue."""
        index = first + np.arange(len(border.rows))
        keys = result.keys[index]
        present = self._streams.flows.index.find(keys)
        goes_on = np.flatnonzero((present >= 0) & ~np.isin(keys, verdict.again))
        goes_on = goes_on[is_normal(self._table, self._streams.states, present[goes_on])]
        left = take(self._reader, self._builder, present[goes_on], with_history=False)
        states = border.states.select(goes_on)
        same = np.flatnonzero(continues(left, states, result.reserved[index[goes_on]]))
        goes_on = goes_on[same]
        verdict.continued.append(Continued(index[goes_on], left.select(same), states.select(same)))
        verdict.row[index[goes_on]] = rows = present[goes_on]
        verdict.again = np.union1d(verdict.again, np.delete(keys, goes_on))
        verdict.unknown = np.setdiff1d(verdict.unknown, keys)
        self._streams.discard(rows)
        self._builder.discard(rows)

    def _replaced(self, result: RunResult, present: Int64, count: int) -> tuple[Int64, Bools]:
        """The connections whose pairs are used again by new connections, -1 for none; and whether
        each new connection certainly began after them."""
        replaced = present.copy()
        replaced[:count] = NEVER
        old = present[count:]
        is_clear = old < 0
        reused = np.flatnonzero(~is_clear)
        rows, new = old[reused], count + reused
        table, end = self._table, result.end.table
        silent = end["first_time"][new] - table.last_time[rows] > PATIENCE
        isn = table.isn[rows], end["isn"][new]
        silent &= ((isn[0] != NEVER) & (isn[0] != isn[1])).any(axis=1)
        silent &= ~np.isin(rows, self._streams.held)
        silent &= ~np.isin(rows, self._builder.correlator.pending_connections)
        is_clear[reused] = silent
        return replaced, is_clear

    def _depends_on_brokers(self, result: RunResult) -> Bools:
        """Whether other known addresses of brokers may change what each connection is taken for."""
        known = self._streams.brokers
        missing = _has_end(result.end.table, known - result.brokers)
        wrong = _has_end(result.end.table, result.brokers - known)
        return wrong | (missing & result.end.streams.streams["was_undecided"])

    def _dissect_again(
        self, run: AnyRun, result: RunResult, verdict: Verdict
    ) -> list[list[TableRows]]:
        """The rows, by block, of the connections that the run does not have."""
        self._first_new = self._table.count
        own: list[list[TableRows]] = []
        waiting: list[PacketBlock] = []
        count = len(result.border.rows)
        parts = self._packets(run, result, verdict)
        for block in result.blocks:
            own.append([])
            for part in block.kept:
                waiting.append(next(parts))
                size = sum(len(each.data) for each in waiting)
                is_full = size > FEED_BYTES or sum(map(len, waiting)) > FEED_PACKETS
                # Which state of a topic is new depends on the order of the rows.
                is_full |= "topics" in self._builder.wanted
                if is_full or part.border or block is result.blocks[-1]:
                    if self._is_due(waiting):
                        own[-1] += self._fed(together(waiting))
                    waiting.clear()
                if part.border:
                    self._go_on(result, part.border, count, verdict)
                    count += len(part.border.rows)
            self._reader.now = block.now
            self._reader.learn_brokers(block.brokers)
        self.counts.continued += sum(len(each.index) for each in verdict.continued)
        self.counts.repeated += len(verdict.again)
        return own

    def _is_due(self, blocks: list[PacketBlock]) -> bool:
        """Whether there is something to dissect, or something that waits."""
        waits = len(self._builder.correlator.pending_connections) or len(self._streams.held)
        return bool(any(map(len, blocks)) or waits)

    def _fed(self, packets: PacketBlock) -> list[TableRows]:
        batch = self._reader.feed(with_room(packets, self._streams.reserve))
        rows = [each for each in self._builder.rows(batch) if len(each.batch)]
        self._reader.learn_brokers(self._builder.brokers)
        return rows

    def _packets(self, run: AnyRun, result: RunResult, verdict: Verdict) -> Iterator[PacketBlock]:
        """The packets to dissect, by part of a block. The run is read again if they are not kept;
        `verdict` may change in between."""
        before, done = self._position.packets, 0
        source: RunSource | None = None
        try:
            for number, block in enumerate(result.blocks):
                packets: PacketBlock | None = None
                begin = 0
                for part in block.kept:
                    if part.packets is not None and not len(verdict.again) and source is None:
                        yield replace(part.packets, number=part.packets.number + before)
                    else:
                        if source is None:
                            self.counts.reread += 1
                            source = RunSource(
                                self._reader.captures, run, self._block_bytes, self._position
                            )
                        while done <= number:
                            packets, done = source.read(0), done + 1
                        assert packets is not None
                        yield self._part(packets, begin, part.end, verdict)
                    begin = part.end
        finally:
            if source is not None:
                source.close()

    def _part(self, block: PacketBlock, begin: int, end: int, verdict: Verdict) -> PacketBlock:
        """The packets to dissect in a part of a block."""
        is_chosen = np.zeros(len(block), np.bool_)
        if len(block):
            key, code, _ = self._streams.flows.pair_keys(block)
            keys = np.concatenate([verdict.again, verdict.unknown])
            is_chosen = np.isin(key, keys)[code]
        return compact(block, is_chosen, begin, end)

    def _take_over(self, result: RunResult, verdict: Verdict) -> None:
        """Set the state of the connections that continue, and add those that begin."""
        for each in verdict.continued:
            join(each.left, each.border, result.end, each.index)
        new = np.flatnonzero(verdict.begins)
        verdict.row[new] = self._table.count + np.arange(len(new))
        verdict.row_of = np.full(int(result.rows.max(initial=-1)) + 2, DROPPED)
        verdict.row_of[result.rows] = np.where(verdict.row < 0, DROPPED, verdict.row)
        verdict.row_of[-1] = NEVER
        first = new[verdict.replaced[new] >= 0]
        if len(first):
            deadline = result.end.table["first_time"][first] + GRACE
            self._streams.end(verdict.replaced[first], deadline)
        put(self._reader, self._builder, verdict.row, result.end, result.waiting, verdict.row_of)
        current = new[result.is_current[new]]
        self._streams.flows.put(result.keys[current], verdict.row[current])
        self._number(len(new))

    def _number(self, count: int) -> None:
        """Number the new connections by their first packets; the last `count` are of the run.

        Both parts are in order. Packets of several files are in order of time; each counts as no
        earlier than the packets before it.
        """
        table = self._table
        begun = np.arange(self._first_new, table.count)
        own, new = np.split(table.first_time[begun], [len(begun) - count])
        time = np.concatenate([np.maximum.accumulate(own), np.maximum.accumulate(new)])
        capture = table.capture[begun]
        if len(begun) and (capture == capture[0]).all():
            time[:] = 0
        order = np.lexsort((table.packet[begun], capture, time))
        table.number[begun[order]] = begun
        table.known = table.count


def _has_end(table: dict[str, Any], addresses: set[Broker]) -> Bools:
    """Whether an end of each connection has one of these addresses and ports."""
    has_end = np.zeros(len(table["port"]), np.bool_)
    for high, low, port in addresses:
        same = (table["port"] == port) & (table["low"] == np.uint64(low))
        has_end |= (same & (table["high"] == np.uint64(high))).any(axis=1)
    return has_end


def _behind(position: Position, packets: int) -> Position:
    """A position of a source that counted from 0, after this number of packets."""
    position.fragments.renumber(packets)
    if position.reader is None:
        return position
    reader = replace(position.reader, packets=position.reader.packets + packets)
    return replace(position, reader=reader)
