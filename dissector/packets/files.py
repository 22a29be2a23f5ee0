"""Many files as one capture, in order of time: the `PacketSource` of files and pipes.

Each file's first packet is looked at before anything is read, so that files are opened only when
their time has come. As long as one file alone has packets of a time, its blocks are handed on as
they were read; that is so for a capture that was rotated from file to file.

Where files overlap, a block of each is held. What may go out is what lies not after the earliest
of their last packets, nor after the first packet of a file that is still closed: nothing can come
before it any more. Those rows are sorted by time, stably, and their bytes copied into one array.

Within a file packets keep the order of the file, also where their times do not ascend (a capture on
several cores): a packet counts as no earlier than the ones before it. A pipe cannot be looked at
beforehand, so that it counts as beginning before all files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dissector.errors import CaptureError
from dissector.packets.block import PAD, Bytes, Int64, PacketBlock
from dissector.packets.fragments import Fragments
from dissector.packets.layers import segments
from dissector.packets.paths import find, open_reader
from dissector.packets.records import CaptureReader, Columns, Memory, Records
from dissector.problems import Problem

BLOCK_BYTES = 1 << 26
PACKETS = 100_000
"""Bytes and, about, packets of a block, whichever are fewer: smaller blocks cost time in each later
stage, larger ones memory."""
_PACKET_BYTES = 160.0
"""What a packet is taken to be before the first was seen."""
_SMALLEST_BLOCK = 1 << 16
_BEFORE_ALL = -(1 << 63)
_COLUMNS = (
    *("capture", "number", "time", "src_high", "src_low", "dst_high", "dst_low", "src_port"),
    *("dst_port", "seq", "ack", "flags", "window", "captured", "length"),
)


def open_packets(
    paths: Sequence[str | os.PathLike[str]], *, block_bytes: int = BLOCK_BYTES
) -> FileSource:
    """The packets of files, folders, patterns and pipes (``-``: standard input), as one capture.

    `block_bytes`: about how many bytes of capture make a block. A file that cannot be read becomes
    a `Problem` in the first block as long as there are others. Raises CaptureError where none of
    them can be read, and says why.
    """
    return FileSource(find(paths), block_bytes)


class _Lane:
    """An open file: the block of it that is held, and how many of its rows were handed on."""

    def __init__(self, index: int, reader: CaptureReader) -> None:
        self.index = index
        self.reader = reader
        self.block: PacketBlock | None = None
        self.order: Int64 = np.empty(0, np.int64)
        """Time of each row of the block, but not before the row before it."""
        self.latest = _BEFORE_ALL
        """Of all rows so far."""
        self.done = 0
        self.fragments = Fragments()

    def hold(self, block: PacketBlock) -> None:
        """Hold a block that has rows."""
        self.block, self.done = block, 0
        self.order = np.maximum(np.maximum.accumulate(block.time), self.latest)
        self.latest = int(self.order[-1])


class FileSource:
    """The `PacketSource` that `open_packets` returns."""

    def __init__(self, paths: list[str], block_bytes: int) -> None:
        self.names: list[str] = []
        self.total_bytes: int | None = 0
        self.secrets: list[bytes] = []
        """TLS key logs that pcapng files carry; those at the head of a file from the start."""
        self.memory: Memory | None = None
        """Where blocks that are handed on as they were read are to be read to."""
        self.block_bytes = block_bytes
        """About how many bytes make a block."""
        self._packet_bytes = _PACKET_BYTES
        self._problems: list[Problem] = []  # not yet handed on
        self._lanes: list[_Lane] = []
        self._closed: list[tuple[int, int]] = []  # files to come: time of first packet, index
        for path in paths:
            try:
                self._add(path)
            except CaptureError as error:
                self._cannot_read(path, error)
        self._closed.sort()
        if not self.names:
            reasons = "; ".join(problem.detail for problem in self._problems)
            raise CaptureError(reasons or "no capture was found")

    def _add(self, path: str) -> None:
        """Look at the first packet of a file; keep a pipe open, since it can be read once only."""
        index = len(self.names)
        reader = open_reader(path, self.secrets)
        self.names.append(path)
        if reader.size is None:
            self.total_bytes = None
            self._lanes.append(_Lane(index, reader))
            return
        if self.total_bytes is not None:
            self.total_bytes += reader.size
        records = reader.read(0, _SMALLEST_BLOCK)
        reader.close()
        start = int(records.columns.time[0]) if records and len(records.number) else _BEFORE_ALL
        self._closed.append((start, index))

    def _cannot_read(self, path: str, error: CaptureError) -> None:
        self._problems.append(Problem("packets", "unreadable_file", str(error), capture=path))

    def close(self) -> None:
        """Give back all files."""
        for lane in self._lanes:
            lane.reader.close()
        self._lanes.clear()
        self._closed.clear()

    def read(self, reserve: int) -> PacketBlock | None:
        """The next packets in order of time, with `reserve` free bytes before them.

        A block may have no rows, only problems and counts. None at the end.
        """
        block = self._next(reserve)
        if self._problems:
            block = _empty(reserve) if block is None else block
            block = replace(block, problems=self._problems + block.problems)
            self._problems = []
        return block

    def _next(self, reserve: int) -> PacketBlock | None:
        while self._lanes or self._closed:
            if not self._lanes:
                self._open()
            for lane in [lane for lane in self._lanes if lane.block is None]:
                block = self._read(lane, reserve)
                if block is None:
                    self._lanes.remove(lane)
                    self._problems += lane.fragments.finish(lane.reader.name)
                elif not len(block):
                    return block
                else:
                    lane.hold(block)
            if not self._lanes:
                continue
            frontier = min(lane.latest for lane in self._lanes)
            if self._closed and self._closed[0][0] <= frontier:
                self._open()
            else:
                return self._hand_on(frontier, reserve)
        return None

    def _open(self) -> None:
        """Open the file that begins first."""
        _, index = self._closed.pop(0)
        try:
            reader = open_reader(self.names[index], self.secrets)
        except CaptureError as error:  # it was there when its first packet was looked at
            self._cannot_read(self.names[index], error)
        else:
            self._lanes.append(_Lane(index, reader))
            self._lanes.sort(key=lambda lane: lane.index)

    def _read(self, lane: _Lane, reserve: int) -> PacketBlock | None:
        # However many files overlap, all that is held together is about one block.
        room = min(self.block_bytes, int(PACKETS * self._packet_bytes)) // len(self._lanes)
        room = min(max(room, _SMALLEST_BLOCK), self.block_bytes)
        memory = self.memory if len(self._lanes) == 1 else None
        records = lane.reader.read(reserve, room, memory)
        if records is None:
            return None
        block = segments(records, lane.index, lane.reader.name, lane.fragments)
        if block.packets_seen:
            self._packet_bytes = (len(block.data) - reserve) / block.packets_seen
        return block

    def _hand_on(self, frontier: int, reserve: int) -> PacketBlock:
        """All rows that are held and not after `frontier`, at least one."""
        parts: list[_Part] = []
        for lane in self._lanes:
            assert lane.block
            until = int(np.searchsorted(lane.order, frontier, side="right"))
            if until > lane.done:
                parts.append(_Part(lane.block, lane.order, lane.done, until))
            lane.done = until
            if until == len(lane.block):
                lane.block = None
        if len(parts) == 1 and parts[0].is_whole and parts[0].block.reserve == reserve:
            return parts[0].block
        return _merge(parts, reserve)


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows [begin, end) of a block."""

    block: PacketBlock
    order: Int64
    begin: int
    end: int

    @property
    def is_whole(self) -> bool:
        return self.begin == 0 and self.end == len(self.block)


