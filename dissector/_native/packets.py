# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True
# cython: initializedcheck=False, infer_types=True
"""Packets: the chain of records in a capture file, their headers up to TCP, and damaged copies."""

from __future__ import annotations

try:
    import cython
except ImportError:
    from dissector._native import uncompiled as cython
if cython.compiled:
    from cython.cimports.dissector._native.memory import *
else:
    from dissector._native.uncompiled import touch

# The numbers of `packets.layers.headers.Kind`.
OTHER = cython.declare(cython.int, 0)
TCP = cython.declare(cython.int, 1)
CUT = cython.declare(cython.int, 2)
MALFORMED = cython.declare(cython.int, 3)
FRAGMENT = cython.declare(cython.int, 6)
NULL = cython.declare(cython.int, 11)
RAW_IP = cython.declare(cython.int, 12)
IPV4 = cython.declare(cython.int, 17)
IPV6 = cython.declare(cython.int, 18)

SYN = cython.declare(cython.int, 2)
SYN_FIN_RST = cython.declare(cython.int, 7)
MAPPED = cython.declare(cython.ulonglong, 0xFFFF_0000_0000)
"""An IPv4 address in IPv6 (RFC 4291, section 2.5.5.2)."""
SECOND = cython.declare(cython.longlong, 1_000_000_000)
LEAST_BLOCK = cython.declare(cython.longlong, 12)
"""Bytes of a block of pcapng without a body."""


@cython.cclass
class _Numbers:
    """Numbers in bytes. One check of bounds serves all bytes of a number."""

    data: Bytes

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    @cython.boundscheck(False)
    def u16(self, at: Int) -> cython.int:
        """A big-endian number of 2 bytes."""
        if at < 0 or at > self.data.shape[0] - 2:
            raise IndexError
        return self.data[at] << 8 | self.data[at + 1]

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(0x7FFF_FFFF_FFFF_FF00, check=False)
    def u32(self, at: Int) -> Word:
        """A big-endian number of 4 bytes."""
        return self.ordered(at, True)

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(0x7FFF_FFFF_FFFF_FF00, check=False)
    @cython.boundscheck(False)
    def ordered(self, at: Int, is_big: cython.bint) -> Word:
        """A number of 4 bytes in either byte order."""
        high: Word
        low: Word
        if at < 0 or at > self.data.shape[0] - 4:
            raise IndexError
        if is_big:
            high = self.data[at] << 8 | self.data[at + 1]
            low = self.data[at + 2] << 8 | self.data[at + 3]
        else:
            high = self.data[at + 3] << 8 | self.data[at + 2]
            low = self.data[at + 1] << 8 | self.data[at]
        return high << 16 | low

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(0x7FFF_FFFF_FFFF_FF00)
    def u64(self, at: Int) -> Word:
        """A big-endian number of 8 bytes."""
        return self.u32(at) << 32 | self.u32(at + 4)


def follow_blocks(
    data: Bytes, at: Int, end: Int, is_big: cython.bint, most: Int, stop: Int, positions: IntsOut
) -> int:
    numbers: _Numbers = _Numbers()
    count: Int = 0
    size: Int
    numbers.data = data
    end = min(end, data.shape[0] - 7)
    with cython.nogil:
        while at < end and count < positions.shape[0]:
            size = numbers.ordered(at, is_big)
            if size == stop:
                break
            size = numbers.ordered(at + 4, is_big)
            positions[count] = at
            count += 1
            if size > most:
                break
            size = max(size, LEAST_BLOCK)
            at += size
            touch(data, at + 8 * size)  # a guess: many blocks have the size of the one before
    return count


@cython.final
@cython.cclass
class _Pcap(_Numbers):
    """The records of a pcap file."""

    is_big: cython.bint
    header: Int
    """Bytes of a record before the packet."""
    most: Int
    """Most bytes of a packet."""
    unit: Int
    """ns in the unit of a fraction."""
    near: Int
    """Most seconds between two successive packets."""
    is_broken: cython.bint
    """An impossible record follows."""

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def read(self, at: Int, end: Int, before: Int, columns: IntsOut, is_likely: BytesOut) -> Int:
        """`read_pcap`."""
        count: Int = 0
        rows: Int = is_likely.shape[0]
        seconds: Int
        fraction: Int
        captured: Int
        length: Int
        while at + self.header <= end and count < rows:
            seconds, fraction = self.ordered(at, self.is_big), self.ordered(at + 4, self.is_big)
            captured, length = self.ordered(at + 8, self.is_big), self.ordered(at + 12, self.is_big)
            if captured > self.most or seconds | captured | length == 0:
                self.is_broken = True
                break
            at += self.header
            if at + captured > end:
                break
            columns[count] = at
            columns[rows + count] = captured
            columns[2 * rows + count] = length
            columns[3 * rows + count] = seconds * SECOND + fraction * self.unit
            if before < 0:
                before = seconds
            is_likely[count] = (
                0 < captured <= length <= self.most
                and fraction * self.unit < SECOND
                and -self.near <= seconds - before <= self.near
            )
            before = seconds
            count += 1
            at += captured
            touch(self.data, at + 8 * (self.header + captured))  # a guess: they have similar sizes
        return count


