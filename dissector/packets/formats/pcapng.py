"""pcapng files (draft-ietf-opsawg-pcapng): a chain of blocks.

    block               type, size, body, size                      size counts all of it
    section header      type 0x0A0D0D0A; byte order 0x1A2B3C4D      begins a section
    interface           link type, -, snaplen, options              numbered from 0 in its section
    enhanced packet     interface, time, captured, length, packet
    packet (obsolete)   the same, with an interface of 16 bits and a drop count of 16
    simple packet       length, packet                              of interface 0, without a time
    secrets             kind, size, text
    name resolution     kind, size, address and names; ends with kind 0
    statistics          interface, time, options                dropped packets: see `drop_counts`
    journal, custom     other data                              numbered like packets

Blocks of other types are skipped. The section has the byte order; the interface has the unit and
origin of times. The size at the end of a block must equal the size at its beginning: this
distinguishes blocks from damage. A simple packet has the time of the packet before it. Wireshark
numbers entries of a systemd journal and custom blocks among the packets. So each of them is a
packet without bytes here.

Blocks end at a multiple of 4 bytes. Some writers do not count the last padding in the size, which
the draft forbids. Such blocks are read, as Wireshark does.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dissector import _native
from dissector.packets.block import Bytes, Int64, UInt64
from dissector.packets.formats.capture_reader import (
    NO_PACKETS,
    PACKET_LIMIT,
    Interface,
    PacketColumns,
    ScanResult,
    first_record,
    gather,
)
from dissector.packets.formats.drop_counts import (
    DropCounts,
    obsolete_drops,
    packet_drops,
    total_drops,
)
from dissector.problems import Problem, drop_problem, packets_are

SECTION = 0x0A0D0D0A
INTERFACE, OBSOLETE, SIMPLE, NAMES, STATISTICS, ENHANCED, SECRETS = 1, 2, 3, 4, 5, 6, 10
JOURNAL, CUSTOM = 9, 0x0BAD
"""Blocks without packets that Wireshark numbers."""
NOT_COPIED = 0x40000000
"""Set in the type of a custom block that must not be copied."""
TLS_KEY_LOG = 0x544C534B
ADDRESS_BYTES = {1: 4, 2: 16}
"""Size of the address in a record of names, by its kind: IPv4, IPv6."""

CHAIN_LIMIT = 1 << 17
"""Blocks to follow before validation: this limits the cost of a wrong chain."""
BLOCK_LIMIT = 1 << 24
"""Bytes of one block; Wireshark's limit too."""
SECTION_LIMIT = 1 << 14
"""Sections of one file."""
INTERFACE_LIMIT = 1 << 16
"""Interfaces of one section that are read, and interfaces of a file that are described to
callers."""
UNREAD_LINK = -2
"""The link type of packets of later interfaces; -1 is that of interfaces without a description."""
OPTIONS_LIMIT = 1 << 14
"""Bytes of an interface block whose options are kept."""
NAME_LIMIT = 100
"""Bytes of an interface's name to quote. Windows has names of 50 bytes."""
COMMENT_LIMIT = 1 << 14
"""Comments on a file to keep."""
NAMES_LIMIT = 1 << 16
"""Names of addresses to keep from one file."""
SECRETS_LIMIT = 1 << 26
"""Maximum number of bytes of TLS secrets to keep from one file."""
LATEST = 4_611_686_018 * 10**9
"""ns; in 2116, just below 2^62. A later time counts as damage and is replaced by this one."""

FRONT = SECTION.to_bytes(4, "big")
"""First bytes of a file, in both byte orders."""
_SECOND = 1_000_000_000
_LATEST_ORIGIN = LATEST // _SECOND
_ORDERS = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
COMMENT = 1  # option of all blocks
NAME, RESOLUTION, OFFSET = 2, 9, 14  # options of an interface
_MICROSECONDS = 6
_UNKNOWN = Interface(-1, 0, _MICROSECONDS)


