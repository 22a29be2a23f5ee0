"""Streams: all of this room, block by block.

What a block leaves open goes into the next one: segments that wait behind a hole, the bytes of
frames that are not whole yet, and those among which a frame is still sought. They are held in a
store of their own; the caller leaves room for them in front of the next block's data (`reserve`),
and of a stream they are put there when they are needed to go on.

Memory has a budget: where more is held, nothing more is waited for in the streams that wait
longest. A quarter of it is for the bytes; the rest is for the copies of them that the store and the
block's data need, and for what later stages keep. Of that quarter half may be what TLS connections
carry, encrypted or not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from dissector.packets.block import Int64, PacketBlock
from dissector.problems import Problem
from dissector.streams.block_problems import BlockProblems
from dissector.streams.bodies import BodyCheck, BodyEnd, unknown_body
from dissector.streams.detection import ProtocolDetector
from dissector.streams.flows import FlowTracker
from dissector.streams.frames import FrameBlock
from dissector.streams.framing import Framer
from dissector.streams.header_evidence import HeaderScorer
from dissector.streams.limits import GRACE
from dissector.streams.named_ports import NamedPorts, Refusal
from dissector.streams.parking import Parking
from dissector.streams.reassembly import Ordered, Reassembler
from dissector.streams.request_evidence import DECISION, Evidence
from dissector.streams.roundtrips import RoundTrips
from dissector.streams.segments import BLOCK, Segments
from dissector.streams.state import CLOSED, States
from dissector.streams.table import (
    ENCRYPTED,
    HEAD,
    KAFKA,
    NEW,
    OPEN,
    SEARCHING,
    UNDECIDED,
    Bools,
    ConnectionTable,
    StreamTable,
)
from dissector.streams.tls_streams import TlsStreams
from dissector.tls import KeyLog, TlsFacts

DEFAULT_MEMORY = 512 << 20
"""Bytes for what is carried from block to block."""

IDLE = 60
"""How much longer an open connection that is silent is remembered than one that is over."""

_SHARE = 4
"""The part of the memory that held bytes may take: they may be in the store, twice the size, and in
front of the next block at the same time."""


class Streams:
    """Turns blocks of packets into blocks of frames.

    `ports`: where brokers listen. `newest`: the newest known version of each API, by key.
    `evidence`: see `weighing`. `body_end`: see `bodies`. `memory`: bytes that
    may be taken for what is carried from block to block; one block's bytes may come on top. `keys`:
    secrets of TLS connections; they may grow. `named`: ports where the user expects Kafka, and
    `refusal`, why something is not a request, explain connections that carry something else.
    """

    def __init__(
        self,
        *,
        ports: Collection[int],
        newest: Mapping[int, int],
        evidence: Evidence = lambda data, size: DECISION,
        body_end: BodyEnd = unknown_body,
        memory: int = DEFAULT_MEMORY,
        keys: KeyLog | None = None,
        named: Collection[int] = (),
        refusal: Refusal = lambda request: "it is not a request",
    ) -> None:
        self.connections = ConnectionTable()
        self._streams = StreamTable()
        self._parking = Parking(self.connections)
        self._flows = FlowTracker(self.connections, self._streams, self._parking.restore)
        self._recent = np.zeros(0, np.int64)  # rows of the last block
        self._states = States(self.connections, self._streams)
        self._reassembler = Reassembler(self.connections, self._streams, self._states)
        self._scorer = HeaderScorer(self.connections, self._streams, ports, newest)
        self._detector = ProtocolDetector(
            self.connections, self._streams, self._states, self._scorer, evidence
        )
        self._bodies = BodyCheck(self.connections, body_end)
        self._framer = Framer(
            self.connections,
            self._streams,
            self._states,
            self._scorer,
            self._detector,
            self._bodies,
        )
        self._decrypting = TlsStreams(
            self.connections, ports, newest, evidence, body_end, self._scorer.brokers,
            keys or KeyLog(), memory // _SHARE // 2,
        )  # fmt: skip
        self._named = NamedPorts(self.connections, named, refusal)
        self.decrypted: list[FrameBlock] = []
        """The frames of TLS connections that the last block completed."""
        self.round_trips: RoundTrips | None = None
        """Set to have them measured."""
        self._budget = memory // _SHARE
        self._now = 0

    @property
    def tls(self) -> Mapping[int, TlsFacts]:
        """What TLS handshakes told, by connection."""
        return self._decrypting.facts

    def learn(self, tls: Mapping[int, TlsFacts], round_trips: RoundTrips | None) -> None:
        """What was learned elsewhere of the connections in the table."""
        self._decrypting.facts.update(tls)
        self.round_trips = round_trips

    @property
    def reserve(self) -> int:
        """Bytes to leave free in front of the next block."""
        return self._framer.carry.bytes

    def learn_broker(self, high: int, low: int, port: int) -> None:
        """An address where a broker listens, as told by another connection."""
        self._scorer.brokers.add((high, low, port))

    def feed(self, block: PacketBlock) -> FrameBlock:
        """The frames that this block completed."""
        if (latest := block.latest) is not None:
            self._now = latest
        return self._feed(block, last=False)

    def over(self, now: int, wait: int) -> Int64:
        """Rows of connections that may be forgotten: of which nothing is held, and nothing has
        come for `wait` ns where they were closed or never spoke, else for `IDLE` times as long."""
        table = self.connections
        rows = table.in_use
        is_over = (table.closed[rows] != OPEN) | table.replaced[rows]
        is_over |= ~table.bytes[rows].any(axis=1)
        silent = now - table.last_time[rows]
        rows = rows[silent > np.where(is_over, wait, IDLE * wait)]
        return rows[~np.isin(rows, self.held)]

    @property
    def held(self) -> Int64:
        """Rows of connections of which bytes wait."""
        held: Int64 = np.unique(self._framer.carry.segments.stream >> 1)
        return np.union1d(held, self._decrypting.held)

    def forget(self, rows: Int64) -> None:
        """Let go of these connections; their rows will serve others."""
        self.connections.forget(rows)
        self._streams.forget(rows)
        self._flows.forget(rows)
        self._decrypting.forget(rows)
        self._detector.forget(rows)
        self._named.forget(rows)
        self._bodies.log.forget(rows)
        if self.round_trips is not None:
            self.round_trips.forget(rows)

    def park(self) -> None:
        """Pack the rows of connections without data that nothing came for in the last block."""
        tables = [self.connections, self._streams]
        if self.round_trips is not None:
            tables.append(self.round_trips.table)
        self._parking.park(tables, self._recent)

    def restore(self, rows: Int64) -> None:
        """Have these rows in the connection table, to read them."""
        self._parking.restore(rows)

    def not_kafka(self, rows: Int64) -> list[Problem]:
        """A problem for each of these connections that goes to a named port and is not Kafka."""
        return self._named.problems(rows, self._decrypting.reported)

    def finish(self) -> FrameBlock:
        """What is left at the end of the capture: holes are given up, cut frames given out."""
        return self._feed(PacketBlock.empty(self.reserve), last=True)

    def _feed(self, block: PacketBlock, *, last: bool) -> FrameBlock:
        streams, held = self._streams, self._framer.carry.segments
        block_problems = BlockProblems(self.connections, self._streams)
        assignment = self._flows.assign(block, np.unique(held.stream >> 1))
        if self.round_trips is not None:
            self.round_trips.feed(block, assignment)
        self._recent = assignment.rows
        stream_ids = assignment.streams
        give_up = (streams.flat("close_deadline")[stream_ids] < self._now) | last
        give_up[np.searchsorted(stream_ids, self._beyond_budget(block_problems))] = True
        self._detector.identify_sides(assignment.rows)
        slot = replace(held, stream=np.searchsorted(stream_ids, held.stream))
        ordered = self._reassembler.feed(block, assignment, slot, self._now, give_up)
        block_problems.set_segments(stream_ids, ordered.ready)
        self._report_gaps(block_problems, ordered)
        if last:
            self._report_cuts(block_problems)
            self._report_skipped(block_problems, stream_ids)
        ready = ordered.ready
        waits = self._waits(stream_ids, ordered.waiting)
        finished = give_up | self._ended(stream_ids, waits)
        frames, left = self._framer.walk(
            block.data, stream_ids, ready, finished, waits, block_problems
        )
        self._named.keep_first_bytes(block.data, stream_ids, ready)
        is_passed_on = streams.flat("state")[stream_ids] == ENCRYPTED
        passed_on, encrypted = stream_ids[is_passed_on], is_passed_on[left.stream]
        self._decrypt(block, stream_ids, left[encrypted], last)
        # Nothing of it is held, so that what is sent again is compared with the position alone.
        streams.flat("boundary")[passed_on] = streams.flat("next_position")[passed_on]
        if last:
            block_problems.problems += self.not_kafka(self.connections.in_use)
        self._framer.hold(block.data, stream_ids, left[~encrypted] + ordered.waiting)
        return frames

    def _waits(self, stream_ids: Int64, waiting: Segments) -> Bools:
        """Whether these streams have bytes that cannot be read yet: behind a hole, or because
        earlier ones may still come."""
        waits: Bools = self._streams.flat("state")[stream_ids] == NEW
        waits &= self.connections.bytes.reshape(-1)[stream_ids] > 0
        waits[waiting.stream] = True
        return waits

    def _ended(self, stream_ids: Int64, waits: Bools) -> Bools:
        """Whether these streams came to their end, and what they carry can be decided by now."""
        streams, row = self._streams, stream_ids >> 1
        ended: Bools = streams.flat("next_position")[stream_ids] >= streams.flat("fin")[stream_ids]
        if ended.any():
            # The client's first request may come after the broker's FIN.
            recent = self.connections.last_time[row] > self._now - GRACE
            ended &= ~(recent & (streams.flat("state")[stream_ids] == HEAD))
            # Requests that cannot be read yet may decide what the broker's stream carries.
            of_other_end = np.arange(len(stream_ids)) ^ 1
            ended &= ~(waits[of_other_end] & (streams.protocol[row] == UNDECIDED))
        return ended

    def _decrypt(
        self, block: PacketBlock, stream_ids: Int64, segments: Segments, last: bool
    ) -> None:
        """Hand on what is encrypted, and take what was in it."""
        self._framer.carry.give(block.data, segments[segments.held != BLOCK])
        segments = replace(segments, stream=stream_ids[segments.stream])
        decrypting = self._decrypting
        self.decrypted = list(decrypting.feed(block.data, segments, self._now, last=last))
        left = np.array(decrypting.take_closed(), np.int64)
        self._states.advance(np.concatenate([2 * left, 2 * left + 1]), CLOSED)

    def _beyond_budget(self, block_problems: BlockProblems) -> Int64:
        """The streams that have to let go of what is held of them: those that wait longest."""
        carry = self._framer.carry
        found = carry.oldest(carry.bytes + self._decrypting.size - self._budget)
        block_problems.add_memory(*found)
        return found[0]

    def _report_gaps(self, block_problems: BlockProblems, ordered: Ordered) -> None:
        for kind, detail, gaps in (
            ("lost_bytes", "the capture misses bytes", ordered.lost),
            ("stray", "bytes cannot be of this connection", ordered.stray),
        ):
            for stream, at, length, time in zip(
                gaps.stream.tolist(),
                gaps.at.tolist(),
                gaps.length.tolist(),
                gaps.time.tolist(),
                strict=True,
            ):
                # A position before the stream's first byte is damage, and no place in it.
                offset = at if at >= 0 else None
                block_problems.add("streams", kind, detail, stream, offset, length, time=time)

    def _report_skipped(self, block_problems: BlockProblems, stream_ids: Int64) -> None:
        """Report what Kafka connections carried before they were decided, where no frame was found
        and no byte is held any more."""
        streams = self._streams
        skipped = streams.flat("state") == SEARCHING
        skipped &= streams.flat("boundary") > streams.flat("search_from")
        skipped &= np.repeat(streams.protocol == KAFKA, 2)
        for stream in np.setdiff1d(np.flatnonzero(skipped), stream_ids).tolist():
            since, until = (int(streams.flat(name)[stream]) for name in ("search_from", "boundary"))
            block_problems.add_skipped(stream, since, until - since)

    def _report_cuts(self, block_problems: BlockProblems) -> None:
        """Say once of each stream that its packets were captured in part."""
        cut = self.connections.cut.reshape(-1)
        for stream in np.flatnonzero(cut).tolist():
            block_problems.add(
                "streams", "cut_packets", "the capture holds only the beginning of packets",
                stream, 0, int(cut[stream]), time=int(self.connections.last_time[stream >> 1]),
            )  # fmt: skip
