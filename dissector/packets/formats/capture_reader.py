"""Reads the packets of a capture file into arrays. Their headers are not parsed here.

A capture file is a chain of records: each record has its length, and thus the position of the next
one. `CaptureReader` reads the file block by block into arrays laid out as a block's data, and a
`CaptureFormat` follows the chain through each block. A record that crosses the end of a block is
copied to the front of the next one; no other byte is copied.

The chain breaks at a record with impossible values. The format then searches for the next position
where records follow each other, and the skipped bytes become one `Problem`. The search ends after
SEARCH_BYTES, and a file may break DAMAGE_LIMIT times, so that the time for any file is proportional
to its length. If the file ends inside a record, it was truncated, which is a `Problem` too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dissector.arrays import arrays, value
from dissector.packets.block import PAD, Bytes, Int32, Int64
from dissector.packets.formats.byte_input import ByteInput, RangeSource
from dissector.parallel_arrays import ParallelArrays
from dissector.problems import Problem

PACKET_LIMIT = 1 << 18
"""Bytes of one packet; libpcap's MAXIMUM_SNAPLEN, which no writer of pcap files passes."""
WIRE_LIMIT = 1 << 20
"""Bytes of one packet on the wire. Linux joins segments to packets of up to 524,280 bytes (BIG TCP,
GSO_MAX_SIZE)."""
SEARCH_BYTES = 1 << 24
"""How far to search for the next valid record before the file is abandoned."""
SEARCH_WINDOW = 1 << 18
"""Maximum number of positions searched together: each takes fifty bytes of memory."""
SEARCH_OVERLAP = 64
"""Bytes of one piece to search again with the next; no format's record header is longer."""
DAMAGE_LIMIT = 1000
"""Number of damaged places after which a file is abandoned."""


class Fields(Protocol):
    """An array of structures of numbers, by field: type checkers take long for `dtype[Any]`."""

    def __getitem__(self, name: str, /) -> NDArray[np.integer[Any]]: ...


def gather(data: Bytes, at: Int64 | slice, layout: np.dtype[np.void]) -> NDArray[np.void]:
    """The structures of `layout` that begin at each position; each must lie inside `data`."""
    size = layout.itemsize
    count = max(len(data) - size + 1, 0)
    # Opaque items, since NumPy copies those in one move each, and fields one by one.
    structures: NDArray[np.void] = np.ndarray((count,), f"V{size}", data, strides=(1,))
    return structures[at].view(layout)


def first_record(begin: int, end: int, records: Callable[[int, int], Int64]) -> int | None:
    """The first position from `begin` to before `end` at which a record seems to begin.

    `records`: all such positions of a range, which grows up to SEARCH_WINDOW.
    """
    window = 1 << 12
    while begin < end:
        until = min(begin + window, end)
        positions = records(begin, until)
        if len(positions):
            return int(positions[0])
        begin, window = until, min(window * 2, SEARCH_WINDOW)
    return None


@arrays
class PacketColumns(ParallelArrays):
    """Packets in the order of the file, as arrays of shape (n,)."""

    start: Int64
    """Position in the data of the first captured byte."""
    captured: Int64
    """Bytes that are in the capture."""
    length: Int64
    """Bytes that were on the wire."""
    time: Int64
    """ns since 1970, UTC."""
    link: Int32
    """Link type, as registered at tcpdump.org; -1 if unknown."""
    interface: Int32
    """Index into the interfaces of the file or capture; -1 if unknown."""


NO_PACKETS = PacketColumns(*np.zeros((4, 0), np.int64), *np.zeros((2, 0), np.int32))


@value
class Interface:
    """An interface that a capture file describes."""

    link: int
    """Link type."""
    snaplen: int
    """Maximum number of captured bytes of a packet; 0 for no limit."""
    resolution: int
    """if_tsresol of pcapng: the unit of times."""
    options: tuple[tuple[int, bytes], ...] = ()
    """Options of pcapng, by code, in the byte order of the file."""
    order: str | None = None
    """Byte order of the packet blocks of pcapng; None for pcap."""
    origin: int = 0
    """if_tsoffset of pcapng: the time from which its times count; ns."""


@arrays
class ScanResult:
    """The complete packets that one pass over a buffer found, and where it stopped."""

    columns: PacketColumns
    stop: int
    """Position after the last complete record."""
    search: int
    """Position at which to search for the next record if the chain is broken at `stop`."""
    is_broken: bool = False
    """The chain is broken there; otherwise bytes are missing."""
    problems: list[Problem] = field(default_factory=list)
    """Offsets are positions in the buffer; packet numbers are counted from 1 in `columns`."""