def read_pcap(
    data: Bytes, begin: Int, end: Int, is_big: cython.bint, header: Int, most: Int, unit: Int,
    near: Int, before: Int, columns: IntsOut, is_likely: BytesOut,
) -> tuple[int, bool]:  # fmt: skip
    records: _Pcap = _Pcap()
    if header < 16 or unit < 1 or most > 1 << 32:
        raise ValueError("no record of a pcap file")
    records.data, records.is_big, records.header, records.most = data, is_big, header, most
    records.unit, records.near, records.is_broken = unit, near, False
    with cython.nogil:
        count = records.read(begin, min(end, data.shape[0]), before, columns, is_likely)
    return count, records.is_broken


@cython.final
@cython.cclass
class _Packets(_Numbers):
    """Columns of packets: see `headers.Packets`."""

    ethertypes: Bytes
    protocols: Bytes
    families: Bytes
    sizes: Bytes
    """Bytes of the headers with an ethertype, by kind; 0 for the others."""
    types_at: Bytes
    """Offset of the ethertype."""
    kind: BytesOut
    at: IntsOut
    end: IntsOut
    wire_end: IntsOut
    src_high: WordsOut
    src_low: WordsOut
    dst_high: WordsOut
    dst_low: WordsOut
    src_port: PortsOut
    dst_port: PortsOut
    seq: Words32Out
    ack: Words32Out
    flags: BytesOut
    window: PortsOut
    payload: IntsOut
    captured: Ints32Out
    length: Ints32Out

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def has(self, row: Int, size: Int) -> cython.int:
        """Whether the packet has a whole header of `size` bytes; else its kind is the reason."""
        left: Int = self.end[row] - self.at[row]
        if size <= left and left >= 0:
            return 1
        self.kind[row] = CUT if size <= self.wire_end[row] - self.at[row] else MALFORMED
        return 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def trim(self, row: Int, wire_end: Int) -> cython.int:
        """Limit a packet to the length in its IP header, since its frame may have padding."""
        self.wire_end[row] = wire_end
        if self.end[row] > wire_end:
            self.end[row] = wire_end
        return 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def read_ipv4(self, row: Int) -> cython.int:
        """RFC 791. A total length of 0 comes from a card that cut the packet up later (TSO)."""
        at: Int = self.at[row]
        version: cython.int = self.data[at]
        size: Int = (version & 15) * 4
        total: Int = self.u16(at + 2)
        kind: cython.int = self.protocols[self.data[at + 9]]
        if self.u16(at + 6) & 0x3FFF and kind != OTHER:
            kind = FRAGMENT
            size = 0  # reassembly needs this header
        if version >> 4 != 4 or version & 15 < 5 or (total < size and total != 0):
            kind = MALFORMED
        self.kind[row] = kind
        self.trim(row, at + total if total else self.wire_end[row])
        self.at[row] = at + size
        self.src_high[row] = self.dst_high[row] = 0  # it may be inside IPv6
        self.src_low[row] = MAPPED | self.u32(at + 12)
        self.dst_low[row] = MAPPED | self.u32(at + 16)
        return 1

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def read_ipv6(self, row: Int) -> cython.int:
        """RFC 8200. A payload length of 0 means a jumbogram (RFC 2675) or TSO."""
        at: Int = self.at[row]
        payload: Int = self.u16(at + 4)
        self.kind[row] = self.protocols[self.data[at + 6]] if self.data[at] >> 4 == 6 else MALFORMED
        self.at[row] = at + 40
        self.trim(row, at + 40 + payload if payload else self.wire_end[row])
        self.src_high[row], self.src_low[row] = self.u64(at + 8), self.u64(at + 16)
        self.dst_high[row], self.dst_low[row] = self.u64(at + 24), self.u64(at + 32)
        return 1

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def step(self, row: Int) -> cython.int:
        """Read one header; 0 if it is of another kind, or not whole."""
        kind: cython.int = self.kind[row]
        first: cython.int
        if self.sizes[kind]:  # a header with the ethertype of the next one
            if not self.has(row, self.sizes[kind]):
                return 0
            self.kind[row] = self.ethertypes[self.u16(self.at[row] + self.types_at[kind])]
            self.at[row] += self.sizes[kind]
            return 1
        if kind == IPV4 and self.has(row, 20):
            return self.read_ipv4(row)
        if kind == IPV6 and self.has(row, 40):
            return self.read_ipv6(row)
        if kind == NULL and self.has(row, 4):
            # BSD loopback: a family below 256, in the byte order of the capturing machine.
            first = self.data[self.at[row]] | self.data[self.at[row] + 3]
            self.kind[row] = self.families[first]
            self.at[row] += 4
            return 1
        if kind == RAW_IP and self.has(row, 1):  # no link header: the first bits are the version
            first = self.data[self.at[row]] >> 4
            self.kind[row] = IPV4 if first == 4 else IPV6 if first == 6 else MALFORMED
            return 1
        return 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def read_tcp(self, row: Int) -> cython.int:
        """RFC 9293, 3.1. Options may be truncated: the payload's position does not depend on
        them."""
        at: Int = self.at[row]
        size: Int
        stop: Int = self.end[row]
        flags: cython.int
        if not self.has(row, 20):
            return 0
        size = (self.data[at + 12] >> 4) * 4
        begin = at + size
        if size < 20 or begin > self.wire_end[row]:
            self.kind[row] = MALFORMED
            return 0
        flags = self.data[at + 13]
        # A segment with SYN and with FIN or RST is damaged: it neither opens nor closes.
        self.flags[row] = flags & ~SYN_FIN_RST if flags & SYN and flags & 5 else flags
        self.src_port[row] = self.u16(at)
        self.dst_port[row] = self.u16(at + 2)
        self.seq[row] = self.u32(at + 4)
        self.ack[row] = self.u32(at + 8)
        self.window[row] = self.u16(at + 14)
        self.payload[row] = min(begin, stop)
        self.captured[row] = max(stop - begin, 0)
        self.length[row] = self.wire_end[row] - begin
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def read_rows(self, rows: Ints, layers: Int) -> cython.int:
        """`read_headers`."""
        for index in range(rows.shape[0]):
            if index + 12 < rows.shape[0]:
                touch(self.data, self.at[rows[index + 12]])
            row = rows[index]
            for layer in range(layers):
                if not self.step(row):
                    break
            if self.kind[row] == TCP:
                self.read_tcp(row)
        return 0