class Pcapng:
    """The `CaptureFormat` of one pcapng file. Secrets in the file are added to `secrets`."""

    HEADER_BYTES = 28
    """Size of a section header without options."""

    def __init__(self, secrets: list[bytes]) -> None:
        self._secrets = secrets
        self._known_secrets: set[bytes] | None = None  # made when the first secrets come
        self._secrets_left = SECRETS_LIMIT
        self._sections_left = SECTION_LIMIT
        self._time = 0  # of the last packet
        self._drop_counts = DropCounts()
        self.interfaces: list[Interface] = []
        self.comments: list[str] = []
        self.host_names: list[tuple[str, str]] = []
        self._begin_section("<")

    @property
    def context(self) -> object:
        """The section, the interfaces described in it so far, and counts of dropped packets."""
        section = self._sections_left, self._order, self._described, tuple(self._interfaces)
        return section, self._drop_counts.context

    @staticmethod
    def recognises(head: bytes) -> bool:
        """Whether a file that begins with these bytes, at least four, is a pcapng file."""
        return head[:4] == FRONT

    @staticmethod
    def can_begin(head: bytes) -> bool:
        """Whether the section header that begins with these bytes has a valid byte order."""
        return head[8:12] in _ORDERS

    def _begin_section(self, order: str) -> None:
        u4 = order + "u4"
        self._order = order
        self._u4 = np.dtype([("value", u4)])
        self._head = np.dtype([("kind", u4), ("size", u4)])
        self._simple = np.dtype([("kind", u4), ("size", u4), ("length", u4)])
        self._enhanced = np.dtype(
            [(name, u4) for name in ("kind", "size", "interface", "high", "low")]
            + [("captured", u4), ("length", u4)]
        )
        self._interfaces: list[Interface] = []  # of the section
        self._described = 0  # interfaces, also those beyond `INTERFACE_LIMIT`
        self._section_interfaces = len(self.interfaces)  # index of the first one

    def scan(self, data: Bytes, begin: int, end: int) -> ScanResult:
        if data[begin : min(begin + 4, end)].tobytes() == FRONT:
            return self._scan_section(data.data[begin:end], begin)
        at = self._chain(data, begin, end)
        head = gather(data, at, self._head)
        size, possible = _sizes(head)
        inside = at + size <= end
        closing = gather(data, np.where(possible & inside, at + size - 4, begin), self._u4)
        sound = possible & inside & (closing["value"] == head["size"])
        # If only the closing size is damaged, the next block still follows.
        whole = int(np.append(sound | np.append(possible[:-1] & sound[1:], False), False).argmin())
        stop = int(at[whole - 1] + size[whole - 1]) if whole else begin
        is_broken = whole < len(at) and (not possible[whole] or inside[whole])
        columns, problems = self._read(data, at[:whole], head["kind"][:whole], size[:whole])
        return ScanResult(columns, stop, stop + 1, bool(is_broken), problems)

    def _scan_section(self, data: memoryview, begin: int) -> ScanResult:
        """Scan only a section header: the next blocks have its byte order."""
        if len(data) < self.HEADER_BYTES:
            return ScanResult(NO_PACKETS, begin, begin + 4)
        order = _ORDERS.get(bytes(data[8:12]))
        size = struct.unpack_from(f"{order or '<'}I", data, 4)[0]
        if not order or not self.HEADER_BYTES <= size <= BLOCK_LIMIT or not self._sections_left:
            return ScanResult(NO_PACKETS, begin, begin + 4, is_broken=True)
        if size + -size % 4 > len(data):
            return ScanResult(NO_PACKETS, begin, begin + 4)
        self._sections_left -= 1
        self._begin_section(order)
        end = begin + size + -size % 4
        for code, value in read_options(bytes(data[24 : size - 4]), order):
            if code == COMMENT and len(self.comments) < COMMENT_LIMIT:
                self.comments.append(value.decode(errors="replace"))
        return ScanResult(NO_PACKETS, end, end)

    def search(self, data: Bytes, begin: int, end: int, *, final: bool) -> int | None:
        if not self._sections_left:
            return None

        def records(low: int, high: int) -> Int64:
            kind = gather(data, slice(low, high), self._head)["kind"]
            at = low + np.flatnonzero((kind - 1 < SECRETS) | (kind == SECTION))
            return at[self._begins(data, at, end, final=final)]

        return first_record(begin, end - 12 + 1, records)

    def _begins(self, data: Bytes, at: Int64, end: int, *, final: bool) -> NDArray[np.bool_]:
        """Whether a block begins at each position: both of its sizes are equal.

        For a block that extends beyond `end`, only its first size is checked; at the end of a file
        it is not accepted.
        """
        head = gather(data, at, self._head)
        size, possible = _sizes(head)
        inside = possible & (at + size <= end)
        closing = gather(data, np.where(inside, at + size - 4, at), self._u4)["value"]
        unseen = possible & ~inside & (size == head["size"]) & (not final)
        unseen &= size < 2 * PACKET_LIMIT
        begins: NDArray[np.bool_] = (inside & (closing == head["size"])) | unseen
        return begins

    def _chain(self, data: Bytes, begin: int, end: int) -> Int64:
        """Positions of all blocks up to the next section, by the sizes of the blocks."""
        positions = np.empty(min(max(end - 7 - begin, 0) // 12 + 1, CHAIN_LIMIT), np.int64)
        count = _native.follow_blocks(
            data, begin, end - 7, self._order == ">", BLOCK_LIMIT, SECTION, positions
        )
        size = gather(data, positions[:count], self._head)["size"]
        unpadded = np.flatnonzero(size % 4)
        if not len(unpadded):
            return positions[:count]
        padded, first = positions[: unpadded[0]].tolist(), int(positions[unpadded[0]])
        return np.array(padded + self._padded_chain(data, first, end, CHAIN_LIMIT), np.int64)

    def _padded_chain(self, data: Bytes, at: int, end: int, limit: int) -> list[int]:
        """Positions of blocks whose sizes may lack the padding, up to the next section, or a block
        with two different sizes."""
        positions: list[int] = []
        read = struct.Struct(self._order + "II").unpack_from
        while at + 8 <= end and len(positions) < limit:
            kind, size = read(data.data, at)
            if kind == SECTION:
                break
            positions.append(at)
            at += size + -size % 4
            if size < 12 or at > end or read(data.data, at - 8)[1] != size:
                break
        return positions

    def _read(
        self, data: Bytes, at: Int64, kind: NDArray[np.uint32], size: Int64
    ) -> tuple[PacketColumns, list[Problem]]:
        """The packets in the blocks as columns. Interfaces, secrets and names are stored."""
        describes = (kind == INTERFACE) & (size >= 20)
        for is_read, add in (
            (describes, self._add_interface),
            ((kind == SECRETS) & (size >= 20), self._add_secrets),
            (kind == NAMES, self._add_names),
        ):
            for block in np.flatnonzero(is_read):
                add(data[at[block] : at[block] + size[block]].tobytes())

        detailed = (kind == ENHANCED) | (kind == OBSOLETE)
        simple = (kind == SIMPLE) & (size >= 16)
        numbered = (kind == JOURNAL) | (kind | NOT_COPIED == CUSTOM | NOT_COPIED)
        statistics = at[(kind == STATISTICS) & (size >= 24)]
        if not (detailed | simple | numbered).any():
            return NO_PACKETS, self._drop_problems(data, statistics, NO_PACKETS)
        short = detailed & (size < 32)
        detailed &= ~short
        # An interface must be described before the packets that name it.
        later = describes[::-1].cumsum()[::-1][detailed]
        columns, problems, drops = self._read_enhanced(data, at[detailed], size[detailed], later)
        dropped = at[detailed][drops > 0], drops[drops > 0]
        if simple.any():
            parts = [columns, self._read_simple(data, at[simple], size[simple])]
            detail = "without a time: the time of the packet before is used, or 1970"
            problems.append(_problem("no_time", int(simple.sum()), detail))
            columns = self._in_order(PacketColumns.joined(parts), len(columns.start))
        if numbered.any():
            columns = self._with_empty_packets(columns, at[numbered])
        problems += self._drop_problems(data, statistics, columns, *dropped)
        if len(columns.time):
            self._time = int(columns.time[-1])
        if short.any():
            detail = "shorter than the header of a packet block"
            problems.append(_problem("bad_packet", int(short.sum()), detail))
        return columns, problems

    def _read_enhanced(
        self, data: Bytes, at: Int64, size: Int64, later: Int64
    ) -> tuple[PacketColumns, list[Problem], Int64]:
        """Enhanced and obsolete packet blocks, with the number of dropped packets before each.
        `later`: number of interfaces after each."""
        block = gather(data, at, self._enhanced)
        interface = block["interface"].astype(np.int64)
        captured = block["captured"].astype(np.int64)
        options_at = at + 28 + captured + -captured % 4
        obsolete = block["kind"] == OBSOLETE
        has_options = np.flatnonzero((options_at < at + size - 4) & ~obsolete)
        drops = np.zeros(len(at), np.int64)
        if len(has_options):
            ends = (at + size - 4)[has_options]
            drops[has_options] = packet_drops(data, options_at[has_options], ends, self._order)
        if obsolete.any():  # half of that field counts drops
            halves = interface >> 16, interface & 0xFFFF
            number, dropped = halves if self._order == ">" else halves[::-1]
            interface = np.where(obsolete, number, interface)
            drops = np.where(obsolete, obsolete_drops(dropped), drops)
        unknown = len(self._interfaces)
        is_unknown = interface >= self._described - later
        is_unread = ~is_unknown & (interface >= INTERFACE_LIMIT)
        interface = np.where(is_unknown | is_unread, unknown, interface)
        ticks = (block["high"].astype(np.uint64) << np.uint64(32)) | block["low"]
        time = self._nanoseconds(ticks, interface)
        counts = (
            ("unknown_interface", is_unknown, "of an interface that is not described"),
            ("unknown_interface", is_unread, f"of an interface beyond the first {INTERFACE_LIMIT}"),
            ("bad_packet", captured > size - 32, "longer than the block around it"),
            ("bad_time", time >= LATEST, "dated 2116 or later"),
        )
        problems = [
            _problem(kind, count, detail)
            for kind, affected, detail in counts
            if (count := int(affected.sum()))
        ]
        link = np.array([each.link for each in self._with_unknown], np.int32)[interface]
        link[is_unread] = UNREAD_LINK
        columns = PacketColumns(
            start=at + 28,
            captured=np.minimum(captured, size - 32),
            length=block["length"].astype(np.int64),
            time=time,
            link=link,
            interface=self._numbered(interface),
        )
        return columns, problems, drops

    def _read_simple(self, data: Bytes, at: Int64, size: Int64) -> PacketColumns:
        """Simple packet blocks, without times."""
        length = gather(data, at, self._simple)["length"].astype(np.int64)
        interface = self._with_unknown[0]
        captured = np.minimum(np.minimum(length, interface.snaplen or PACKET_LIMIT), size - 16)
        link = np.full(len(at), interface.link, np.int32)
        first = self._numbered(np.zeros(len(at), np.int64))
        return PacketColumns(at + 12, captured, length, np.zeros(len(at), np.int64), link, first)

    def _drop_problems(
        self, data: Bytes, statistics: Int64, columns: PacketColumns, *dropped: Int64
    ) -> list[Problem]:
        """Packets that the capture dropped, by the statistics at these positions, and by packets.

        `dropped`: positions of packet blocks, and the number of dropped packets before each.
        """
        positions, counts = dropped or (statistics[:0], statistics[:0])
        events = [*zip(positions.tolist(), counts.tolist(), strict=True)]
        events += [(position, -1) for position in statistics.tolist()]
        problems = []
        for position, count in sorted(events):
            row = int(np.searchsorted(columns.start, position))
            if count >= 0:
                interface, packet = int(columns.interface[row]), row + 1
                count = self._drop_counts.before_packet(interface, count)
            else:
                row, packet = row - 1, None
                interface, total = self._statistics(data, position)
                count = self._drop_counts.in_all(interface, total)
            if count:
                time = int(columns.time[row]) if row >= 0 else self._time
                problems.append(
                    drop_problem(
                        self._name(interface), "the capture", count, time=time or None,
                        packet=packet, offset=position,
                    )
                )  # fmt: skip
        return problems

    def _statistics(self, data: Bytes, at: int) -> tuple[int, int]:
        """The interface of statistics, and how many of its packets were dropped."""
        size, interface = struct.unpack_from(self._order + "II", data.data, at + 4)
        number = self._section_interfaces + interface
        is_known = interface < len(self._interfaces) and number < len(self.interfaces)
        options = read_options(data[at + 20 : at + size - 4].tobytes(), self._order)
        return number if is_known else -1, total_drops(options, self._order)

    def _name(self, interface: int) -> str:
        """The name of an interface of the file."""
        if interface < 0:
            return "unknown interface"
        names = (value for code, value in self.interfaces[interface].options if code == NAME)
        return next(names, b"")[:NAME_LIMIT].decode(errors="replace") or f"interface {interface}"

    @property
    def _with_unknown(self) -> list[Interface]:
        """The interfaces of the section, and one for packets whose interface is not described."""
        return [*self._interfaces, _UNKNOWN]

    def _numbered(self, interface: Int64) -> NDArray[np.int32]:
        """Index of each interface of the section among those of the file; -1 if unknown."""
        number = interface + self._section_interfaces
        is_unknown = (interface == len(self._interfaces)) | (number >= len(self.interfaces))
        return np.where(is_unknown, -1, number).astype(np.int32)

    def _with_empty_packets(self, columns: PacketColumns, at: Int64) -> PacketColumns:
        """Also packets without bytes at these positions, with the time of a packet near them."""
        before = np.maximum(np.searchsorted(columns.start, at) - 1, 0)
        time = columns.time[before] if len(columns.start) else np.full(len(at), self._time)
        size, unknown = np.zeros(len(at), np.int64), np.full(len(at), -1, np.int32)
        empty = PacketColumns(at + 8, size, size, time, unknown, unknown)
        columns = PacketColumns.joined([columns, empty])
        return columns[np.argsort(columns.start)]

    def _in_order(self, columns: PacketColumns, timed: int) -> PacketColumns:
        """Columns in order of the file. Packets after the first `timed` rows have the time of the
        packet before them."""
        order = np.argsort(columns.start)
        giver = np.maximum.accumulate(np.where(order < timed, np.arange(len(order)), -1))
        time = np.where(giver < 0, self._time, columns.time[order][giver])
        return replace(columns[order], time=time)

    def _add_interface(self, block: bytes) -> None:
        self._described += 1
        if len(self._interfaces) == INTERFACE_LIMIT:
            return
        link, snaplen = struct.unpack_from(self._order + "HxxI", block, 8)
        resolution, origin = _MICROSECONDS, 0
        options = tuple(read_options(block[16:-4], self._order))
        for code, value in options:
            if code == RESOLUTION and len(value) == 1:
                resolution = value[0]
            elif code == OFFSET and len(value) == 8:
                seconds = struct.unpack(self._order + "q", value)[0]
                origin = max(min(seconds, _LATEST_ORIGIN), -_LATEST_ORIGIN) * _SECOND
        kept = options if len(block) <= OPTIONS_LIMIT else ()
        interface = Interface(link, snaplen, resolution, kept, self._order, origin)
        self._interfaces.append(interface)
        if len(self.interfaces) < INTERFACE_LIMIT:
            self.interfaces.append(interface)

    def _add_secrets(self, block: bytes) -> None:
        kind, size = struct.unpack_from(self._order + "II", block, 8)
        text = block[16 : min(16 + size, len(block) - 4)]
        if self._known_secrets is None:  # some tools write a block for each session
            self._known_secrets = set(self._secrets)
        is_new = kind == TLS_KEY_LOG and text not in self._known_secrets
        if is_new and len(text) <= self._secrets_left:
            self._secrets_left -= len(text)
            self._secrets.append(text)
            self._known_secrets.add(text)

    def _add_names(self, block: bytes) -> None:
        # The records have the shape of options: code, size, value; code 0 ends them.
        for kind, value in read_options(block[8:-4], self._order):
            size = ADDRESS_BYTES.get(kind, len(value))
            names = value[size:].split(b"\0")
            if len(self.host_names) + len(names) <= NAMES_LIMIT and len(value) > size:
                address = str(ipaddress.ip_address(value[:size]))
                decoded = (name.decode(errors="replace") for name in names if name)
                self.host_names += ((address, name) for name in decoded)

    def _nanoseconds(self, ticks: UInt64, interface: Int64) -> Int64:
        """ns since 1970, from ticks with the unit and origin of each packet's interface."""
        resolutions = np.array([each.resolution for each in self._with_unknown])[interface]
        time = np.zeros(len(ticks), np.int64)
        for resolution in np.unique(resolutions):
            rows = resolutions == resolution
            time[rows] = nanoseconds(ticks[rows], int(resolution))
        time += np.array([each.origin for each in self._with_unknown])[interface]
        np.minimum(time, LATEST, out=time)
        return time


def _sizes(head: NDArray[np.void]) -> tuple[Int64, NDArray[np.bool_]]:
    """Sizes of blocks, padding included, and whether they are possible."""
    size = head["size"].astype(np.int64)
    padded = size + -size % 4
    possible = (size >= 12) & (size <= BLOCK_LIMIT)
    possible &= (padded == size) | (size < 2 * PACKET_LIMIT)
    return padded, possible


def read_options(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """The options at the end of a block, as code and value, up to the end of options."""
    at = 0
    while at + 4 <= len(data):
        code, size = struct.unpack_from(order + "HH", data, at)
        if code == 0:
            break
        yield code, data[at + 4 : at + 4 + size]
        at += 4 + (size + 3) // 4 * 4


def nanoseconds(ticks: UInt64, resolution: int) -> Int64:
    """Ticks as ns, at most LATEST. `resolution` is if_tsresol: a negative power of ten, or of two
    if the highest bit is set."""
    power = resolution & 0x7F
    if resolution & 0x80:
        # 34 bits of a fraction are finer than a nanosecond, and fit when multiplied by 10^9.
        shift = max(power - 34, 0)
        seconds = ticks >> np.uint64(power) if power < 64 else np.zeros_like(ticks)
        fraction = ticks - (seconds << np.uint64(power)) if power < 64 else ticks
        fraction = fraction >> np.uint64(shift) if shift < 64 else np.zeros_like(ticks)
        part = (fraction * np.uint64(_SECOND)) >> np.uint64(power - shift)
        ns = np.minimum(seconds, LATEST // _SECOND) * np.uint64(_SECOND) + part
    elif power <= 9:
        unit = 10 ** (9 - power)
        ns = np.minimum(ticks, LATEST // unit) * np.uint64(unit)
    else:
        unit = 10 ** (power - 9)
        ns = ticks // np.uint64(unit) if unit < 1 << 64 else np.zeros_like(ticks)
    return np.minimum(ns, LATEST).astype(np.int64)


def _problem(kind: str, count: int, reason: str) -> Problem:
    return Problem("packets", kind, f"{packets_are(count)} {reason}", count=count)
