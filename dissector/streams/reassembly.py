"""Reassembly: the segments of a block, in order, each byte once.

Segments are sorted by stream, position and arrival. Each one is trimmed by the running maximum of
the ends before it. So reordering, retransmission, overlap and packets that were captured twice are
one case. A start beyond the maximum is a hole. The segments beyond a hole wait for the next block,
until the hole is filled or taken for lost:

- the receiver acknowledged its bytes, and it has been open for `GRACE`;
- it has been open for `PATIENCE`, or more bytes wait beyond it than reordering explains;
- the stream stops waiting: it has ended, or memory is needed.

If two copies of a byte differ, the one that arrived first wins.
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
from dissector.streams.segments import (
    BLOCK,
    NO_SEGMENTS,
    POSITION_LIMIT,
    Segments,
    last_of_each,
    running_maximum,
    stream_base,
)
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
    """Missing or stray bytes of streams; int64 arrays of shape (n,)."""

    stream: Int64
    """Stream, not slot."""
    at: Int64
    length: Int64
    time: Int64
    """ns; arrival of the segment behind missing bytes, or of the stray segment."""

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
    """The reassembled segments of a block."""

    ready: Segments
    """By slot and position, each byte once; carried segments included."""
    waiting: Segments
    """Segments beyond a hole."""
    lost: Gaps
    """Holes that are taken for lost."""
    stray: Gaps
    """Segments that do not belong to their stream."""


class Reassembler:
    """Puts the segments of all streams in order, block by block."""

    def __init__(self, table: ConnectionTable, streams: StreamTable, states: States) -> None:
        self._table = table
        self._streams = streams
        self._origins = OriginFinder(table, streams, states)

    def feed(
        self, block: PacketBlock, assignment: Assignment, held: Segments, now: int, give_up: Bools
    ) -> Ordered:
        """Reassemble carried segments and those of the block.

        `held`: carried segments, with slots, and offsets in the block's data. `now`: ns. `give_up`:
        by slot, whether the stream stops waiting.
        """
        stream_ids = assignment.streams
        self._origins.place(block, assignment)
        segments, arrival, stray = self._arrived(block, assignment, held)
        late = self._late(stream_ids, segments)
        self._origins.begin(stream_ids, segments, give_up, now)
        fresh = arrival >= len(held)
        segments, arrival, late = self._without_read(stream_ids, segments, arrival, late, fresh)
        segments, arrival, late, is_sorted = self._sorted(stream_ids, segments, arrival, late)
        segments = self._clipped(stream_ids, segments)
        if not is_sorted:
            segments, arrival, late = self._first_copy_wins(
                stream_ids, segments, arrival, late, len(held)
            )
        kept, gap = self._trimmed(stream_ids, segments, arrival >= len(held), arrival, late)
        kept, gap, open_holes, unconfirmed = self._holes(block, assignment, kept, gap, now, give_up)
        is_ready = _before_first(kept.stream, open_holes)
        closed = np.flatnonzero((gap > 0) & is_ready)
        lost = Gaps(
            stream_ids[kept.stream[closed]], kept.at[closed] - gap[closed], gap[closed],
            kept.time[closed],
        )  # fmt: skip
        np.add.at(self._table.lost.reshape(-1), lost.stream, lost.length)
        if is_ready.all():
            return Ordered(self._read(stream_ids, kept), NO_SEGMENTS, lost, stray + unconfirmed)
        return Ordered(
            self._read(stream_ids, kept[is_ready]), kept[~is_ready], lost, stray + unconfirmed
        )

    def _arrived(
        self, block: PacketBlock, assignment: Assignment, held: Segments
    ) -> tuple[Segments, Int64, Gaps]:
        """Carried segments and payloads of the block, by stream and arrival; their order of
        arrival; and payloads beyond any window.
        """
        streams, stream_ids, slot = self._streams, assignment.streams, assignment.slot
        has_payload = block.length > 0
        ignored = streams.flat("state")[stream_ids] == IGNORED
        if ignored.any():
            has_payload &= ~ignored[slot]
        packet = np.flatnonzero(has_payload)
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
        index = np.concatenate([np.arange(len(held)), packet + len(held)])[arrival]

        def column(carried: Int64, new: NDArray[Any]) -> Int64:
            gathered = np.concatenate([carried, new])[index] if len(held) else new[index]
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
        """Position of each segment, relative to the first byte of its stream that is still needed;
        and the lowest relative position that is needed."""
        streams = self._streams
        base = np.minimum(
            streams.flat("boundary")[stream_ids], streams.flat("next_position")[stream_ids]
        )
        least = np.where(streams.flat("state")[stream_ids] == NEW, -POSITION_LIMIT, 0)
        return segments.at - base[segments.stream], least[segments.stream]

    def _late(self, stream_ids: Int64, segments: Segments) -> Bools:
        """Whether each segment begins before one that arrived earlier; by stream and arrival."""
        streams = self._streams
        highest, expected = streams.flat("highest"), streams.flat("next_position")[stream_ids]

        def near(position: Int64, slot: Int64) -> Int64:
            behind: Int64 = np.maximum(position, expected[slot] - POSITION_LIMIT) - expected[slot]
            return np.minimum(behind, POSITION_LIMIT - 1)

        slot = segments.stream
        at = near(segments.at, slot)
        late: Bools = at < running_maximum(slot, at, near(highest[stream_ids][slot], slot))
        np.maximum.at(highest, stream_ids[slot], segments.at)
        return late

    def _without_read(
        self, stream_ids: Int64, segments: Segments, arrival: Int64, late: Bools, fresh: Bools
    ) -> tuple[Segments, Int64, Bools]:
        """Without bytes of earlier blocks that were read and are not carried any more."""
        inside, least = self._inside(stream_ids, segments)
        front = np.maximum(least - inside, 0)
        if not front.any():
            return segments, arrival, late
        is_read = front >= segments.span
        np.add.at(
            self._table.retransmitted.reshape(-1), stream_ids[segments.stream[is_read & fresh]], 1
        )
        unread = segments[~is_read].trimmed(front[~is_read], (segments.span - front)[~is_read])
        return unread, arrival[~is_read], late[~is_read]

    def _sorted(
        self, stream_ids: Int64, segments: Segments, arrival: Int64, late: Bools
    ) -> tuple[Segments, Int64, Bools, bool]:
        """Sort by stream, position and arrival; and return whether they were sorted."""
        key = self._inside(stream_ids, segments)[0] + stream_base(segments.stream)
        if not (key[1:] < key[:-1]).any():
            return segments, arrival, late, True
        order = np.argsort(key, kind="stable")
        return segments[order], arrival[order], late[order], False

    def _clipped(self, stream_ids: Int64, segments: Segments) -> Segments:
        """End the missing bytes of truncated packets where captured bytes begin.

        In a capture with a snap length this changes nothing. But a damaged packet length must not
        cover the bytes of later packets.
        """
        truncated = np.flatnonzero(segments.span > segments.length)
        captured = np.flatnonzero(segments.length)
        if not (len(truncated) and len(captured)):
            return segments
        key = self._inside(stream_ids, segments)[0] + stream_base(segments.stream)
        following = np.searchsorted(key[captured], key[truncated] + segments.length[truncated])
        following = captured[np.minimum(following, len(captured) - 1)]
        distance = key[following] - key[truncated]
        is_behind = segments.stream[following] == segments.stream[truncated]
        is_behind &= distance >= segments.length[truncated]
        span = segments.span.copy()
        span[truncated[is_behind]] = np.minimum(span[truncated], distance)[is_behind]
        return replace(segments, span=span)

    def _first_copy_wins(
        self, stream_ids: Int64, segments: Segments, arrival: Int64, late: Bools, held: int
    ) -> tuple[Segments, Int64, Bools]:
        """On overlap, the bytes of the segment that arrived first win, wherever it begins."""
        inside, least = self._inside(stream_ids, segments)
        overlaps = inside < running_maximum(segments.stream, inside + segments.span, least)
        is_earlier = overlaps & (arrival < running_maximum(segments.stream, arrival, -1))
        if not is_earlier.any():
            return segments, arrival, late
        affected = np.isin(segments.stream, segments.stream[is_earlier])
        parts: list[tuple[int, int, int]] = []
        for stream in np.unique(segments.stream[is_earlier]):
            index = np.flatnonzero(segments.stream == stream)
            index = index[np.argsort(arrival[index])]
            parts += _first_copies(
                index.tolist(), segments.at[index].tolist(), segments.span[index].tolist()
            )
        parts.sort()
        part, low, high = np.array(parts, np.int64).reshape(-1, 3).T
        covered = np.flatnonzero(affected & (arrival >= held))
        covered = np.setdiff1d(covered, part)
        np.add.at(self._table.retransmitted.reshape(-1), stream_ids[segments.stream[covered]], 1)
        untouched = np.flatnonzero(~affected)
        trimmed = segments[part].trimmed(low - segments.at[part], high - low)
        index = np.concatenate([untouched, part])
        merged = segments[untouched] + trimmed
        order = np.lexsort((merged.at, merged.stream))
        return merged[order], arrival[index][order], late[index][order]

    def _trimmed(
        self, stream_ids: Int64, segments: Segments, fresh: Bools, arrival: Int64, late: Bools
    ) -> tuple[Segments, Int64]:
        """Segments without bytes that earlier segments contain; and the number of missing bytes
        before each one. Segments of one packet have the same `arrival`.
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
            retransmitted = segments.stream[~new & fresh]
            np.add.at(self._table.retransmitted.reshape(-1), stream_ids[retransmitted], 1)
            segments, inside, reach, covered = segments[new], inside[new], reach[new], covered[new]
            segments = segments.trimmed(covered, segments.span - covered)
        return segments, self._gaps(
            stream_ids, segments, segments.at - np.maximum(inside - reach, 0)
        )

    def _gaps(self, stream_ids: Int64, segments: Segments, reach: Int64) -> Int64:
        """Number of missing bytes before each segment, without holes that were given up before."""
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
        """Decide which holes stay open: a mask over the segments behind them.

        Segments behind a hole are stray if the hole was never acknowledged nor filled, while the
        stream went on before it: they are removed.
        """
        streams, stream_ids = self._streams, assignment.streams
        not_begun = (streams.flat("state")[stream_ids] == NEW)[kept.stream]
        hole = np.flatnonzero((gap > 0) & ~not_begun)
        if not len(hole):
            return kept, gap, not_begun, NO_GAPS
        slot = kept.stream[hole]
        stream = stream_ids[slot]
        self._record_acknowledged(block, assignment, slot)
        age = now - kept.time[hole]
        start = kept.at[hole] - gap[hole]
        acknowledged = (streams.flat("acknowledged")[stream] > start) & (age > GRACE)
        waiting, segments = _waiting_behind(kept, hole)
        is_full = (waiting > WAITING_BYTES) | (segments > WAITING_SEGMENTS)
        is_old = (age > PATIENCE) | give_up[slot]
        is_stray = is_old & ~acknowledged & ~is_full
        is_stray &= streams.flat("readable_time")[stream] > kept.time[hole] + GRACE
        if is_stray.any():
            cluster = np.cumsum((gap > 0) | np.append(True, np.diff(kept.stream) != 0))
            removed = np.isin(cluster, cluster[hole[is_stray]])
            stray = _as_gaps(stream_ids, kept[removed])
            kept = kept[~removed]
            all_false = np.zeros(len(kept), np.bool_)
            zeros = np.zeros(len(kept), np.int64)
            gap = self._trimmed(stream_ids, kept, all_false, zeros, all_false)[1]
            stream = stream[is_stray]
            streams.flat("highest")[stream] = streams.flat("next_position")[stream]
            kept, gap, open_holes, later_stray = self._holes(
                block, assignment, kept, gap, now, give_up
            )
            return kept, gap, open_holes, stray + later_stray
        open_holes = not_begun
        open_holes[hole] = ~(acknowledged | is_full | is_old)
        return kept, gap, open_holes, NO_GAPS

    def _record_acknowledged(self, block: PacketBlock, assignment: Assignment, slot: Int64) -> None:
        """Record how far the receiver acknowledged these streams, which have holes."""
        is_receiver = np.zeros(len(assignment.streams), np.bool_)
        is_receiver[slot ^ 1] = True
        packet = np.flatnonzero((block.flags & ACK != 0) & is_receiver[assignment.slot])
        stream = assignment.streams[assignment.slot[packet] ^ 1]
        streams = self._streams
        position = sequence.positions(
            block.ack[packet], streams.flat("origin")[stream], streams.flat("next_position")[stream]
        )
        np.maximum.at(streams.flat("acknowledged"), stream, position)

    def _read(self, stream_ids: Int64, ready: Segments) -> Segments:
        """Advance the streams. The time of each segment becomes the time at which it was readable:
        all bytes before it had arrived."""
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
        position, readable_time = streams.flat("next_position"), streams.flat("readable_time")
        end = ready.at[last] + ready.span[last]
        position[stream[last]] = np.maximum(position[stream[last]], end)
        readable_time[stream[last]] = np.maximum(readable_time[stream[last]], time[last])
        return replace(ready, time=time)


def _as_gaps(stream_ids: Int64, segments: Segments) -> Gaps:
    return Gaps(stream_ids[segments.stream], segments.at, segments.span, segments.time)


def _before_first(stream: Int64, marked: Bools) -> Bools:
    """Whether each segment is before the first marked one of its stream."""
    if not marked.any():
        return np.ones(len(stream), np.bool_)
    mark = marked.astype(np.int64)
    is_before: Bools = (running_maximum(stream, mark, 0) == 0) & ~marked
    return is_before


def _waiting_behind(kept: Segments, hole: Int64) -> tuple[Int64, Int64]:
    """Number of bytes and of segments of the stream from each of these segments on."""
    last = last_of_each(kept.stream)
    last = last[np.searchsorted(last, hole)]
    total = np.cumsum(kept.length)
    return total[last] - total[hole] + kept.length[hole], last - hole + 1


def _first_copies(index: list[int], at: list[int], span: list[int]) -> list[tuple[int, int, int]]:
    """The ranges of each segment that no earlier one contains: (index, low, high).

    The segments are in order of arrival.
    """
    lows: list[int] = []
    highs: list[int] = []  # covered bytes: ascending ranges that do not touch
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
