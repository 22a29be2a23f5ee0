# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""The segments of streams, each byte once: see `streams.reassembly`.

Segments are a table, one column of equal length after the other: those of `streams.Segments`, then
the order of arrival, and whether an earlier segment begins behind it.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from dissector._native import uncompiled as cython

Int = cython.typedef(cython.longlong)
Bytes = cython.typedef(cython.const[cython.uchar][::1])
Ints = cython.typedef(cython.const[cython.longlong][::1])
Shorts = cython.typedef(cython.const[cython.int][::1])
Numbers = cython.typedef(cython.const[cython.uint][::1])
IntsOut = cython.typedef(cython.longlong[::1])

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


@cython.final
@cython.cclass
class _Counts:
    """Counts of the packets of each slot, and the times of each pair of slots."""

    packets: IntsOut
    bytes: IntsOut
    first: IntsOut
    last: IntsOut

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def add(self, slot: Ints, length: Shorts, time: Ints) -> cython.int:
        """`count_packets`."""
        packet: Int
        stream: Int
        row: Int
        for packet in range(slot.shape[0]):
            stream = slot[packet]
            row = stream >> 1
            self.packets[stream] += 1
            self.bytes[stream] += length[packet]
            if time[packet] < self.first[row]:
                self.first[row] = time[packet]
            if time[packet] > self.last[row]:
                self.last[row] = time[packet]
        return 0


def count_packets(
    slot: Ints, length: Shorts, time: Ints, packets: IntsOut, bytes: IntsOut, first: IntsOut,
    last: IntsOut,
) -> None:  # fmt: skip
    counts: _Counts = _Counts()
    counts.packets, counts.bytes, counts.first, counts.last = packets, bytes, first, last
    with cython.nogil:
        counts.add(slot, length, time)


@cython.final
@cython.cclass
class _Positions:
    """Finds the positions of payloads."""

    slot: Ints
    seq: Numbers
    flags: Bytes
    length: Shorts
    captured: Shorts
    time: Ints
    end: IntsOut
    highest: IntsOut
    latest: IntsOut
    repeated: IntsOut
    in_order: cython.bint

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def find(
        self, near: IntsOut, reference: IntsOut, is_ignored: Bytes, least: Ints, ahead_limit: Int,
        is_wide: cython.bint, at: IntsOut, count: IntsOut, lowest: IntsOut, cut: IntsOut,
        stray: IntsOut,
    ) -> Int:  # fmt: skip
        """`find_positions`."""
        strays: Int = 0
        packet: Int
        slot: Int
        length: Int
        ahead: Int
        for packet in range(self.slot.shape[0]):
            at[packet] = NOWHERE
            slot, length = self.slot[packet], self.length[packet]
            if length <= 0 or is_ignored[slot]:
                continue
            # A SYN occupies a number before the payload (TCP Fast Open, RFC 7413).
            ahead = self.seq[packet] + (self.flags[packet] & SYN != 0)
            ahead = (ahead - reference[slot]) & ALL_32
            if ahead >> 31:
                ahead -= ALL_32 + 1
            cut[slot] += length - self.captured[packet]
            if ahead > ahead_limit:
                stray[2 * strays], stray[2 * strays + 1] = packet, near[slot] + ahead
                strays += 1
            else:
                at[packet] = near[slot] + ahead
                if self.in_order:
                    if (
                        at[packet] == self.end[slot]
                        and length == self.captured[packet]
                        and self.time[packet] >= self.latest[slot]
                    ):
                        self.end[slot] += length
                        self.highest[slot], self.latest[slot] = at[packet], self.time[packet]
                    elif self.repeats(packet, slot, at[packet], least[slot]):
                        at[packet] = NOWHERE
                    else:
                        self.in_order = False
                if at[packet] != NOWHERE:
                    count[slot] += 1
                    lowest[slot] = min(lowest[slot], at[packet])
            if is_wide:
                near[slot] += length
                reference[slot] += length
        return strays

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def repeats(self, packet: Int, slot: Int, at: Int, least: Int) -> cython.int:
        """Whether a complete payload only has bytes of those before it, which it counts."""
        behind: Int = at + self.length[packet]
        if self.captured[packet] != self.length[packet] or behind > self.end[slot]:
            return 0
        if not least <= at <= self.highest[slot]:
            return 0
        self.repeated[slot] += 1
        return 1


