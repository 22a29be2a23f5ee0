"""Reassembly: the segments of a block, in order, each byte once.

Segments are sorted by stream, position and arrival. Each one is trimmed by the running maximum of
the ends before it. So reordering, retransmission, overlap and packets that were captured twice are
one case. A start beyond the maximum is a hole. The segments beyond a hole wait for the next block,
until the hole is filled or considered lost:

- the receiver acknowledged its bytes, `GRACE` or `SHORT_GRACE` ago, and it has been open as long;
- it has been open for `PATIENCE`, or more bytes wait beyond it than reordering explains;
- the stream stops waiting: it has ended, or memory is needed.

If two copies of a byte differ, the one that arrived first wins, unless it is damaged: see
`damaged_copies`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

import numpy as np

from dissector import _native
from dissector.arrays import arrays
from dissector.packets.block import ACK, Int64, PacketBlock
from dissector.parallel_arrays import ParallelArrays
from dissector.streams import sequence
from dissector.streams.connections.flows import Assignment
from dissector.streams.connections.state import States
from dissector.streams.connections.table import (
    FIRST_TIME,
    IGNORED,
    LAST_TIME,
    NEVER,
    NEW,
    OPEN,
    Bools,
    ConnectionTable,
    StreamTable,
    streams_at,
)
from dissector.streams.limits import (
    GRACE,
    PATIENCE,
    REORDER_PACKETS,
    SHORT_GRACE,
    WAITING_BYTES,
    WAITING_SEGMENTS,
    WINDOW_AHEAD,
    WINDOW_BEHIND,
)
from dissector.streams.reassembly.damaged_copies import damaged_copies, without_payload
from dissector.streams.reassembly.origins import OriginFinder, Positions
from dissector.streams.segments import (
    BLOCK,
    NO_SEGMENTS,
    POSITION_LIMIT,
    Segments,
    before_first,
    last_of_each,
    running_maximum,
    stream_base,
    waiting_behind,
)

# Columns of a table of segments: those of `Arrivals`.
_LENGTH, _SPAN, _HELD, _FRONT, _ARRIVAL, _COLUMNS = 2, 3, 5, 10, 11, 13


@arrays
class Arrivals(Segments):
    """Segments that may not be in order yet."""

    arrival: Int64
    """Number of the segment in the order of arrival, carried ones first."""
    late: Int64
    """Whether an earlier one begins after it."""


@arrays
class Gaps(ParallelArrays):
    """Missing or stray bytes of streams; int64 arrays of shape (n,)."""

    stream: Int64
    """Stream, not slot."""
    at: Int64
    length: Int64
    time: Int64
    """ns; arrival of the segment after missing bytes, or of the stray segment."""


NO_GAPS = Gaps.empty()


@arrays
class Ordered:
    """The reassembled segments of a block."""

    ready: Segments
    """By slot and position, each byte once; carried segments included."""
    waiting: Segments
    """Segments beyond a hole."""
    lost: Gaps
    """Holes that are considered lost."""
    stray: Gaps
    """Segments that do not belong to their stream."""


class Reassembler:
    """Puts the segments of all streams in order, block by block."""

    def __init__(self, table: ConnectionTable, streams: StreamTable, states: States) -> None:
        self._table = table
        self._streams = streams
        self._origins = OriginFinder(table, streams, states)
        self._recent = np.full(REORDER_PACKETS, FIRST_TIME)
        """Times of the latest packets of the capture; ns."""
        self.is_guessing = False
        """Whether streams begin with their first block. Set it if all states will be verified."""

    def feed(
        self, block: PacketBlock, assignment: Assignment, held: Segments, now: int, give_up: Bools
    ) -> Ordered:
        """Reassemble carried segments and those of the block.

        `held`: carried segments, with slots, and offsets in the block's data. `now`: ns. `give_up`:
        by slot, whether the stream stops waiting.
        """
        stream_ids = assignment.streams
        self._recent = np.append(self._recent, block.time[-REORDER_PACKETS:])[-REORDER_PACKETS:]
        damaged = damaged_copies(block, assignment)
        if len(damaged):
            self._count_retransmitted(stream_ids, assignment.slot[damaged])
            block = without_payload(block, damaged)
        held = self._origins.place(block, assignment, held)
        before = self._streams.next_position[stream_ids]
        positions = self._origins.positions(block, assignment)
        np.add.at(positions.count, held.stream, 1)
        np.minimum.at(positions.lowest, held.stream, held.at)
        origin_time = self._streams.origin_time[stream_ids]
        is_due = give_up | self.is_guessing | self._is_overdue(origin_time, now)
        self._origins.begin(stream_ids, positions.lowest, is_due)
        if positions.ends and self._is_plain(stream_ids, positions, held, before):
            return self._plain(block, assignment, held, positions, positions.ends)
        table, is_sorted = self._placed(block, assignment, held, positions, is_plain=False)
        if not is_sorted or (table[_LENGTH] < table[_SPAN]).any():
            table = self._sorted(stream_ids, table, len(held))
        table, gap = self._trimmed(stream_ids, table, len(held))
        table, gap, open_holes, stray = self._holes(block, assignment, table, gap, now, give_up)
        if len(positions.beyond):
            packet, position = positions.beyond.T
            length = block.length[packet].astype(np.int64)
            slot, time = assignment.slot[packet], block.time[packet]
            stray = Gaps(stream_ids[slot], position, length, time) + stray
        kept = _segments(table)
        is_ready = before_first(kept.stream, open_holes)
        closed = np.flatnonzero((gap > 0) & is_ready)
        lost = Gaps(
            stream_ids[kept.stream[closed]], kept.at[closed] - gap[closed], gap[closed],
            kept.time[closed],
        )  # fmt: skip
        np.add.at(self._table.lost.reshape(-1), lost.stream, lost.length)
        arrival = table[_ARRIVAL, is_ready] - len(held)
        ready = self._read(stream_ids, kept[is_ready], arrival)
        return Ordered(ready, kept[~is_ready], lost, stray)

    def lost_ends(self, now: int) -> Gaps:
        """The bytes after the last captured byte of each stream that the receiver acknowledged.

        Only at the end of the capture, when no stream has a hole. The last packets of a connection
        that continues may be out of order. The bytes of ignored streams are not followed.
        """
        table, streams = self._table, self._streams
        is_over = (table.closed != OPEN) | (table.last_time < now - GRACE)
        is_over &= (table.packets > 0).all(1) & (table.bytes > 0).any(1)
        stream = streams_at(np.flatnonzero(is_over))
        isn, has_origin = table.isn.reshape(-1)[stream], streams.has_origin[stream]
        origin = np.where(has_origin, streams.origin[stream], (isn + 1).astype(np.uint32))
        end = np.where(has_origin, streams.next_position[stream], 0)
        ack = streams.receiver_ack[stream]
        acknowledged = sequence.positions(ack.astype(np.uint32), origin, end)
        is_lost = (has_origin | (isn != NEVER)) & (ack != NEVER)
        is_lost &= streams.state[stream] != IGNORED
        # A FIN has a sequence number too, and may not have been captured.
        is_lost &= (acknowledged > end + 1) & (acknowledged < end + WINDOW_AHEAD)
        acknowledged -= acknowledged > streams.fin[stream]
        stream, at, length = stream[is_lost], end[is_lost], (acknowledged - end)[is_lost]
        np.add.at(table.lost.reshape(-1), stream, length)
        return Gaps(stream, at, length, table.last_time[stream >> 1])

    # Order

    def _needed(self, stream_ids: Int64) -> Int64:
        """The first position of each stream that is still needed."""
        streams = self._streams
        base: Int64 = np.minimum(streams.boundary[stream_ids], streams.next_position[stream_ids])
        base[streams.state[stream_ids] == NEW] -= POSITION_LIMIT
        return base

    def _is_plain(
        self, stream_ids: Int64, positions: Positions, held: Segments, before: Int64
    ) -> bool:
        """Whether no stream has a hole, nor two copies of a byte; given that this is true for the
        payloads of this block.

        `before`: by slot, the position to which that refers.
        """
        streams = self._streams
        begin, next_position = self._needed(stream_ids), streams.next_position[stream_ids]
        is_other = (next_position != before) | (streams.state[stream_ids] == NEW)
        is_plain = (held.length == held.span) & (held.at >= begin[held.stream])
        is_plain &= held.at + held.span <= next_position[held.stream]
        return bool(is_plain.all()) and not (is_other & (positions.count > 0)).any()

    def _plain(
        self, block: PacketBlock, assignment: Assignment, held: Segments, positions: Positions,
        ends: tuple[Int64, Int64, Int64],
    ) -> Ordered:  # fmt: skip
        """The segments of a block in which each one follows the one before it."""
        table, _ = self._placed(block, assignment, held, positions, is_plain=True)
        streams = self._streams
        for column, end in zip(
            (streams.next_position, streams.highest, streams.readable_time), ends, strict=True
        ):
            column[assignment.streams] = end
        ready = replace(_segments(table), span=table[_LENGTH])
        return Ordered(ready, NO_SEGMENTS, NO_GAPS, NO_GAPS)

    def _placed(
        self, block: PacketBlock, assignment: Assignment, held: Segments, positions: Positions,
        *, is_plain: bool,
    ) -> tuple[Int64, bool]:  # fmt: skip
        """A table of carried segments and payloads, by stream and arrival; and whether the segments
        with new bytes are in order.

        `is_plain`: they are. Then the table has no spans, nor the columns after the segments.
        """
        stream_ids, count = assignment.streams, positions.count
        table = np.empty((_COLUMNS, int(count.sum())), np.int64)
        if is_plain:
            table[_HELD], table[_FRONT] = BLOCK, 0
        base, highest = self._needed(stream_ids), self._streams.highest[stream_ids]
        carried = np.array(held.values, np.int64)
        is_sorted = _native.place_segments(
            assignment.slot, positions.at, block.length, block.captured, block.payload, block.time,
            block.capture, block.number, block.ack, block.flags, carried.reshape(-1), is_plain,
            base, np.cumsum(count) - count, highest, base.copy(), base.copy(), base.copy(),
            table.reshape(-1),
        )  # fmt: skip
        self._streams.highest[stream_ids] = highest
        return table, is_sorted

    def _sorted(self, stream_ids: Int64, table: Int64, held: int) -> Int64:
        """Sort by stream, position and arrival; then each byte is of the segment that arrived
        first. `held`: number of carried segments."""
        next_position = self._streams.next_position[stream_ids]
        needed = self._needed(stream_ids)
        segments = Arrivals(*table)
        front = np.maximum(needed[segments.stream] - segments.at, 0)
        is_read = front >= segments.span
        fresh = segments.stream[is_read & (segments.arrival >= held)]
        self._count_retransmitted(stream_ids, fresh)
        if front.any():
            unread = ~is_read
            segments = segments[unread].trimmed(front[unread], (segments.span - front)[unread])
        ahead = segments.at - next_position[segments.stream]
        order = np.argsort(ahead + stream_base(segments.stream), kind="stable")
        segments, ahead = segments[order], ahead[order]
        segments = _clipped(segments, ahead)
        least = (needed - next_position)[segments.stream]
        overlaps = ahead < running_maximum(segments.stream, ahead + segments.span, least)
        overlaps &= segments.arrival < running_maximum(segments.stream, segments.arrival, -1)
        if overlaps.any():
            affected = np.isin(segments.stream, segments.stream[overlaps])
            segments = self._first_copy_wins(stream_ids, segments, held, affected)
        return np.array(segments.values)

    def _first_copy_wins(
        self, stream_ids: Int64, segments: Arrivals, held: int, affected: Bools
    ) -> Arrivals:
        """Each byte of the affected streams is of the segment that arrived first, wherever the
        segment begins."""
        parts: list[tuple[int, int, int]] = []
        for stream in np.unique(segments.stream[affected]):
            index = np.flatnonzero(segments.stream == stream)
            index = index[np.argsort(segments.arrival[index])]
            parts += _first_copies(
                index.tolist(), segments.at[index].tolist(), segments.span[index].tolist()
            )
        parts.sort()
        part, low, high = np.array(parts, np.int64).reshape(-1, 3).T
        covered = np.setdiff1d(np.flatnonzero(affected & (segments.arrival >= held)), part)
        self._count_retransmitted(stream_ids, segments.stream[covered])
        trimmed = segments[part].trimmed(low - segments.at[part], high - low)
        trimmed.late[1:] *= part[1:] != part[:-1]  # of the parts of a segment, one counts as late
        merged = segments[~affected] + trimmed
        return merged[np.lexsort((merged.at, merged.stream))]

    def _count_retransmitted(self, stream_ids: Int64, slot: Int64) -> None:
        np.add.at(self._table.retransmitted.reshape(-1), stream_ids[slot], 1)

    def _trimmed(self, stream_ids: Int64, table: Int64, fresh: int) -> tuple[Int64, Int64]:
        """The table without bytes that earlier segments contain; and the number of missing bytes
        before each segment, without holes that were given up before.

        Segments that arrived before the one with the number `fresh` are not counted.
        """
        retransmitted, out_of_order = np.zeros((2, len(stream_ids)), np.int64)
        table = np.ascontiguousarray(table)
        gap, next_position = np.empty_like(table[0]), self._streams.next_position
        kept = _native.trim_segments(
            fresh, self._needed(stream_ids), next_position[stream_ids], retransmitted,
            out_of_order, gap, table.reshape(-1),
        )  # fmt: skip
        self._table.retransmitted.reshape(-1)[stream_ids] += retransmitted
        self._table.out_of_order.reshape(-1)[stream_ids] += out_of_order
        return table[:, :kept], gap[:kept]

    # Holes

    def _holes(
        self, block: PacketBlock, assignment: Assignment, table: Int64, gap: Int64, now: int,
        give_up: Bools,
    ) -> tuple[Int64, Int64, Bools, Gaps]:  # fmt: skip
        """Decide which holes stay open: a mask over the segments after them.

        Segments after a hole are stray if the hole was never acknowledged nor filled, while the
        stream went on only before it: they are removed. So is a single segment beyond any window.
        """
        streams, stream_ids = self._streams, assignment.streams
        kept = _segments(table)
        not_begun = (streams.state[stream_ids] == NEW)[kept.stream]
        hole = np.flatnonzero((gap > 0) & ~not_begun)
        if not len(hole):
            return table, gap, not_begun, NO_GAPS
        slot = kept.stream[hole]
        stream = stream_ids[slot]
        is_far = gap[hole] > WINDOW_AHEAD
        self._record_acknowledged(block, assignment, slot, slot[is_far])
        time = kept.time[hole]
        # A retransmission may arrive after its ACK.
        since = np.maximum(time, streams.acknowledged_time[stream])
        start = kept.at[hole] - gap[hole]
        end_acknowledged = streams.acknowledged[stream]
        waiting, segments, end = waiting_behind(kept, hole)
        is_overdue = self._is_overdue(since, now) & (end_acknowledged <= end)
        is_acknowledged = end_acknowledged > start
        is_lost = is_acknowledged & (is_overdue | (since < now - GRACE))
        is_full = (waiting > WAITING_BYTES) | (segments > WAITING_SEGMENTS)
        is_old = (time < now - PATIENCE) | give_up[slot]
        is_stray = is_old & ~is_acknowledged & ~is_full
        if is_stray.any():
            is_stray &= self._goes_on_before(kept, hole, stream) | (is_far & (segments == 1))
        if is_stray.any():
            cluster = np.cumsum((gap > 0) | np.append(True, np.diff(kept.stream) != 0))
            removed = np.isin(cluster, cluster[hole[is_stray]])
            strays = kept[removed]
            stray = Gaps(stream_ids[strays.stream], strays.at, strays.span, strays.time)
            table, gap = self._trimmed(stream_ids, table[:, ~removed], LAST_TIME)
            stream = stream[is_stray]
            streams.highest[stream] = streams.next_position[stream]
            table, gap, open_holes, later_stray = self._holes(
                block, assignment, table, gap, now, give_up
            )
            return table, gap, open_holes, stray + later_stray
        open_holes = not_begun
        open_holes[hole] = ~(is_lost | is_full | is_old)
        return table, gap, open_holes, NO_GAPS

    def _goes_on_before(self, segments: Segments, hole: Int64, stream: Int64) -> Bools:
        """Whether each stream goes on before a hole, and not after it: there, bytes that were sent
        again may also arrive late. `hole`: the segments after the holes."""
        time = segments.time
        before = _latest_before(segments.stream, time)[hole]
        reverse = segments.stream[-1] - segments.stream[::-1]
        behind = _latest_before(reverse, time[::-1])[::-1][hole]
        latest = np.maximum(self._streams.readable_time[stream], before)
        goes_on: Bools = latest > np.maximum(time[hole], behind) + GRACE
        return goes_on

    def _is_overdue(self, time: Int64, now: int) -> Bools:
        """Whether all packets that were sent before these times have arrived, as far as reordering
        explains."""
        is_overdue: Bools = (time < now - SHORT_GRACE) & (time < self._recent.min())
        return is_overdue | (time < now - GRACE)

    def _record_acknowledged(
        self, block: PacketBlock, assignment: Assignment, slot: Int64, far: Int64
    ) -> None:
        """Record how far the receiver acknowledged these streams, which have holes.

        `far`: those with a hole larger than any window. Beyond half of the sequence numbers, its
        end seems to be before its start.
        """
        is_receiver = np.zeros(len(assignment.streams), np.bool_)
        is_receiver[slot ^ 1] = True
        packet = np.flatnonzero((block.flags & ACK != 0) & is_receiver[assignment.slot])
        stream = assignment.streams[assignment.slot[packet] ^ 1]
        position = self._streams.positions(stream, block.ack[packet])
        wraps = np.isin(assignment.slot[packet] ^ 1, far)
        wraps &= position < self._streams.next_position[stream] - WINDOW_BEHIND
        position += wraps * sequence.MODULO
        streams = self._streams
        is_first = position > streams.next_position[stream]
        is_first &= streams.acknowledged[stream] <= streams.next_position[stream]
        first = stream[is_first]
        streams.acknowledged_time[first] = block.time[-1:]
        np.minimum.at(streams.acknowledged_time, first, block.time[packet[is_first]])
        np.maximum.at(streams.acknowledged, stream, position)

    def _read(self, stream_ids: Int64, ready: Segments, arrival: Int64) -> Segments:
        """Advance the streams. The time of each segment becomes the time at which it was readable:
        all bytes before it had arrived.

        `arrival`: order of arrival in this block; negative for carried segments.
        """
        position, readable = self._streams.next_position, self._streams.readable_time
        before, readable_before = position[stream_ids], readable[stream_ids]
        end, latest, time = before.copy(), np.full(len(stream_ids), FIRST_TIME), ready.time.copy()
        _native.read_segments(
            ready.stream, ready.at, ready.span, before, readable_before, time, end, latest
        )
        # A latest time far beyond those of the segment and of the last bytes to arrive is wrong, or
        # the clock was set back.
        was_read = (arrival < 0) & (ready.at < before[ready.stream])
        last = np.maximum(running_maximum(ready.stream, arrival, -1), arrival)
        last = np.where(was_read, arrival, last)
        order = np.argsort(arrival)
        row = order.take(arrival[order].searchsorted(last), mode="clip") if len(order) else order
        likely = np.maximum(ready.time, ready.time[row])
        time = np.where(was_read | ((last >= 0) & (time > likely + GRACE)), likely, time)
        final = last_of_each(ready.stream)
        slot = ready.stream[final]
        position[stream_ids], readable[stream_ids[slot]] = end, time[final]
        return replace(ready, time=time)


def _latest_before(stream: Int64, time: Int64) -> Int64:
    """The latest time of the segments before each segment in its stream; `FIRST_TIME` for the first
    one."""
    order = time.argsort(kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    latest = running_maximum(stream, rank, -1)
    times: Int64 = np.append(time[order], FIRST_TIME)[latest]
    return times


def _segments(table: Int64) -> Segments:
    """The segments of a table."""
    return Segments(*table[:_ARRIVAL])


def _clipped(segments: Arrivals, ahead: Int64) -> Arrivals:
    """End the missing bytes of truncated packets where captured bytes begin, or where they begin
    themselves if another packet contains them.

    In a capture with a snap length this changes nothing. But a damaged packet length must not cover
    the bytes of later packets, and two capture points may have different snap lengths. A single
    byte may be a keep-alive, whose byte is not data (RFC 9293, section 3.8.4). `ahead`: positions,
    relative to one of the stream.
    """
    truncated = np.flatnonzero(segments.span > segments.length)
    captured = np.flatnonzero((segments.length > 0) & (segments.span > 1))
    if not (len(truncated) and len(captured)):
        return segments
    key = ahead + stream_base(segments.stream)
    following = np.searchsorted(key[captured], key[truncated] + segments.length[truncated])
    following = captured[np.minimum(following, len(captured) - 1)]
    distance = key[following] - key[truncated]
    is_behind = segments.stream[following] == segments.stream[truncated]
    is_behind &= distance >= segments.length[truncated]
    span = segments.span.copy()
    span[truncated[is_behind]] = np.minimum(span[truncated], distance)[is_behind]
    missing = key[truncated] + segments.length[truncated]
    reach = np.maximum.accumulate(key[captured] + segments.length[captured])
    reach = np.append(missing.min(), reach)[key[captured].searchsorted(missing, "right")]
    contained = truncated[reach >= key[truncated] + span[truncated]]
    span[contained] = segments.length[contained]
    return replace(segments, span=span)


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