def _merge(parts: list[_Part], reserve: int) -> PacketBlock:
    """One block of all parts, in their order, with a copy of the bytes that they need."""
    pieces: list[Bytes] = [np.empty(reserve, np.uint8)]
    payloads: list[Int64] = []
    size = reserve
    for part in parts:
        rows = slice(part.begin, part.end)
        payload = part.block.payload[rows]
        first = int(payload[0])
        piece = part.block.data[first : int((payload + part.block.captured[rows]).max())]
        payloads.append(payload - first + size)
        pieces.append(piece)
        size += len(piece)
    order = np.argsort(np.concatenate([p.order[p.begin : p.end] for p in parts]), kind="stable")
    columns = {
        name: np.concatenate([getattr(p.block, name)[p.begin : p.end] for p in parts])[order]
        for name in _COLUMNS
    }
    fresh = [part.block for part in parts if part.begin == 0]  # whose counts were not yet told
    return PacketBlock(
        data=np.concatenate([*pieces, np.zeros(PAD, np.uint8)]),
        reserve=reserve,
        payload=np.concatenate(payloads)[order],
        packets_seen=sum(block.packets_seen for block in fresh),
        bytes_read=sum(block.bytes_read for block in fresh),
        problems=[problem for block in fresh for problem in block.problems],
        until=None,
        **columns,
    )


def _empty(reserve: int) -> PacketBlock:
    data: Bytes = np.zeros(reserve + PAD, np.uint8)
    records = Records(data, reserve, Columns.join([]), np.empty(0, np.int64), 0, [])
    return segments(records, 0, "", Fragments())