def find_positions(
    slot: Ints, seq: Numbers, flags: Bytes, length: Shorts, captured: Shorts, time: Ints,
    near: IntsOut, reference: IntsOut, is_ignored: Bytes, least: Ints, ahead_limit: int,
    is_wide: bool, at: IntsOut, count: IntsOut, lowest: IntsOut, cut: IntsOut, end: IntsOut,
    highest: IntsOut, latest: IntsOut, repeated: IntsOut, in_order: bool, stray: IntsOut,
) -> tuple[int, bool]:  # fmt: skip
    positions: _Positions = _Positions()
    limit: Int = ahead_limit
    wide: cython.bint = is_wide
    strays: Int
    positions.slot, positions.seq, positions.flags = slot, seq, flags
    positions.length, positions.captured, positions.time = length, captured, time
    positions.end, positions.highest, positions.latest = end, highest, latest
    positions.repeated, positions.in_order = repeated, in_order
    with cython.nogil:
        strays = positions.find(
            near, reference, is_ignored, least, limit, wide, at, count, lowest, cut, stray
        )
    return strays, positions.in_order


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
    """Highest start of a segment, by slot."""
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
        self.highest[slot] = max(self.highest[slot], at)
        if begin > self.end[slot]:
            self.solid[slot] = begin
        if begin >= self.last[slot]:
            self.last[slot] = begin
        elif behind > self.base[slot] and (begin < self.solid[slot] or behind > self.end[slot]):
            self.is_sorted = False  # and not a repetition, which may be anywhere
        self.end[slot] = max(self.end[slot], behind)
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def add_carried(self, carried: Ints) -> cython.int:
        """Add the segments of another table, which has no order of arrival."""
        rows: Int = carried.shape[0] // ARRIVAL
        index: Int
        row: Int
        column: Int
        for index in range(rows):
            row = self.add(
                carried[STREAM * rows + index], carried[AT * rows + index],
                carried[LENGTH * rows + index], carried[SPAN * rows + index],
                carried[SOURCE * rows + index],
            )  # fmt: skip
            for column in range(HELD, ARRIVAL):
                self.table[column * self.rows + row] = carried[column * rows + index]
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def add_packets(
        self, slot: Ints, at: Ints, length: Shorts, captured: Shorts, payload: Ints, time: Ints,
        capture: Shorts, number: Ints, ack: Numbers, flags: Bytes,
    ) -> cython.int:  # fmt: skip
        """Add the payloads that have a position."""
        packet: Int
        row: Int
        for packet in range(slot.shape[0]):
            if at[packet] == NOWHERE:
                continue
            row = self.add(
                slot[packet], at[packet], captured[packet], length[packet], payload[packet]
            )
            if not self.is_plain:
                self.table[HELD * self.rows + row] = IN_BLOCK
                self.table[FRONT * self.rows + row] = 0
            self.table[TIME * self.rows + row] = time[packet]
            self.table[CAPTURE * self.rows + row] = capture[packet]
            self.table[NUMBER * self.rows + row] = number[packet]
            self.table[ACKNOWLEDGED * self.rows + row] = ack[packet] if flags[packet] & ACK else -1
        return 0


def place_segments(
    slot: Ints, at: Ints, length: Shorts, captured: Shorts, payload: Ints, time: Ints,
    capture: Shorts, number: Ints, ack: Numbers, flags: Bytes, carried: Ints, is_plain: bool,
    base: Ints, first: IntsOut, highest: IntsOut, last: IntsOut, end: IntsOut, solid: IntsOut,
    table: IntsOut,
) -> bool:  # fmt: skip
    segments: _Segments = _Segments()
    segments.table, segments.rows = table, len(table) // COLUMNS
    segments.next, segments.base, segments.highest = first, base, highest
    segments.last, segments.end, segments.solid = last, end, solid
    segments.arrivals, segments.is_sorted, segments.is_plain = 0, True, is_plain
    with cython.nogil:
        segments.add_carried(carried)
        segments.add_packets(slot, at, length, captured, payload, time, capture, number, ack, flags)
    return segments.is_sorted


