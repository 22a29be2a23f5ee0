# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=False, infer_types=True
"""The segments of streams, each byte once: see `streams.reassembly.reassembler`.

Segments are a table, one column of equal length after the other: those of `streams.Segments`, then
the order of arrival, and whether an earlier segment begins behind it.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from dissector._native import uncompiled as cython
if cython.compiled:
    from cython.cimports.dissector._native.memory import *

SYN = cython.declare(cython.longlong, 2)
ACK = cython.declare(cython.longlong, 16)
ALL_32 = cython.declare(cython.longlong, 0xFFFF_FFFF)
IN_BLOCK = cython.declare(cython.longlong, -1)
"""`held` of a segment of this block: `streams.segments.BLOCK`."""
NOWHERE = cython.declare(cython.longlong, -(1 << 62))
"""Position of a packet that is not a segment."""
# Columns of segments.
STREAM = cython.declare(cython.longlong, 0)
AT = cython.declare(cython.longlong, 1)
LENGTH = cython.declare(cython.longlong, 2)
SPAN = cython.declare(cython.longlong, 3)
SOURCE = cython.declare(cython.longlong, 4)
HELD = cython.declare(cython.longlong, 5)
TIME = cython.declare(cython.longlong, 6)
CAPTURE = cython.declare(cython.longlong, 7)
NUMBER = cython.declare(cython.longlong, 8)
ACKNOWLEDGED = cython.declare(cython.longlong, 9)
FRONT = cython.declare(cython.longlong, 10)
ARRIVAL = cython.declare(cython.longlong, 11)
LATE = cython.declare(cython.longlong, 12)
COLUMNS = cython.declare(cython.longlong, 13)


def count_packets(
    slot: Ints, length: Ints32, time: Ints, packets: IntsOut, bytes: IntsOut, first: IntsOut,
    last: IntsOut,
) -> None:  # fmt: skip
    with cython.nogil:
        for packet in range(slot.shape[0]):
            stream = slot[packet]
            row = stream >> 1
            packets[stream] += 1
            bytes[stream] += length[packet]
            if time[packet] < first[row]:
                first[row] = time[packet]
            if time[packet] > last[row]:
                last[row] = time[packet]


def find_repeats(slot: Ints, seq: Words32, length: Ints32, reach: IntsOut, repeats: IntsOut) -> int:
    count: Int = 0
    end: Int
    with cython.nogil:
        for packet in range(slot.shape[0]):
            if length[packet] <= 0:
                continue
            row = slot[packet]
            end = (seq[packet] + length[packet]) & ALL_32
            if reach[row] >= 0 and ((seq[packet] - reach[row]) & ALL_32) >> 31:
                repeats[count] = packet
                count += 1
            if reach[row] < 0 or not ((end - reach[row]) & ALL_32) >> 31:
                reach[row] = end
    return count


def find_positions(
    slot: Ints, seq: Words32, flags: Bytes, length: Ints32, captured: Ints32, time: Ints,
    near: IntsOut, reference: IntsOut, is_ignored: Bytes, least: Ints, limits: Ints, at: IntsOut,
    count: IntsOut, lowest: IntsOut, cut: IntsOut, end: IntsOut, highest: IntsOut, latest: IntsOut,
    repeated: IntsOut, in_order: cython.bint, stray: IntsOut, payload_time: IntsOut,
    payload_end: IntsOut, jumps: IntsOut,
) -> tuple[int, bool]:  # fmt: skip
    strays: Int = 0
    silence: Int
    limit: Int = limits[0]
    behind: Int = limits[1]
    most_jumps: Int = limits[2]
    shortest: Int = limits[3]
    longest_skew: Int = limits[4]
    size: Int
    first: Int
    following: Int
    ahead: Int
    is_whole: cython.bint
    with cython.nogil:
        for packet in range(slot.shape[0]):
            at[packet] = NOWHERE
            row, size = slot[packet], length[packet]
            # A SYN occupies a number before the payload (TCP Fast Open, RFC 7413).
            first = seq[packet] + (flags[packet] & SYN != 0)
            following = (first + size) & ALL_32
            if size <= 0 or is_ignored[row]:
                if flags[packet] & SYN:
                    payload_end[row] = following
                continue
            # The byte of a keep-alive is not data (RFC 9293, section 3.8.4).
            if size == 1 and following == payload_end[row]:
                continue
            ahead = (first - reference[row]) & ALL_32
            if ahead >> 31:
                ahead -= ALL_32 + 1
            place = near[row] + ahead
            cut[row] += size - captured[packet]
            silence = 0
            if payload_time[row] >= 0 and jumps[row] < most_jumps:
                silence = time[packet] - payload_time[row]
            if (
                (silence > shortest and (ahead > limit or ahead < -limit))
                or (silence > longest_skew and ahead < -behind)
            ):  # fmt: skip
                at[packet] = near[row] + (ahead & ALL_32)
                payload_end[row] = following
                count[row] += 1
                jumps[row] += 1
                in_order = False
                if jumps[row] == most_jumps:
                    near[row] = at[packet] + size
                    reference[row] += ahead + size
            elif ahead > limit or ahead < -limit:
                stray[2 * strays], stray[2 * strays + 1] = packet, place
                strays += 1
            else:
                near[row] = place + size
                reference[row] += ahead + size
                at[packet] = place
                payload_end[row] = following
                if jumps[row] < most_jumps:
                    payload_time[row], jumps[row] = time[packet], 0
                if in_order:
                    is_whole = size == captured[packet]
                    if place == end[row] and is_whole and time[packet] >= latest[row]:
                        end[row] += size
                        highest[row], latest[row] = place, time[packet]
                    elif (
                        is_whole and place + size <= end[row]
                        and least[row] <= place <= highest[row]
                    ):  # fmt: skip
                        repeated[row] += 1
                        at[packet] = NOWHERE
                    else:
                        in_order = False
                if at[packet] != NOWHERE:
                    count[row] += 1
                    lowest[row] = min(lowest[row], place)
    return strays, in_order


@cython.final
@cython.cclass
class _Segments:
    """A table of segments that is filled."""

    table: IntsOut
    rows: Int
    """Length of a column."""
    next: IntsOut
    """Row of the next segment, by slot."""
    base: Ints
    """First position that is needed, by slot."""
    highest: IntsOut
    """Highest start of a packet, by slot: segments of earlier blocks may have been trimmed."""
    last: IntsOut
    """By slot: highest start of a segment that is needed; end of the segments; start of the bytes
    before this end without a hole."""
    end: IntsOut
    solid: IntsOut
    arrivals: Int
    is_plain: cython.bint
    is_sorted: cython.bint

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def add(self, slot: Int, at: Int, length: Int, span: Int, source: Int) -> Int:
        """Add a segment, and return its row."""
        row: Int = self.next[slot]
        self.next[slot] = row + 1
        self.table[STREAM * self.rows + row] = slot
        self.table[AT * self.rows + row] = at
        self.table[LENGTH * self.rows + row] = length
        self.table[SOURCE * self.rows + row] = source
        if not self.is_plain:
            self.compare(row, slot, at, span)
        return row

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def compare(self, row: Int, slot: Int, at: Int, span: Int) -> cython.int:
        """Compare a segment with those before it, and fill the columns for that."""
        behind: Int = at + span
        begin: Int = max(at, self.base[slot])
        self.table[SPAN * self.rows + row] = span
        self.table[ARRIVAL * self.rows + row] = self.arrivals
        self.table[LATE * self.rows + row] = at < self.highest[slot]
        self.arrivals += 1
        if begin > self.end[slot]:
            self.solid[slot] = begin
        if begin >= self.last[slot]:
            self.last[slot] = begin
        elif behind > self.base[slot] and (begin < self.solid[slot] or behind > self.end[slot]):
            self.is_sorted = False  # and not a repetition, which may be anywhere
        self.end[slot] = max(self.end[slot], behind)
        return 0


def place_segments(
    slot: Ints, at: Ints, length: Ints32, captured: Ints32, payload: Ints, time: Ints,
    capture: Ints32, number: Ints, ack: Words32, flags: Bytes, carried: Ints, is_plain: cython.bint,
    base: Ints, first: IntsOut, highest: IntsOut, last: IntsOut, end: IntsOut, solid: IntsOut,
    table: IntsOut,
) -> bool:  # fmt: skip
    segments: _Segments = _Segments()
    rows: Int = table.shape[0] // COLUMNS
    held: Int = carried.shape[0] // ARRIVAL
    """Number of segments of the other table, which has no order of arrival."""
    segments.table, segments.rows, segments.is_plain = table, rows, is_plain
    segments.next, segments.base, segments.highest = first, base, highest
    segments.last, segments.end, segments.solid = last, end, solid
    segments.arrivals, segments.is_sorted = 0, True
    with cython.nogil:
        for index in range(held):
            row = segments.add(
                carried[STREAM * held + index], carried[AT * held + index],
                carried[LENGTH * held + index], carried[SPAN * held + index],
                carried[SOURCE * held + index],
            )  # fmt: skip
            for column in range(HELD, ARRIVAL):
                table[column * rows + row] = carried[column * held + index]
        for packet in range(slot.shape[0]):
            if at[packet] == NOWHERE:
                continue
            row = segments.add(
                slot[packet], at[packet], captured[packet], length[packet], payload[packet]
            )
            if not is_plain:
                table[HELD * rows + row] = IN_BLOCK
                table[FRONT * rows + row] = 0
                highest[slot[packet]] = max(highest[slot[packet]], at[packet])
            table[TIME * rows + row] = time[packet]
            table[CAPTURE * rows + row] = capture[packet]
            table[NUMBER * rows + row] = number[packet]
            table[ACKNOWLEDGED * rows + row] = ack[packet] if flags[packet] & ACK else -1
    return segments.is_sorted


def trim_segments(
    fresh: Int, reach: IntsOut, next_position: Ints, retransmitted: IntsOut, out_of_order: IntsOut,
    gap: IntsOut, table: IntsOut,
) -> int:  # fmt: skip
    rows: Int = table.shape[0] // COLUMNS
    kept: Int = 0
    is_fresh: cython.bint
    with cython.nogil:
        for row in range(rows):
            slot, at, span = (
                table[STREAM * rows + row],
                table[AT * rows + row],
                table[SPAN * rows + row],
            )
            is_fresh = table[ARRIVAL * rows + row] >= fresh
            if reach[slot] >= at + span:
                retransmitted[slot] += is_fresh
                continue
            if table[LATE * rows + row] and is_fresh:
                out_of_order[slot] += 1
            if reach[slot] > at:
                front = reach[slot] - at
                captured = min(front, table[LENGTH * rows + row])
                table[AT * rows + row] += front
                table[FRONT * rows + row] += front
                table[SPAN * rows + row] -= front
                table[SOURCE * rows + row] += captured
                if table[HELD * rows + row] != IN_BLOCK:
                    table[HELD * rows + row] += captured
                table[LENGTH * rows + row] = min(
                    table[LENGTH * rows + row] - captured, table[SPAN * rows + row]
                )
            gap[kept] = max(at - max(reach[slot], next_position[slot]), 0)
            reach[slot] = at + span
            if kept < row:
                for column in range(COLUMNS):
                    table[column * rows + kept] = table[column * rows + row]
            kept += 1
    return kept


def read_segments(
    slot: Ints, at: Ints, span: Ints, next_position: Ints, readable_before: Ints, time: IntsOut,
    end: IntsOut, readable: IntsOut,
) -> None:  # fmt: skip
    with cython.nogil:
        for row in range(slot.shape[0]):
            stream = slot[row]
            if at[row] >= next_position[stream]:
                time[row] = max(time[row], readable_before[stream])
            time[row] = max(time[row], readable[stream])
            readable[stream] = time[row]
            end[stream] = max(end[stream], at[row] + span[row])
