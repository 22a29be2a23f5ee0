"""Many files as one capture, in order of time: the `PacketSource` of files and pipes.

The first packet of each file is read beforehand, so that files are opened only when they are
needed. While a single file has packets of a time, they are passed on unchanged; this is the normal
case for a capture that was rotated from file to file.

If files overlap, a part of each is buffered. Packets can be passed on if they are not later than
the earliest of the parts' last packets, nor than the first packet of a file that is still closed,
since no earlier packet can follow. They are sorted by time, stably, and their bytes are copied into
one array. Headers are read after this step, so that fragments of an IP packet in different files
are reassembled.

A `TimeRange` limits a source to the packets between two times, so that several processes can read
parts of overlapping or compressed files (`dissector.runs`). Each packet is in one range.

Within a file, packets keep their order, even if their times do not ascend (a capture on several
cores): a packet counts as no earlier than the packets before it. A time that is far later than
those before it may be wrong. So it counts only if the next packet has a similar time, or a later
one: else one wrong time would delay the rest of the file. A pipe cannot be read beforehand, so it
counts as beginning before all files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop
from itertools import zip_longest

import numpy as np

from dissector.arrays import value
from dissector.errors import CaptureError
from dissector.packets.block import PAD, Bytes, Int32, Int64, PacketBlock
from dissector.packets.formats.capture_reader import (
    NO_PACKETS,
    CaptureFormat,
    CaptureReader,
    Interface,
    Memory,
    PacketColumns,
    PacketRecords,
)
from dissector.packets.formats.unreadable_files import CHANGED_LINE_FEEDS, has_changed_line_feeds
from dissector.packets.layers.fragments import Fragments
from dissector.packets.layers.parser import parse_packets
from dissector.packets.paths import find, first_times, no_capture, open_reader
from dissector.problems import UNREADABLE, Problem

BLOCK_BYTES = 48 << 20
PACKETS = 96_000
"""Limits of a block: bytes, and approximate number of packets. Smaller blocks cost time in each
later stage, larger blocks cost memory."""
PACKET_BYTES = 160.0
"""Assumed size of a packet before the first one was read."""
SMALLEST_BLOCK = 1 << 16
_EXPANSION = 4
"""Bytes of a block to allocate for each byte of a small file, which may be compressed."""
_MOST_PARTS = 4096
"""Maximum number of ranges of files in a block."""
_NO_TIMES = np.empty(0, np.int64)
_RECENT = 8
"""Number of packets of which the earliest one shows the current time."""
_LEAP = 600 * 10**9
"""ns. A time that is this much later than those before it needs the next packet to confirm it. In
such a pause, no exchange is pending: Kafka closes connections that are idle for ten minutes
(`connections.max.idle.ms`)."""
BEFORE_ALL, AFTER_ALL = -(1 << 63), (1 << 63) - 1


def open_packets(
    paths: Sequence[str | os.PathLike[str]], *, block_bytes: int = BLOCK_BYTES
) -> FileSource:
    """The packets of files, folders, patterns and pipes (``-``: standard input), as one capture.

    `block_bytes`: approximate size of a block in bytes. An unreadable file becomes a `Problem` in
    the first block. Raises CaptureError with the reasons if no file can be read.
    """
    files = find(paths)
    if not files and paths:
        raise CaptureError(no_capture(*paths))
    return FileSource(files, block_bytes)


@value
class TimeRange:
    """The packets from `since` to before `until`, in the order of time of a `FileSource`; ns."""

    files: tuple[tuple[int, int], ...]
    """Time of the first packet, and index in the names, of each file that may have such packets."""
    since: int
    until: int
    is_last: bool
    """Whether no range follows, so that incomplete IP packets are reported."""


class Lane:
    """An open file: its buffered packets, and how many of them were passed on."""

    def __init__(self, index: int, reader: CaptureReader, start: int) -> None:
        self.index = index
        self.reader = reader
        self.start = start
        self.records: PacketRecords | None = None
        self.order: Int64 = np.empty(0, np.int64)
        """Time of each packet, at least that of the packet before it; without wrong times."""
        self.latest = start
        """Latest time of all packets so far, without wrong times."""
        self._leap: int | None = None
        """Time of the last packet that was read, if the next one must confirm it. Until then, it
        counts like the packet before it."""
        self.done = 0

        self.is_fresh = True
        """Whether no buffered packet was passed on."""
        self.is_over = False
        """Whether the packets that follow are after the range."""

    def hold(self, records: PacketRecords, since: int, until: int) -> PacketRecords:
        """Buffer the packets from `since` to before `until`; returns a part without packets if
        there are none."""
        earlier = self.latest
        order = self._ordered(records.columns.time)
        begin, end = np.searchsorted(order, [since, until]).tolist()
        if records.problems:
            times = _times_of_problems(records, order, earlier)
            known = zip(records.problems, times, strict=True)
            problems = [problem for problem, time in known if since <= time < until]
            records = replace(records, problems=problems)
        if end - begin < len(order):
            size = records.bytes_read * (end - begin) // len(order)
            records = replace(records, bytes_read=size)
        self.is_over = end < len(order)
        if begin == end:
            return replace(records, columns=NO_PACKETS, number=records.number[:0])
        self.records, self.order, self.done, self.is_fresh = records, order[:end], begin, True
        return records

    def _ordered(self, times: Int64) -> Int64:
        """The `order` of the next packets."""
        if not len(times):
            return times
        if self.latest == BEFORE_ALL:
            self.latest = _start(times)
        order = np.maximum(np.maximum.accumulate(times), self.latest)
        has_leap = order[-1] - self.latest > _LEAP
        if has_leap and order[0] - self.latest <= _LEAP:
            has_leap = (order[1:] - order[:-1] > _LEAP).any()
        if has_leap or self._leap is not None:
            pairs = zip_longest(times.tolist(), times[1:].tolist())
            order = np.array([self._place(*pair) for pair in pairs], np.int64)
        self.latest = int(order[-1])
        return order

    def _place(self, time: int, following: int | None) -> int:
        """The time at which the next packet counts. `following`: time of the packet after it, if
        it was read."""
        if self._leap is not None and time >= self._leap - _LEAP:
            self.latest = max(self.latest, min(time, self._leap))
        self._leap = None
        if time - self.latest <= _LEAP or (following is not None and following >= time - _LEAP):
            self.latest = max(self.latest, time)
        elif following is None:
            self._leap = time
        return self.latest


def _start(times: Int64) -> int:
    """The time at which a file with packets begins: that of its first packet. If both packets after
    it are earlier, it is wrong."""
    first = np.sort(times[:3])
    return int(min(times[0], first[(len(first) - 1) // 2]))


def _times_of_problems(records: PacketRecords, order: Int64, earlier: int) -> list[int]:
    """The time of each problem: that of the packet before it. `earlier`: before the first one."""
    at = records.columns.start - records.reserve + records.offset
    times = np.append(order, earlier)
    offsets = [AFTER_ALL if each.offset is None else each.offset for each in records.problems]
    before = np.searchsorted(at, np.array(offsets, np.int64)) - 1
    return [int(time) for time in times[before]]


class FileSource:
    """The `PacketSource` that `open_packets` returns."""

    def __init__(self, paths: list[str], block_bytes: int, limits: TimeRange | None = None) -> None:
        """`limits`: only its files, by their index in `paths`, and its packets."""
        self.names: list[str] = []
        self.total_bytes: int | None = 0
        self.secrets: list[bytes] = []
        """TLS key logs in pcapng files; those at the head of a file are known from the start."""
        self.comments: list[str] = []
        """Comments at the head of pcapng files."""
        self.memory: Memory | None = None
        """Memory for blocks of a single file; None: the memory of the file's reader."""
        self.block_bytes = block_bytes
        """Approximate size of a block in bytes."""
        self._packet_bytes = PACKET_BYTES
        self._problems: list[Problem] = []  # not yet passed on
        self._lanes: list[Lane] = []
        self._formats: dict[int, CaptureFormat] = {}  # of all files that were opened
        self._fragments = Fragments()
        self._recent = np.empty(0, np.int64)  # times of the last packets
        # Files to come: time of first packet, index; a heap.
        self._closed: list[tuple[int, int]] = []
        self.sizes: list[int] = []
        """Bytes of each file, before decompression."""
        self.last_times: dict[int, int] = {}
        """Time of the latest packet of small files, ns, by index; `BEFORE_ALL` without packets."""
        self.pending: list[tuple[int, int]] = []
        """Files with packets after the range: time of the first packet, and index."""
        self._limits = limits or TimeRange((), BEFORE_ALL, AFTER_ALL, is_last=True)
        if limits is not None:
            self.names, self._closed = paths, sorted(limits.files)
            return
        for path in paths:
            try:
                self._add(path)
            except CaptureError as error:
                self._cannot_read(path, error)
        self._closed.sort()
        if not self.names:
            reasons = "; ".join(problem.detail for problem in self._problems)
            raise CaptureError(reasons or "there is no capture file")

    def _add(self, path: str) -> None:
        """Read the first packet of a file. A pipe stays open, since it can be read only once."""
        index = len(self.names)
        if (plain := first_times(path, SMALLEST_BLOCK)) is not None:
            size, times, is_whole = plain
            self.names.append(path)
        else:
            reader = open_reader(path, self.secrets)
            self.names.append(path)
            if reader.size is None:
                self.total_bytes = None
                self._add_lane(index, reader, BEFORE_ALL)
                return
            records = reader.read(0, SMALLEST_BLOCK)
            if records and reader.is_damaged and has_changed_line_feeds(records.data):
                problem = Problem("packets", "damaged_file", CHANGED_LINE_FEEDS, capture=path)
                self._problems.append(problem)
            is_whole = reader.has_ended and records is not None
            reader.close()
            self.comments += reader.form.comments
            size, times = reader.size, records.columns.time if records else _NO_TIMES
        self.sizes.append(size)
        if self.total_bytes is not None:
            self.total_bytes += size
        if is_whole:
            self.last_times[index] = int(times.max(initial=BEFORE_ALL))
        self._closed.append((_start(times) if len(times) else BEFORE_ALL, index))

    def _add_lane(self, index: int, reader: CaptureReader, start: int) -> None:
        self._formats[index] = reader.form
        self._lanes.append(Lane(index, reader, start))

    def _cannot_read(self, path: str, error: CaptureError) -> None:
        self._problems.append(Problem("packets", UNREADABLE, str(error), capture=path))

    @property
    def sequence(self) -> list[tuple[int, int]] | None:
        """Index, and time of the first packet, of each file, in order of time.

        None if a file was read already, cannot be read again, or has a problem.
        """
        if self._lanes or self._problems or self.total_bytes is None:
            return None
        return [(index, start) for start, index in self._closed]

    def take_problems(self) -> list[Problem]:
        """Problems of files that cannot be read, which `read` then does not return."""
        problems, self._problems = self._problems, []
        return problems

    def close(self) -> None:
        for lane in self._lanes:
            lane.reader.close()
        self._lanes.clear()
        self._closed.clear()

    def read(self, reserve: int) -> PacketBlock | None:
        """The next packets in order of time, with `reserve` free bytes before them.

        A block may have no rows, only problems and counts. None at the end.
        """
        records = self._next(reserve)
        block = records and parse_packets(*records, self.names, self._fragments)
        if records and block is not None:
            block = replace(block, until=self._now(records[0].columns.time))
        if block is None and self._limits.is_last:
            self._problems += self._fragments.finish()
        if self._problems:
            block = PacketBlock.empty(reserve) if block is None else block
            block = replace(block, problems=self._problems + block.problems)
            self._problems = []
        return block

    def _now(self, times: Int64) -> int | None:
        """The time after these packets: that of the earliest of the last `_RECENT` packets. So no
        wait ends early because a packet has a wrong time, or because the clock was set back."""
        self._recent = np.concatenate([self._recent, times[-_RECENT:]])[-_RECENT:]
        return int(self._recent.min()) if len(self._recent) else None

    def read_records(self) -> tuple[PacketRecords, Int32] | None:
        """The next packets, of any kind, with their files; their headers are not read.

        None at the end. Do not mix it with `read`.
        """
        return self._next(0)

    def interfaces(self, file: int) -> Sequence[Interface]:
        """The interfaces that a file has described so far."""
        form = self._formats.get(file)
        return form.interfaces if form else ()

    @property
    def host_names(self) -> list[tuple[str, str]]:
        """Addresses with their names, from all files that were read so far."""
        return [pair for form in self._formats.values() for pair in form.host_names]

    def _next(self, reserve: int) -> tuple[PacketRecords, Int32] | None:
        parts: list[_RecordRange] = []
        size, latest = 0, 0
        # If packets have the size of the last ones.
        room = min(self.block_bytes, int(PACKETS * self._packet_bytes))
        while size + latest < room and len(parts) < _MOST_PARTS:
            ranges = self._ranges(reserve, room - size)
            parts += ranges
            latest = sum(part.bytes for part in ranges)
            size += latest
            if not ranges or self.total_bytes is None:  # what a pipe has returned does not wait
                break
        if not parts:
            return None
        if len(parts) == 1 and parts[0].is_whole and parts[0].records.reserve == reserve:
            return parts[0].records, _captures(parts)
        return _merge(parts, reserve, self.memory or Memory())

    def _ranges(self, reserve: int, room: int) -> list[_RecordRange]:
        """The next packets in order of time, from each open file; none at the end.

        A range may have only problems and counts.
        """
        while self._lanes or self._closed:
            if not self._lanes:
                self._open()
            for lane in [lane for lane in self._lanes if lane.records is None]:
                records = None if lane.is_over else self._read(lane, reserve, room)
                if records is None:
                    self._end(lane)
                    continue
                records = lane.hold(records, self._limits.since, self._limits.until)
                if not len(records.number):
                    return [_RecordRange(records, lane.index, lane.order[:0], 0, 0, is_fresh=True)]
            if not self._lanes:
                continue
            frontier = min(lane.latest for lane in self._lanes)
            if self._closed and self._closed[0][0] <= frontier:
                self._open()
            else:
                return self._pass_on(frontier)
        return []

    def _end(self, lane: Lane) -> None:
        """Close a file."""
        self._lanes.remove(lane)
        lane.reader.close()
        if lane.is_over:
            self.pending.append((lane.start, lane.index))

    def _open(self) -> None:
        """Open the file with the earliest first packet."""
        start, index = heappop(self._closed)
        try:
            reader = self._reader(index)
        except CaptureError as error:  # it was readable when its first packet was read
            self._cannot_read(self.names[index], error)
        else:
            self._add_lane(index, reader, start)
            self._lanes.sort(key=lambda lane: lane.index)

    def _reader(self, index: int) -> CaptureReader:
        """A reader of a file; for files that grow, a subclass begins after what was read. Raises
        CaptureError."""
        return open_reader(self.names[index], self.secrets)

    def _read(self, lane: Lane, reserve: int, room: int) -> PacketRecords | None:
        # Buffers of overlapping files have about the size of one block in all.
        room = min(max(room // len(self._lanes), SMALLEST_BLOCK), self.block_bytes)
        size = lane.reader.size
        if len(self.names) > 1 and size is not None and _EXPANSION * size < room:
            # It becomes a part of a block. To allocate megabytes takes longer than to read it.
            has_rest = lane.index not in self.last_times  # after `SMALLEST_BLOCK`
            return lane.reader.read(0, max(_EXPANSION * size * has_rest, SMALLEST_BLOCK))
        memory = self.memory if len(self._lanes) == 1 else None
        records = lane.reader.read(reserve, room, memory)
        if records is not None and len(records.number):
            self._packet_bytes = (len(records.data) - reserve) / len(records.number)
        return records

    def _pass_on(self, frontier: int) -> list[_RecordRange]:
        """All buffered packets that are not later than `frontier`, at least one."""
        parts: list[_RecordRange] = []
        for lane in self._lanes:
            assert lane.records
            until = int(np.searchsorted(lane.order, frontier, side="right"))
            if until > lane.done:
                place = lane.index, lane.order, lane.done, until
                parts.append(_RecordRange(lane.records, *place, lane.is_fresh))
                lane.is_fresh = False
            lane.done = until
            if until == len(lane.order):
                lane.records = None
        return parts


@value
class _RecordRange:
    """Packets [begin, end) of a range of one file."""

    records: PacketRecords
    index: int
    """Index of the file."""
    times: Int64
    """See `Lane.order`."""
    begin: int
    end: int
    is_fresh: bool
    """Whether it is the first range of these packets that is passed on."""

    @property
    def bytes(self) -> int:
        """Bytes of the packets, and between them."""
        if self.begin == self.end:
            return 0
        columns, last = self.records.columns, self.end - 1
        return int(columns.start[last] + columns.captured[last] - columns.start[self.begin])

    @property
    def is_whole(self) -> bool:
        return self.begin == 0 and self.end == len(self.records.number)

    @property
    def rows(self) -> slice:
        return slice(self.begin, self.end)

    def copy_to(self, data: Bytes, at: int) -> tuple[PacketColumns, int]:
        """Copy the bytes to position `at` of `data`. Returns the packets there, and their end."""
        columns = self.records.columns[self.rows]  # they have the same order in the data
        first = int(columns.start[0])
        data[at : at + self.bytes] = self.records.data[first : first + self.bytes]
        return replace(columns, start=columns.start + (at - first)), at + self.bytes


def _captures(parts: list[_RecordRange]) -> Int32:
    """The file of each packet."""
    index = np.array([part.index for part in parts], np.int32)
    return np.repeat(index, [part.end - part.begin for part in parts])


def _merge(parts: list[_RecordRange], reserve: int, memory: Memory) -> tuple[PacketRecords, Int32]:
    """The packets of all parts in order, with a copy of their bytes; the file of each packet."""
    fresh = [part.records for part in parts if part.is_fresh]
    parts = [part for part in parts if part.end > part.begin]
    data = memory.take(reserve + sum(part.bytes for part in parts) + PAD)
    columns: list[PacketColumns] = []
    end = reserve
    for part in parts:
        moved, end = part.copy_to(data, end)
        columns.append(moved)
    data[end:] = 0
    capture = _captures(parts)
    number = np.concatenate(
        [np.empty(0, np.int64), *(part.records.number[part.rows] for part in parts)]
    )
    time = np.concatenate([np.empty(0, np.int64), *(part.times[part.rows] for part in parts)])
    joined = PacketColumns.joined(columns or [NO_PACKETS])
    if (time[1:] < time[:-1]).any():
        order = np.argsort(time, kind="stable")
        joined, number, capture = joined[order], number[order], capture[order]
    records = PacketRecords(
        data=data,
        reserve=reserve,
        columns=joined,
        number=number,
        bytes_read=sum(each.bytes_read for each in fresh),
        problems=[problem for each in fresh for problem in each.problems],
    )
    return records, capture