def read_headers(data: Bytes, tables: list, rows: Ints, layers: Int, columns: list) -> None:
    packets: _Packets = _Packets()
    packets.data = data
    packets.ethertypes, packets.protocols, packets.families = tables[:3]
    packets.sizes, packets.types_at = tables[3:]
    (
        packets.kind, packets.at, packets.end, packets.wire_end,
        packets.src_high, packets.src_low, packets.dst_high, packets.dst_low,
        packets.src_port, packets.dst_port, packets.seq, packets.ack, packets.flags,
        packets.window, packets.payload, packets.captured, packets.length,
    ) = columns  # fmt: skip
    with cython.nogil:
        packets.read_rows(rows, layers)


WRONG = cython.declare(cython.int, 1)
RIGHT = cython.declare(cython.int, 2)
MODULO = cython.declare(cython.longlong, 0xFFFF)
"""A sum in one's complement is a sum modulo this (RFC 1071)."""


@cython.final
@cython.cclass
class _Copies(_Numbers):
    """Segments of streams, by their first byte. Copies have bytes of the same place."""

    src_high: Words
    src_low: Words
    dst_high: Words
    dst_low: Words
    src_port: Ports
    dst_port: Ports
    seq: Words32
    ack: Words32
    payload: Ints
    length: Ints32
    order: Ints
    at: Ints
    sound: IntsOut
    """Copies with a right checksum, each of which ends behind those before it."""
    is_damaged: BytesOut

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-2, check=False)
    def header(self, row: Int) -> Int:
        """Position of the TCP header: its ports, numbers and size are those of the packet; -1 if
        it is not before the payload."""
        at: Int = self.payload[row] - 20
        size: Int = 20
        while size <= 60 and at >= 0:
            if (
                self.data[at + 12] >> 4 == size >> 2
                and self.u16(at) == self.src_port[row]
                and self.u16(at + 2) == self.dst_port[row]
                and self.u32(at + 4) == self.seq[row]
                and self.u32(at + 8) == self.ack[row]
            ):
                return at
            at -= 4
            size += 4
        return -1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def pseudo_header(self, row: Int, size: Int) -> Int:
        """Its sum (RFC 9293, 3.1; RFC 8200, 8.1). That of an IPv4 address and its IPv6 form are
        equal, since 0xffff is 0."""
        total: Int = 6 + size
        word: Word
        for part in range(4):
            word = (
                self.src_high[row] if part == 0
                else self.src_low[row] if part == 1
                else self.dst_high[row] if part == 2
                else self.dst_low[row]
            )  # fmt: skip
            for shift in range(0, 64, 16):
                total += word >> shift & 0xFFFF
        return total % MODULO

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def checksum(self, row: Int) -> cython.int:
        """Whether the TCP checksum is WRONG or RIGHT. A card completes that of a packet which is
        captured before it is sent: there, the checksum is that of the pseudo header alone, or 0.
        """
        at: Int = self.header(row)
        end: Int = self.payload[row] + self.length[row]
        total: Int
        stored: Int
        if at < 0 or end > self.data.shape[0]:
            return 0
        stored = self.u16(at + 16)
        total = self.pseudo_header(row, end - at)
        if stored == 0 or stored % MODULO == total:
            return 0
        if (end - at) & 1:
            total += self.data[end - 1] << 8
        for place in range(at, end - 1, 2):
            total += self.u16(place)
        return RIGHT if total % MODULO == 0 else WRONG

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-0x7FFF_FFFF_FFFF_FF00)
    def end(self, copy: Int) -> Int:
        """Position behind the last byte of a copy."""
        return self.at[copy] + self.length[self.order[copy]]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def differs(self, first: Int, second: Int) -> cython.int:
        """Whether two copies differ in the bytes that both have."""
        begin: Int = self.payload[self.order[first]] - self.at[first]
        other: Int = self.payload[self.order[second]] - self.at[second]
        low: Int = max(self.at[first], self.at[second])
        for place in range(low, min(self.end(first), self.end(second))):
            if self.data[begin + place] != self.data[other + place]:
                return 1
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def is_refuted(self, copy: Int, first: Int, count: Int) -> cython.int:
        """Whether sound copies, from the one with the number `first` on, contain all bytes of a
        copy, and other bytes."""
        covered: Int = self.at[copy]
        differs: cython.bint = False
        for number in range(first, count):
            other = self.sound[number]
            if self.at[other] > covered or covered >= self.end(copy):
                break
            differs = differs or self.differs(copy, other)
            covered = max(covered, self.end(other))
        return differs and covered >= self.end(copy)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def compare(self, begin: Int, end: Int) -> cython.int:
        """Mark the damaged ones of these copies."""
        longest: Int = begin
        first: Int = 0
        count: Int = 0
        reach: Int = self.at[begin]
        is_equal: cython.bint = True
        for copy in range(begin + 1, end):
            if self.differs(longest, copy):
                is_equal = False
                break
            if self.end(copy) > self.end(longest):
                longest = copy
        if is_equal:
            return 0
        for copy in range(begin, end):
            if self.end(copy) > reach and self.checksum(self.order[copy]) == RIGHT:
                reach = self.end(copy)
                self.sound[count] = copy
                count += 1
        for copy in range(begin, end):
            while first < count and self.end(self.sound[first]) <= self.at[copy]:
                first += 1
            row = self.order[copy]
            if self.is_refuted(copy, first, count) and self.checksum(row) == WRONG:
                self.is_damaged[row] = 1
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def find(self) -> cython.int:
        """`find_damaged`."""
        begin: Int = 0
        reach: Int
        end: Int
        while begin < self.order.shape[0]:
            end = begin + 1
            reach = self.end(begin)
            while end < self.order.shape[0] and self.at[end] < reach:
                reach = max(reach, self.end(end))
                end += 1
            if end - begin > 1:
                self.compare(begin, end)
            begin = end
        return 0


def find_damaged(
    data: Bytes, order: Ints, at: Ints, sound: IntsOut, src_high: Words, src_low: Words,
    dst_high: Words, dst_low: Words, src_port: Ports, dst_port: Ports, seq: Words32, ack: Words32,
    payload: Ints, length: Ints32, is_damaged: BytesOut,
) -> None:  # fmt: skip
    copies: _Copies = _Copies()
    copies.data, copies.order, copies.at, copies.sound = data, order, at, sound
    copies.is_damaged = is_damaged
    copies.src_high, copies.src_low, copies.dst_high, copies.dst_low = (
        src_high, src_low, dst_high, dst_low,
    )  # fmt: skip
    copies.src_port, copies.dst_port, copies.seq, copies.ack = src_port, dst_port, seq, ack
    copies.payload, copies.length = payload, length
    with cython.nogil:
        copies.find()
