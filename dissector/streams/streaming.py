"""Streams: the driver of this package, from blocks of packets to blocks of frames.

Pending bytes are carried to the next block: segments after a hole, bytes of incomplete frames, and
bytes that are still searched for a frame. They are in memory of their own. The caller leaves space
for them in front of the next block's data (`reserve`); the bytes of a stream are copied there when
the stream continues.

Memory has a budget. If carried bytes exceed it, the streams with the oldest ones stop waiting. A
quarter of the memory is for carried bytes. The other three quarters are for unused parts of their
chunks, for their copies in the block's data, and for later stages. Half of the quarter may be bytes
of TLS connections, encrypted and decrypted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from dissector.packets.block import Int64, PacketBlock
from dissector.problems import Problem
from dissector.streams.block_problems import BlockProblems
from dissector.streams.connections.flows import Assignment, FlowTracker
from dissector.streams.connections.packet_counts import PacketCounts
from dissector.streams.connections.parking import Parking
from dissector.streams.connections.roundtrips import RoundTrips
from dissector.streams.connections.state import CLOSED
from dissector.streams.connections.table import (
    ENCRYPTED,
    FIN_SEEN,
    HEAD,
    LAST_TIME,
    NEW,
    OPEN,
    Bools,
    ConnectionTable,
    Endpoint,
    Rows,
    streams_at,
)
from dissector.streams.detection.declared import DeclaredConnections
from dissector.streams.detection.named_ports import NamedPorts, Refusal
from dissector.streams.detection.undecided_gaps import UndecidedGaps
from dissector.streams.frames import FrameBlock
from dissector.streams.framing import Framer
from dissector.streams.limits import CLOCK_SKEW
from dissector.streams.reassembly.reassembler import Ordered, Reassembler
from dissector.streams.search.bodies import BodyEnd
from dissector.streams.search.request_evidence import DECISION, Evidence
from dissector.streams.segments import Segments
from dissector.streams.stream_set import StreamSet
from dissector.streams.stream_states import StreamStates
from dissector.streams.tls_streams import TlsStreams
from dissector.tls import KeyLog, TlsFacts

DEFAULT_MEMORY = 512 << 20
"""Bytes of memory for data that is carried from block to block."""

IDLE = 60
"""A silent open connection is kept this many times as long as a closed one."""

PacketObserver: TypeAlias = Callable[[PacketBlock, Assignment, ConnectionTable], None]
"""Called with each block, the streams of its packets, and the connections."""

STREAM_SHARE = 4
"""The reciprocal share of memory for carried bytes: they may be in chunks of twice their size, and
in front of the next block at the same time."""


class Streams:
    """Turns blocks of packets into blocks of frames.

    `ports`: ports of brokers. `newest`: newest known version by API key. `evidence`: see
    `request_evidence`. `body_end`: see `bodies`. `memory`: bytes for data that is carried from
    block to block, in addition to one block. `keys`: secrets of TLS connections; they may grow.
    `named`: ports where the user expects Kafka; `refusal`: see `named_ports`.
    """

    def __init__(
        self,
        *,
        ports: Collection[int],
        newest: Mapping[int, int],
        body_end: BodyEnd,
        evidence: Evidence = lambda data, size: DECISION,
        memory: int = DEFAULT_MEMORY,
        keys: KeyLog | None = None,
        named: Collection[int] = (),
        refusal: Refusal = lambda request: "it is not a request",
    ) -> None:
        self.connections = ConnectionTable()
        self.brokers: set[Endpoint] = set()
        """The known addresses of brokers."""
        self._set, decrypted = (
            StreamSet(self.connections, ports, newest, evidence, body_end, self.brokers)
            for _ in range(2)
        )
        self.states = self._set.streams
        """The state of all streams of packets."""
        self.detector = self._set.detector
        self.parking = Parking(self.connections)
        self._counts = PacketCounts(self.connections, self.states)
        self.flows = FlowTracker(self.connections, self.states, self.parking.restore)
        """The connection of each pair of endpoints."""
        self._recent = np.zeros(0, np.int64)  # rows of the last block
        self._reassembler = Reassembler(self.connections, self.states, self._set.states)
        self.declared = DeclaredConnections(self.connections, self.states, self._set.states)
        self._framer = Framer(self._set)
        self._tls_streams = TlsStreams(
            decrypted, self.states, keys or KeyLog(), memory // STREAM_SHARE // 2
        )
        self._named_ports = NamedPorts(self.connections, named, refusal)
        self._gaps = UndecidedGaps(self.connections)
        self.decrypted: list[FrameBlock] = []
        """The frames of TLS connections that the last block completed."""
        self.round_trips: RoundTrips | None = None
        """Set to have them measured."""
        self.observe: PacketObserver | None = None
        """Set to be called with each block."""
        self._budget = memory // STREAM_SHARE
        self._now = 0

    @property
    def tls(self) -> Mapping[int, TlsFacts]:
        """Facts of the TLS handshakes, by connection."""
        return self._tls_streams.facts

    @property
    def reserve(self) -> int:
        """Bytes to leave free in front of the next block."""
        return self._framer.carry.bytes

    def feed(self, block: PacketBlock) -> FrameBlock:
        """The frames that this block completed."""
        if (latest := block.latest) is not None:
            self._now = latest
        return self._feed(block, last=False)

    def expired(self, now: int, wait: int) -> Int64:
        """Rows of connections that may be forgotten: without carried bytes, and silent for `wait`
        ns if they were closed or never had payload, else for `IDLE` times as long."""
        table = self.connections
        rows = table.in_use
        is_over = (table.closed[rows] != OPEN) | table.replaced[rows]
        is_over |= ~table.bytes[rows].any(axis=1)
        silent = now - table.last_time[rows]
        rows = rows[silent > np.where(is_over, wait, IDLE * wait)]
        return rows[~np.isin(rows, self.held)]

    @property
    def held(self) -> Int64:
        """Rows of connections with carried bytes."""
        held: Int64 = np.unique(self._framer.carry.segments.stream >> 1)
        return np.union1d(held, self._tls_streams.held)

    @property
    def are_half_closed(self) -> Bools:
        """Whether each connection was closed by one end only, although the capture has both."""
        table, count = self.connections, self.connections.count
        has_fin = self.states.fin[: 2 * count].reshape(-1, 2) != LAST_TIME
        are_half_closed: Bools = (table.closed[:count] == FIN_SEEN) & ~table.replaced[:count]
        are_half_closed &= ~has_fin.all(axis=1) & (table.packets[:count] > 0).all(axis=1)
        return are_half_closed

    @property
    def client_held_since(self) -> Int64:
        """By connection: when the first carried byte of its client arrived, in ns; LAST_TIME if the
        client has none."""
        since = np.full(self.connections.count, LAST_TIME)
        carried = self._framer.carry.segments
        carried = carried[self.connections.is_client(carried.stream)]
        np.minimum.at(since, carried.stream >> 1, carried.time)
        return since

    def forget(self, rows: Int64) -> None:
        """Drop the state of these connections; their rows will be reused."""
        self.connections.forget(rows)
        self._forget(rows)

    def _forget(self, rows: Int64) -> None:
        self._set.forget(rows)
        self.flows.forget(rows)
        self._tls_streams.forget(rows)
        self._named_ports.forget(rows)
        self._gaps.forget(rows)
        if self.round_trips is not None:
            self.round_trips.forget(rows)

    def end(self, rows: Int64, deadline: Int64) -> None:
        """Record that later connections use the pairs of these ones. They wait for missing bytes
        until `deadline`, ns."""
        self.connections.replaced[rows] = True
        stream = streams_at(rows)
        column = self.states.close_deadline
        column[stream] = np.minimum(column[stream], np.repeat(deadline, 2))

    def guess(self, is_guessing: bool) -> None:
        """Let streams begin with their first bytes, and requests decide that are not refuted, for
        states that will be verified; or not."""
        self._reassembler.is_guessing = self.detector.candidates.is_guessing = is_guessing

    @property
    def buffered(self) -> int:
        """Bytes that are carried to the next block."""
        return self._framer.carry.bytes + self._tls_streams.size

    def take(self, rows: Int64, *, with_history: bool = True) -> StreamStates:
        """A copy of the state of these connections; `put` adds it to another object.

        `with_history`: with earlier requests, and samples of round trips.
        """
        of_history = rows if with_history else rows[:0]
        return StreamStates(
            self.connections.take(rows),
            self.states.take(rows),
            self._framer.carry.take(rows),
            self.detector.candidates.take(rows),
            self._set.bodies.log.take(of_history),
            self._tls_streams.take(rows),
            self._named_ports.take(rows),
            self._gaps.take(rows),
            None
            if self.round_trips is None
            else self.round_trips.take(rows, with_samples=with_history),
        )

    def put(self, rows: Int64, states: StreamStates) -> None:
        """Set the state of connections. `rows`: the row of each one.

        The pairs of their endpoints are not changed: see `FlowTracker.put`.
        """
        self.connections.put(rows, states.connections)
        self.states.put(rows, states.streams)
        self._framer.carry.put(rows, states.carried)
        self.detector.candidates.put(rows, states.rejected)
        self._set.bodies.log.put(rows, states.requests)
        self._tls_streams.put(rows, states.tls)
        self._named_ports.put(rows, states.first_bytes)
        self._gaps.put(rows, states.gaps)
        if self.round_trips is not None and states.round_trips is not None:
            self.round_trips.put(rows, states.round_trips)

    def remove(self, rows: Int64) -> None:
        """Drop these connections, as if no packet of them had been seen."""
        self.discard(rows)
        Rows.forget(self.connections, rows)  # their rows are not used again
        self._forget(rows)

    def discard(self, rows: Int64) -> None:
        """Drop carried bytes of these connections, whose state will be put."""
        self._framer.carry.discard(rows)

    def park(self) -> None:
        """Pack the rows of connections without data that had no packet in the last block."""
        tables = [self.connections, self.states]
        if self.round_trips is not None:
            tables.append(self.round_trips.table)
        self.parking.park(tables, self._recent)

    def last_problems(self, rows: Int64) -> list[Problem]:
        """The problems of these connections that are reported at their end: a named port that is
        not Kafka, and gaps without a known protocol."""
        tls_streams = self._tls_streams
        named = self._named_ports.problems(rows, tls_streams.reported, tls_streams.facts)
        return named + self._gaps.undecided(rows)

    def finish(self) -> FrameBlock:
        """End the capture: holes are given up, and incomplete frames returned."""
        return self._feed(PacketBlock.empty(self.reserve), last=True)

    def _feed(self, block: PacketBlock, *, last: bool) -> FrameBlock:
        streams, carried = self.states, self._framer.carry.segments
        block_problems = BlockProblems(self.connections, self.states)
        assignment = self.flows.assign(block, np.unique(carried.stream >> 1))
        if len(block):
            self._counts.count(block, assignment)
        if self.round_trips is not None:
            self.round_trips.feed(block, assignment)
        if self.observe is not None:
            self.observe(block, assignment, self.connections)
        self._recent = assignment.rows
        stream_ids = assignment.streams
        give_up = (streams.close_deadline[stream_ids] < self._now) | last
        give_up[np.searchsorted(stream_ids, self._beyond_budget(block_problems))] = True
        self.declared.decide(assignment.rows)
        self.detector.identify_sides(assignment.rows)
        carried = replace(carried, stream=np.searchsorted(stream_ids, carried.stream))
        ordered = self._reassembler.feed(block, assignment, carried, self._now, give_up)
        if last:
            ordered = replace(ordered, lost=ordered.lost + self._reassembler.lost_ends(self._now))
        block_problems.set_segments(stream_ids, ordered.ready)
        gaps = self._found_gaps(block_problems, ordered)
        if last:
            self._report_cuts(block_problems)
            block_problems.add_skipped_ends(stream_ids)
        ready = ordered.ready
        waits = self._waits(stream_ids, ordered.waiting)
        finished = give_up | self._ended(stream_ids, waits)
        due, undue = self._framer.due(block.data, block.reserve, stream_ids, ready, finished)
        frames, left = self._framer.walk(
            block.data, stream_ids, due, finished, waits, block_problems
        )
        self._named_ports.keep_first_bytes(block.data, stream_ids, due)
        left += undue
        is_encrypted = streams.state[stream_ids] == ENCRYPTED
        encrypted, to_decrypt = stream_ids[is_encrypted], is_encrypted[left.stream]
        waiting = ordered.waiting.stream
        self._decrypt(block, stream_ids, left[to_decrypt], stream_ids[waiting] >> 1, last)
        # No encrypted byte is carried: retransmissions are recognised by their positions alone.
        streams.boundary[encrypted] = streams.next_position[encrypted]
        block_problems.problems += self._gaps.decided(gaps)
        if last:
            block_problems.problems += self.last_problems(self.connections.in_use)
        self._framer.hold(block.data, stream_ids, left[~to_decrypt] + ordered.waiting)
        return frames

    def _waits(self, stream_ids: Int64, waiting: Segments) -> Bools:
        """Whether these streams have bytes that cannot be read yet: after a hole, or because
        earlier bytes may still arrive."""
        waits: Bools = self.states.state[stream_ids] == NEW
        waits &= self.connections.has_bytes(stream_ids)
        waits[waiting.stream] = True
        return waits

    def _ended(self, stream_ids: Int64, waits: Bools) -> Bools:
        """Whether these streams have ended, and their protocol can be decided."""
        streams, row = self.states, stream_ids >> 1
        # Bytes after a FIN show that it was damaged (RFC 9293, section 3.6).
        ended: Bools = streams.next_position[stream_ids] == streams.fin[stream_ids]
        if ended.any():
            # The first request may arrive after the FIN of a broker whose clock is behind.
            recent = self.connections.last_time[row] > self._now - CLOCK_SKEW
            ended &= ~(recent & (streams.state[stream_ids] == HEAD))
            # Requests that cannot be read yet may decide the protocol of the broker's stream, and
            # show which responses it has.
            ended &= ~waits[np.arange(len(stream_ids)) ^ 1]
        return ended

    def _decrypt(
        self, block: PacketBlock, stream_ids: Int64, segments: Segments, waiting: Int64, last: bool
    ) -> None:
        """Pass encrypted segments to the decryption, and take its frames. `waiting`: connections
        whose later segments wait after a hole."""
        segments = self._framer.load(block.data, segments)
        segments = replace(segments, stream=stream_ids[segments.stream])
        tls_streams = self._tls_streams
        self.decrypted = tls_streams.feed(block.data, segments, self._now, waiting, last=last)
        closed, tls_streams.closed = np.array(tls_streams.closed, np.int64), []
        self._set.states.advance(streams_at(closed), CLOSED)

    def _beyond_budget(self, block_problems: BlockProblems) -> Int64:
        """The streams that must stop waiting: those with the oldest carried bytes."""
        evicted = self._framer.carry.oldest(self.buffered - self._budget)
        block_problems.add_memory(*evicted)
        return evicted[0]

    def _found_gaps(self, block_problems: BlockProblems, ordered: Ordered) -> list[Problem]:
        """A problem for each gap."""
        problems = []
        for kind, detail, gaps in (
            ("lost_bytes", "bytes are missing from the capture", ordered.lost),
            ("stray", "bytes do not belong to this connection", ordered.stray),
        ):
            columns = gaps.stream, gaps.at, gaps.length, gaps.time
            for stream, at, length, time in np.transpose(columns).tolist():
                # A position before the stream's first byte comes from a damaged packet.
                offset = at if at >= 0 else None
                block_problems.add("streams", kind, detail, stream, offset, length, time=time)
                problems.append(block_problems.problems.pop())
        return problems

    def _report_cuts(self, block_problems: BlockProblems) -> None:
        """Report each stream with truncated packets once."""
        cut = self.connections.cut.reshape(-1)
        for stream in np.flatnonzero(cut).tolist():
            block_problems.add(
                "streams", "cut_packets", "the capture contains only the first bytes of packets",
                stream, 0, int(cut[stream]), time=int(self.connections.last_time[stream >> 1]),
            )  # fmt: skip
