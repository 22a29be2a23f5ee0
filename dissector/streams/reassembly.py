"""Reassembly: the segments of a block, in order, each byte once.

Segments are sorted by stream, position and arrival; the running maximum of ends before each one
trims what is already there, so reordering, retransmission, overlap and packets that were captured
twice are one case; a start beyond the maximum is a hole. What lies beyond a hole waits, and comes
again with the next block, until the hole is filled, or taken for lost:

- the other end acknowledged it, and it has been open for `GRACE`;
- it has been open for `PATIENCE`, or more waits beyond it than reordering explains;
- nothing more is waited for in the stream: it is over, or memory is needed.

Where two copies of a byte differ, the first to arrive is right.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import ACK, Int64, PacketBlock
from dissector.streams import sequence
from dissector.streams.flows import Assignment
from dissector.streams.limits import (
    GRACE,
    PATIENCE,
    WAITING_BYTES,
    WAITING_SEGMENTS,
)
from dissector.streams.origins import OriginFinder
from dissector.streams.segments import BLOCK, NO_SEGMENTS, Segments, last_of_each, running_maximum
from dissector.streams.state import States
from dissector.streams.table import (
    IGNORED,
    NEW,
    Bools,
    ConnectionTable,
    StreamTable,
)


@dataclass(frozen=True, slots=True)
class Gaps:
    """Bytes of streams that are not to be had; int64 arrays of shape (n,)."""

    stream: Int64
    """Stream, not local."""
    at: Int64
    length: Int64
    time: Int64
    """ns; arrival of what shows it: a segment behind the gap, or the segment itself."""

    def __add__(self, other: Gaps) -> Gaps:
        return Gaps(
            np.concatenate([self.stream, other.stream]),
            np.concatenate([self.at, other.at]),
            np.concatenate([self.length, other.length]),
            np.concatenate([self.time, other.time]),
        )


NO_GAPS = Gaps(*(np.zeros(0, np.int64) for _ in range(4)))


@dataclass(frozen=True, slots=True)
class Ordered:
    """What reassembly makes of a block."""

    ready: Segments
    """By local stream and position, each byte once; from what was held on."""
    waiting: Segments
    """Beyond a hole."""
    lost: Gaps
    """Holes that were given up."""
    stray: Gaps
    """Segments that cannot be of their stream."""


class Reassembler:
    """Puts the segments of all streams in order, block by block."""

    def __init__(self, table: ConnectionTable, streams: StreamTable, states: States) -> None:
        self._table = table
        self._streams = streams
        self._origins = OriginFinder(table, streams, states)

    def feed(
        self, block: PacketBlock, assignment: Assignment, held: Segments, now: int, give_up: Bools
    ) -> Ordered:
        """Order what was held and what came.

        `held`: with local streams, and their place in the block's data. `now`: ns. `give_up`: by
        local stream, whether nothing more is waited for.
        """
        stream_ids = assignment.streams
        self._origins.place(block, assignment)
        segments, arrival, stray = self._arrived(block, assignment, held)
        late = self._late(stream_ids, segments)
        self._origins.begin(stream_ids, segments, give_up, now)
        fresh = arrival >= len(held)
        segments, arrival, late = self._without_old(stream_ids, segments, arrival, late, fresh)
        segments, arrival, late, is_sorted = self._sorted(stream_ids, segments, arrival, late)
        segments = self._clipped(stream_ids, segments)
        if not is_sorted:
            segments, arrival, late = self._first_copy_wins(
                stream_ids, segments, arrival, late, len(held)
            )
        kept, gap = self._trimmed(stream_ids, segments, arrival >= len(held), arrival, late)
        kept, gap, open_holes, astray = self._holes(block, assignment, kept, gap, now, give_up)
        free = _before_first(kept.stream, open_holes)
        over = np.flatnonzero((gap > 0) & free)
        lost = Gaps(
            stream_ids[kept.stream[over]], kept.at[over] - gap[over], gap[over], kept.time[over]
        )
        np.add.at(self._table.lost.reshape(-1), lost.stream, lost.length)
        if free.all():
            return Ordered(self._read(stream_ids, kept), NO_SEGMENTS, lost, stray + astray)
        return Ordered(self._read(stream_ids, kept[free]), kept[~free], lost, stray + astray)

    def _arrived(
        self, block: PacketBlock, assignment: Assignment, held: Segments
    ) -> tuple[Segments, Int64, Gaps]:
        """What was held, and the payloads of the block, by stream and arrival.

        Also the order of arrival of each, and the payloads that are beyond any window.
        """
        streams, stream_ids, slot = self._streams, assignment.streams, assignment.slot
        has = block.length > 0
        ignored = streams.flat("state")[stream_ids] == IGNORED
        if ignored.any():
            has &= ~ignored[slot]
        packet = np.flatnonzero(has)
        stream = slot[packet]
        at, cut, beyond = self._origins.payloads(block, packet, stream, stream_ids)
        if cut is not None:
            np.add.at(self._table.cut.reshape(-1), stream_ids[stream], cut)
        stray = NO_GAPS
        if beyond.any():
            length = block.length[packet[beyond]].astype(np.int64)
            stray = Gaps(stream_ids[stream[beyond]], at[beyond], length, block.time[packet[beyond]])
            packet, stream, at = packet[~beyond], stream[~beyond], at[~beyond]
        if len(held):
            stream, at = np.concatenate([held.stream, stream]), np.concatenate([held.at, at])
        small = np.uint16 if len(stream_ids) < 1 << 16 else np.int64  # NumPy sorts 16 bits by radix
        arrival = np.argsort(stream.astype(small), kind="stable")
        both = np.concatenate([np.arange(len(held)), packet + len(held)])[arrival]

        def column(old: Int64, new: NDArray[Any]) -> Int64:
            gathered = np.concatenate([old, new])[both] if len(held) else new[both]
            wide: Int64 = gathered.astype(np.int64, copy=False)
            return wide

        acknowledged = np.where(block.flags & ACK, block.ack.astype(np.int64), -1)
        segments = Segments(
            stream[arrival], at[arrival], column(held.length, block.captured),
            column(held.span, block.length), column(held.source, block.payload),
            column(held.held, np.full(len(block), BLOCK)) if len(held) else np.full(len(at), BLOCK),
            column(held.time, block.time), column(held.capture, block.capture),
            column(held.number, block.number), column(held.acknowledged, acknowledged),
        )  # fmt: skip
        return segments, arrival, stray

    # Order

    def _inside(self, stream_ids: Int64, segments: Segments) -> tuple[Int64, Int64]:
        """Position of each segment behind the first byte of its stream that is still needed, and
        how far everything before it is settled."""
        streams = self._streams
        base = np.minimum(
            streams.flat("boundary")[stream_ids], streams.flat("next_position")[stream_ids]
        )
        least = np.where(streams.flat("state")[stream_ids] == NEW, -(1 << 40), 0)
        return segments.at - base[segments.stream], least[segments.stream]

    def _late(self, stream_ids: Int64, segments: Segments) -> Bools:
        """Which segments begin before one that arrived earlier; by stream and arrival."""
        streams = self._streams
        highest, expected = streams.flat("highest"), streams.flat("next_position")[stream_ids]

        def near(position: Int64, slot: Int64) -> Int64:
            behind: Int64 = np.maximum(position, expected[slot] - (1 << 40)) - expected[slot]
            return np.minimum(behind, (1 << 40) - 1)

        slot = segments.stream
        at = near(segments.at, slot)
        late: Bools = at < running_maximum(slot, at, near(highest[stream_ids][slot], slot))
        np.maximum.at(highest, stream_ids[slot], segments.at)
        return late

    def _without_old(
        self, stream_ids: Int64, segments: Segments, arrival: Int64, late: Bools, fresh: Bools
    ) -> tuple[Segments, Int64, Bools]:
        """Without the bytes that earlier blocks brought and that are not held any more."""
        inside, least = self._inside(stream_ids, segments)
        front = np.maximum(least - inside, 0)
        if not front.any():
            return segments, arrival, late
        old = front >= segments.span
        np.add.at(
            self._table.retransmitted.reshape(-1), stream_ids[segments.stream[old & fresh]], 1
        )
        rest = segments[~old].trimmed(front[~old], (segments.span - front)[~old])
        return rest, arrival[~old], late[~old]

    def _sorted(
        self, stream_ids: Int64, segments: Segments, arrival: Int64, late: Bools
    ) -> tuple[Segments, Int64, Bools, bool]:
        """By stream, position and arrival; and whether they were so before."""
        lifted = self._inside(stream_ids, segments)[0] + (segments.stream << 41)
        if not (lifted[1:] < lifted[:-1]).any():
            return segments, arrival, late, True
        order = np.argsort(lifted, kind="stable")
        return segments[order], arrival[order], late[order], False

    def _clipped(self, stream_ids: Int64, segments: Segments) -> Segments:
        """Bytes that a packet was said to have, and that are not there, end where others begin.

        Where the capture cut packets this changes nothing; a damaged length would cost all behind.
        """
        cut = np.flatnonzero(segments.span > segments.length)
        there = np.flatnonzero(segments.length)
        if not (len(cut) and len(there)):
            return segments
        lifted = self._inside(stream_ids, segments)[0] + (segments.stream << 41)
        following = np.searchsorted(lifted[there], lifted[cut] + segments.length[cut])
        following = there[np.minimum(following, len(there) - 1)]
        room = lifted[following] - lifted[cut]
        behind = (segments.stream[following] == segments.stream[cut]) & (
            room >= segments.length[cut]
        )
        span = segments.span.copy()
        span[cut[behind]] = np.minimum(span[cut], room)[behind]
        return replace(segments, span=span)

    def _first_copy_wins(
        self, stream_ids: Int64, segments: Segments, arrival: Int64, late: Bools, held: int
    ) -> tuple[Segments, Int64, Bools]:
        """Where a segment overlaps one that stands before it and came later, it keeps its bytes."""
        inside, least = self._inside(stream_ids, segments)
        overlaps = inside < running_maximum(segments.stream, inside + segments.span, least)
        overtaken = overlaps & (arrival < running_maximum(segments.stream, arrival, -1))
        if not overtaken.any():
            return segments, arrival, late
        chosen = np.isin(segments.stream, segments.stream[overtaken])
        parts: list[tuple[int, int, int]] = []
        for stream in np.unique(segments.stream[overtaken]):
            index = np.flatnonzero(segments.stream == stream)
            index = index[np.argsort(arrival[index])]
            parts += _first_copies(
                index.tolist(), segments.at[index].tolist(), segments.span[index].tolist()
            )
        parts.sort()
        part, low, high = np.array(parts, np.int64).reshape(-1, 3).T
        gone = np.flatnonzero(chosen & (arrival >= held))
        gone = np.setdiff1d(gone, part)
        np.add.at(self._table.retransmitted.reshape(-1), stream_ids[segments.stream[gone]], 1)
        untouched = np.flatnonzero(~chosen)
        cut = segments[part].trimmed(low - segments.at[part], high - low)
        index = np.concatenate([untouched, part])
        merged = segments[untouched] + cut
        order = np.lexsort((merged.at, merged.stream))
        return merged[order], arrival[index][order], late[index][order]

    def _trimmed(
        self, stream_ids: Int64, segments: Segments, fresh: Bools, arrival: Int64, late: Bools
    ) -> tuple[Segments, Int64]:
        """Without what is already there; and the bytes that are missing before each segment.

        Segments of one packet have the same `arrival`.
        """
        inside, least = self._inside(stream_ids, segments)
        reach = running_maximum(segments.stream, inside + segments.span, least)
        covered = np.maximum(reach - inside, 0)
        new = covered < segments.span
        out_of_order = np.flatnonzero(late & new & fresh)
        if len(out_of_order):
            first = np.unique(arrival[out_of_order], return_index=True)[1]
            stream = stream_ids[segments.stream[out_of_order[first]]]
            np.add.at(self._table.out_of_order.reshape(-1), stream, 1)
        if covered.any():
            again = segments.stream[~new & fresh]
            np.add.at(self._table.retransmitted.reshape(-1), stream_ids[again], 1)
            segments, inside, reach, covered = segments[new], inside[new], reach[new], covered[new]
            segments = segments.trimmed(covered, segments.span - covered)
        return segments, self._gaps(
            stream_ids, segments, segments.at - np.maximum(inside - reach, 0)
        )

    def _gaps(self, stream_ids: Int64, segments: Segments, reach: Int64) -> Int64:
        """Bytes that are missing before each segment: holes that were not given up before."""
        gaps: Int64 = np.maximum(
            segments.at
            - np.maximum(reach, self._streams.flat("next_position")[stream_ids][segments.stream]),
            0,
        )
        return gaps

    # Holes

    def _holes(
        self, block: PacketBlock, assignment: Assignment, kept: Segments, gap: Int64, now: int,
        give_up: Bools,
    ) -> tuple[Segments, Int64, Bools, Gaps]:  # fmt: skip
        """Which holes to wait for: a mask over the segments behind them.

        A segment is astray that no end acknowledges and that nothing joins, while the stream went
        on before it: it is taken away.
        """
        streams, stream_ids = self._streams, assignment.streams
        not_begun = (streams.flat("state")[stream_ids] == NEW)[kept.stream]
        hole = np.flatnonzero((gap > 0) & ~not_begun)
        if not len(hole):
            return kept, gap, not_begun, NO_GAPS
        slot = kept.stream[hole]
        stream = stream_ids[slot]
        self._note_acknowledged(block, assignment, slot)
        age = now - kept.time[hole]
        start = kept.at[hole] - gap[hole]
        acknowledged = (streams.flat("acknowledged")[stream] > start) & (age > GRACE)
        waiting, segments = _waiting_behind(kept, hole)
        crowded = (waiting > WAITING_BYTES) | (segments > WAITING_SEGMENTS)
        aged = (age > PATIENCE) | give_up[slot]
        astray = aged & ~acknowledged & ~crowded
        astray &= streams.flat("readable_time")[stream] > kept.time[hole] + GRACE
        if astray.any():
            cluster = np.cumsum((gap > 0) | np.append(True, np.diff(kept.stream) != 0))
            taken = np.isin(cluster, cluster[hole[astray]])
            rest = kept[~taken]
            none = np.zeros(len(rest), np.bool_)
            gap = self._trimmed(stream_ids, rest, none, np.zeros(len(rest), np.int64), none)[1]
            streams.flat("highest")[stream[astray]] = streams.flat("next_position")[stream[astray]]
            rest, gap, open_holes, more = self._holes(block, assignment, rest, gap, now, give_up)
            return rest, gap, open_holes, _as_gaps(stream_ids, kept[taken]) + more
        open_holes = not_begun
        open_holes[hole] = ~(acknowledged | crowded | aged)
        return kept, gap, open_holes, NO_GAPS

    def _note_acknowledged(self, block: PacketBlock, assignment: Assignment, slot: Int64) -> None:
        """Keep how far the other end acknowledged these streams, which have holes."""
        mine = np.zeros(len(assignment.streams), np.bool_)
        mine[slot ^ 1] = True
        packet = np.flatnonzero((block.flags & ACK != 0) & mine[assignment.slot])
        stream = assignment.streams[assignment.slot[packet] ^ 1]
        streams = self._streams
        position = sequence.positions(
            block.ack[packet], streams.flat("origin")[stream], streams.flat("next_position")[stream]
        )
        np.maximum.at(streams.flat("acknowledged"), stream, position)

    def _read(self, stream_ids: Int64, ready: Segments) -> Segments:
        """Move the streams on; tell when each segment could be read, all before it having come."""
        streams = self._streams
        last = last_of_each(ready.stream)
        stream = stream_ids[ready.stream]
        new = ready.at >= streams.flat("next_position")[stream]
        time = np.where(
            new, np.maximum(ready.time, streams.flat("readable_time")[stream]), ready.time
        )
        same = ready.stream[1:] == ready.stream[:-1]
        if (same & (time[1:] < time[:-1])).any():
            values, rank = np.unique(time, return_inverse=True)
            time = values[np.maximum(rank, running_maximum(ready.stream, rank, 0))]
        expected, read_time = streams.flat("next_position"), streams.flat("readable_time")
        end = ready.at[last] + ready.span[last]
        expected[stream[last]] = np.maximum(expected[stream[last]], end)
        read_time[stream[last]] = np.maximum(read_time[stream[last]], time[last])
        return replace(ready, time=time)


def _as_gaps(stream_ids: Int64, segments: Segments) -> Gaps:
    return Gaps(stream_ids[segments.stream], segments.at, segments.span, segments.time)


def _before_first(stream: Int64, marked: Bools) -> Bools:
    """Which segments stand before the first marked one of their stream."""
    if not marked.any():
        return np.ones(len(stream), np.bool_)
    mark = marked.astype(np.int64)
    free: Bools = (running_maximum(stream, mark, 0) == 0) & ~marked
    return free


def _waiting_behind(kept: Segments, hole: Int64) -> tuple[Int64, Int64]:
    """Bytes and segments of the stream from each of these segments on."""
    last = last_of_each(kept.stream)
    last = last[np.searchsorted(last, hole)]
    total = np.cumsum(kept.length)
    return total[last] - total[hole] + kept.length[hole], last - hole + 1


def _first_copies(index: list[int], at: list[int], span: list[int]) -> list[tuple[int, int, int]]:
    """What each of some segments brings that none before it brought: (index, from, to).

    The segments are in order of arrival.
    """
    lows: list[int] = []
    highs: list[int] = []  # what is covered, as ranges in order that do not touch
    parts: list[tuple[int, int, int]] = []
    for each, low, length in zip(index, at, span, strict=True):
        high = low + length
        first = last = bisect_left(highs, low)
        here = low
        while last < len(lows) and lows[last] <= high:
            if here < lows[last]:
                parts.append((each, here, lows[last]))
            here = max(here, highs[last])
            last += 1
        if here < high:
            parts.append((each, here, high))
        if last > first:
            low, high = min(low, lows[first]), max(high, highs[last - 1])
        lows[first:last], highs[first:last] = [low], [high]
    return parts