@cython.final
@cython.cclass
class _Trimming:
    """A table of segments, by stream and position."""

    table: IntsOut
    rows: Int

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def trim(self, row: Int, front: Int) -> cython.int:
        """Remove the first bytes of a segment."""
        captured: Int = min(front, self.table[LENGTH * self.rows + row])
        span: Int = self.table[SPAN * self.rows + row] - front
        self.table[AT * self.rows + row] += front
        self.table[FRONT * self.rows + row] += front
        self.table[SPAN * self.rows + row] = span
        self.table[SOURCE * self.rows + row] += captured
        if self.table[HELD * self.rows + row] != IN_BLOCK:
            self.table[HELD * self.rows + row] += captured
        self.table[LENGTH * self.rows + row] = min(
            self.table[LENGTH * self.rows + row] - captured, span
        )
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def run(
        self, fresh: Int, reach: IntsOut, next_position: Ints, retransmitted: IntsOut,
        out_of_order: IntsOut, gap: IntsOut,
    ) -> Int:  # fmt: skip
        """`trim_segments`."""
        kept: Int = 0
        row: Int
        column: Int
        slot: Int
        at: Int
        span: Int
        is_fresh: cython.bint
        for row in range(self.rows):
            slot = self.table[STREAM * self.rows + row]
            at, span = self.table[AT * self.rows + row], self.table[SPAN * self.rows + row]
            is_fresh = self.table[ARRIVAL * self.rows + row] >= fresh
            if reach[slot] >= at + span:
                retransmitted[slot] += is_fresh
                continue
            if self.table[LATE * self.rows + row] and is_fresh:
                out_of_order[slot] += 1
            if reach[slot] > at:
                self.trim(row, reach[slot] - at)
            gap[kept] = max(at - max(reach[slot], next_position[slot]), 0)
            reach[slot] = at + span
            if kept < row:
                for column in range(COLUMNS):
                    self.table[column * self.rows + kept] = self.table[column * self.rows + row]
            kept += 1
        return kept


def trim_segments(
    fresh: int, reach: IntsOut, next_position: Ints, retransmitted: IntsOut, out_of_order: IntsOut,
    gap: IntsOut, table: IntsOut,
) -> int:  # fmt: skip
    trimming: _Trimming = _Trimming()
    first: Int = fresh
    kept: Int
    trimming.table, trimming.rows = table, len(table) // COLUMNS
    with cython.nogil:
        kept = trimming.run(first, reach, next_position, retransmitted, out_of_order, gap)
    return kept


@cython.final
@cython.cclass
class _Reading:
    """The end of each stream, and when its last byte became readable."""

    end: IntsOut
    readable: IntsOut

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def run(
        self, slot: Ints, at: Ints, span: Ints, next_position: Ints, readable_before: Ints,
        time: IntsOut,
    ) -> cython.int:  # fmt: skip
        """`read_segments`."""
        row: Int
        stream: Int
        for row in range(slot.shape[0]):
            stream = slot[row]
            if at[row] >= next_position[stream]:
                time[row] = max(time[row], readable_before[stream])
            time[row] = max(time[row], self.readable[stream])
            self.readable[stream] = time[row]
            self.end[stream] = max(self.end[stream], at[row] + span[row])
        return 0


def read_segments(
    slot: Ints, at: Ints, span: Ints, next_position: Ints, readable_before: Ints, time: IntsOut,
    end: IntsOut, readable: IntsOut,
) -> None:  # fmt: skip
    reading: _Reading = _Reading()
    reading.end, reading.readable = end, readable
    with cython.nogil:
        reading.run(slot, at, span, next_position, readable_before, time)