class Memory:
    """Memory for successive blocks, reused once nothing refers to it.

    Fresh memory costs more than filling it: the kernel clears it, page by page, and it is not
    in the processor's cache. `blocks`: number of blocks in use at a time.
    """

    def __init__(self, blocks: int = 1) -> None:
        self._kept: list[Bytes] = [np.empty(0, np.uint8) for _ in range(blocks)]

    def take(self, size: int) -> Bytes:
        """An array of `size` bytes with arbitrary content."""
        # Every view of an array refers to the array that owns its memory. So if only the list
        # refers to it (and the argument of the call that counts), no block is in use.
        kept = self._kept
        free = [index for index in range(len(kept)) if sys.getrefcount(kept[index]) <= 2]
        index = free[0] if free else 0
        if not free or len(self._kept[index]) < size:
            self._kept[index] = np.empty(size + size // 8, np.uint8)
        return self._kept[index][:size]


class CaptureFormat(Protocol):
    """A capture file format, with its state for one file."""

    @property
    def context(self) -> object:
        """State that later packets depend on; equal states read packets equally."""

    @property
    def interfaces(self) -> Sequence[Interface]:
        """The interfaces described so far; `PacketColumns.interface` is an index into them."""

    @property
    def comments(self) -> Sequence[str]:
        """The comments on the whole file that were read so far."""

    @property
    def host_names(self) -> Sequence[tuple[str, str]]:
        """Addresses with their names that were read so far; an address may have several."""

    def scan(self, data: Bytes, begin: int, end: int, *, final: bool = True) -> ScanResult:
        """Follow the chain from `begin` through data[begin:end]. `final`: no bytes follow."""

    def search(self, data: Bytes, begin: int, end: int, *, final: bool) -> int | None:
        """The first position from `begin` on at which a chain of records seems to begin.

        `final`: no bytes follow data[:end], so that a record must end inside it.
        """


@arrays
class PacketRecords:
    """The captured packets of a range of one file."""

    data: Bytes
    """uint8; [reserve free bytes | bytes as read | PAD]."""
    reserve: int
    columns: PacketColumns
    number: Int64
    """Packet number in the file, 1-based; shape (n,)."""
    bytes_read: int
    """Bytes of input that this range took."""
    problems: list[Problem]
    offset: int = 0
    """Position in the file of the first byte after the reserve."""


@value
class ReadState:
    """Where a reader stopped, so that another one can continue."""

    form: CaptureFormat
    offset: int
    """Offset in the file after the last packet."""
    packets: int = 0
    """Number of packets before it."""
    lost_at: int | None = None
    """Offset of damage that began before `offset`."""
    damages: int = 0


class CaptureReader:
    """Reads one capture, block by block, from the state at which another reader stopped.

    `source`: the bytes from the offset of `state` on, without those in `head`.
    """

    def __init__(
        self, name: str, source: ByteInput | RangeSource, state: ReadState, *, head: bytes = b""
    ) -> None:
        self.name = name
        self.size = None if source.is_stream else source.size
        """Bytes of the file, before decompression; None for a pipe, which can be read only once."""
        self.form = state.form
        self.has_ended = False
        """Whether all packets were read, or the file was closed."""
        self.is_exhausted = False
        """Whether the input is a range of the file, which was read to its end."""
        self._input = source
        self._carry = head
        self._offset = state.offset  # in the decompressed file, of the first byte of `_carry`
        self._consumed = 0  # bytes of input that were reported
        self._packets = state.packets
        self._damages = state.damages
        self._lost_at = state.lost_at  # offset in the file at which the chain broke
        self._memory = Memory()

    @property
    def state(self) -> ReadState:
        """Where the next read begins."""
        return ReadState(self.form, self._offset, self._packets, self._lost_at, self._damages)

    @property
    def is_between_packets(self) -> bool:
        """Whether all bytes so far were packets."""
        return not self._carry and self._lost_at is None

    @property
    def is_damaged(self) -> bool:
        """Whether bytes so far were not packets."""
        return self._damages > 0 or self._lost_at is not None

    def problems_at(self, end: int) -> list[Problem]:
        """Problems of the bytes after the last packet, if the file ends at `end`."""
        problems = self._last_words(self._offset, end, final=True)
        return [replace(problem, capture=self.name) for problem in problems]

    def close(self) -> None:
        self._input.close()
        self.has_ended = True

    def read(self, reserve: int, room: int, memory: Memory | None = None) -> PacketRecords | None:
        """The packets in the next `room` bytes of the file, or in a longer range; None at the end.

        A pipe is read until a complete packet has arrived. `memory`: takes the bytes.
        """
        while not self.has_ended:
            records = self._read_once(reserve, room, memory or self._memory)
            is_over = self.has_ended or self.is_exhausted
            if len(records.number) or records.problems or is_over:
                self._consumed += records.bytes_read
                return records
        return None

    def _read_once(self, reserve: int, room: int, memory: Memory) -> PacketRecords:
        fresh = reserve + len(self._carry)
        data = memory.take(fresh + room + PAD)
        if self._carry:
            data[reserve:fresh] = np.frombuffer(self._carry, np.uint8)
        got, final = self._input.fill(data.data[fresh : fresh + room])
        end = fresh + got
        self.is_exhausted = not got
        if got < room // 2:  # a short piece must not keep a large array alive
            large, data = data, np.empty(end + PAD, np.uint8)
            data[reserve:end] = large[reserve:end]
        data = data[: end + PAD]
        data[end:] = 0

        base = self._offset - reserve
        columns, problems, stop = self._scan(data, reserve, end, final)
        if final or self._is_hopeless(base + end):
            problems += self._last_words(base + stop, base + end, final)
            self.close()
        self._carry = data[stop:end].tobytes()
        offset, self._offset = self._offset, base + stop
        first, self._packets = self._packets + 1, self._packets + len(columns.start)
        number = np.arange(first, self._packets + 1)
        problems = [replace(problem, capture=self.name) for problem in problems]
        return PacketRecords(
            data, reserve, columns, number, self._input.consumed - self._consumed, problems,
            offset,
        )  # fmt: skip

    def _scan(
        self, data: Bytes, begin: int, end: int, final: bool
    ) -> tuple[PacketColumns, list[Problem], int]:
        """All complete packets of data[begin:end], problems, and the position to continue at."""
        parts: list[PacketColumns] = []
        problems: list[Problem] = []
        base, packets = self._offset - begin, self._packets
        at = search = begin
        while True:
            if self._lost_at is not None:
                position = self.form.search(data, search, end, final=final)
                if position is None or self._damages == DAMAGE_LIMIT:
                    # A record may begin in the last bytes; the next bytes will show it.
                    at = max(at, end - SEARCH_OVERLAP)
                    return PacketColumns.joined(parts or [NO_PACKETS]), problems, at
                if parts:  # the last packet ends here: its own length was damaged
                    last = parts[-1]
                    last.captured[-1] = min(last.captured[-1], position - last.start[-1])
                problems.append(self._resume(base + position))
                at = position
            scan = self.form.scan(data, at, end, final=final)
            problems += [_placed(problem, base, packets) for problem in scan.problems]
            packets += len(scan.columns.start)
            if len(scan.columns.start):
                parts.append(scan.columns)
            if scan.stop > at or scan.is_broken:
                search = scan.search
            if scan.is_broken:
                self._lost_at = base + scan.stop
            elif scan.stop == end:
                return PacketColumns.joined(parts or [NO_PACKETS]), problems, end
            elif scan.stop == at:
                # At the end of a file, a record that extends beyond it is either the truncated
                # last record, or a record with a damaged length and others after it.
                if not final or self.form.search(data, search, end, final=True) is None:
                    return PacketColumns.joined(parts or [NO_PACKETS]), problems, at
                self._lost_at = base + at
            at = scan.stop

    def _resume(self, offset: int) -> Problem:
        """The problem for the damage before `offset`, at which the chain continues."""
        assert self._lost_at is not None
        lost_at, self._lost_at = self._lost_at, None
        self._damages += 1
        return Problem(
            "packets",
            "damaged_file",
            f"no packet begins at byte {lost_at}; reading continued at byte {offset}",
            offset=lost_at,
            bytes=max(offset - lost_at, 0),
        )

    def _is_hopeless(self, offset: int) -> bool:
        """Whether the chain broke too often, or too far before `offset`, to continue."""
        return self._lost_at is not None and (
            self._damages == DAMAGE_LIMIT or offset - self._lost_at > SEARCH_BYTES
        )

    def _last_words(self, stop: int, end: int, final: bool) -> list[Problem]:
        """Problems of the bytes after the last complete packet, at `stop`; their cause is first."""
        problems = []
        if self._input.damage:
            problems.append(Problem("packets", "damaged_stream", self._input.damage, offset=end))
        begin = stop if self._lost_at is None else self._lost_at
        size = end - begin if final else None
        if self._lost_at is not None:
            detail = f"no packet begins at byte {begin} or in the searched bytes after it"
            if self._damages == DAMAGE_LIMIT:
                detail = f"no packet begins at byte {begin}; the file is damaged in too many places"
            problems.append(Problem("packets", "damaged_file", detail, offset=begin, bytes=size))
        elif size:
            detail = f"the file ends within the packet that begins at byte {begin}"
            problems.append(Problem("packets", "truncated_file", detail, offset=begin, bytes=size))
        return problems


def _placed(problem: Problem, base: int, packets: int) -> Problem:
    """A problem of a scan, with its offset and packet number in the file."""
    if problem.offset is not None:
        problem = replace(problem, offset=base + problem.offset)
    if problem.packet is not None:
        problem = replace(problem, packet=packets + problem.packet)
    return problem
