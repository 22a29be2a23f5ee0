"""pcap files (draft-ietf-opsawg-pcap): a file header, and a record per packet.

    file header    magic, version, version, -, -, snaplen, link type     24 bytes
    record         seconds, fraction, captured, length                   16 bytes, then the packet

The magic gives the byte order of the writer, and the unit of `fraction`. Some old writers have
longer record headers: Alexey Kuznetzov's patch of libpcap with a different magic, longer still in
SuSE 6.3; Red Hat 6.1 and Nokia with the usual magic. The chain of their first records identifies
them.

A file may have been appended to another one (`tcpdump -w - >> FILE`, or `cat` of compressed files).
So a file header may stand where a record is expected. The next records are those of that file.

A record has no mark that identifies it. So the chain is followed while records are possible; after
damage it continues only where records are likely: see `read_pcap` and `_likely`.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from dissector import _native
from dissector.packets.block import Bytes, Int64, UInt8
from dissector.packets.formats.capture_reader import (
    NO_PACKETS,
    PACKET_LIMIT,
    Interface,
    PacketColumns,
    ScanResult,
    first_record,
    gather,
)

FCS_LENGTH = 13
"""Option of an interface of pcapng: bytes of the frame check sequence."""
_SECOND = 1_000_000_000
_NEAR = 30 * 86400
"""Maximum time between two successive packets, in seconds, when searching after damage."""
_SCAN_LIMIT = 1 << 19
"""Maximum number of records of one scan."""
_SMALL_RECORD = 64
"""Bytes. A scan has room for the records of a piece if they have this size; smaller ones take
further scans."""
_FIRST_RECORDS = 3
"""Number of records that identify a variant."""
_ODD_LIMIT = 100
"""Maximum number of unlikely records to check again in one file."""
_FILE_LIMIT = 1 << 14
"""Appended files to read in one file."""

_KINDS = {  # magic: (ns in the unit of a fraction, bytes of a record header, or of its variants)
    0xA1B2C3D4: (1000, (16, 24, 20)),
    0xA1B23C4D: (1, (16,)),
    0xA1B2CD34: (1000, (24, 28)),
}
_MAGICS = {
    struct.pack(order + "I", magic): (order, *kind)
    for magic, kind in _KINDS.items()
    for order in "<>"
}
FRONTS = frozenset(
    magic + struct.pack(order + "HH", 2, 4) for magic, (order, *_) in _MAGICS.items()
)
"""First bytes of a file header: magic and version."""


class Pcap:
    """The `CaptureFormat` of one pcap file; `header` is its first HEADER_BYTES bytes."""

    HEADER_BYTES = 24

    def __init__(self, header: bytes) -> None:
        self.comments = ()
        self.host_names = ()
        self.interfaces: list[Interface] = []
        self._numbers: dict[Interface, int] = {}  # of interfaces
        self._odd_left = _ODD_LIMIT
        self._files_left = _FILE_LIMIT
        self._begin_file(header)

    def _begin_file(self, header: bytes) -> None:
        self._order, self._unit, self._variants = _MAGICS[header[:4]]
        self._record_bytes = self._variants[0]
        # The upper half of the link type describes frame check sequences.
        snaplen, link = struct.unpack_from(self._order + "II", header, 16)
        self._link = link & 0xFFFF
        resolution = 9 if self._unit == 1 else 6
        check = ((FCS_LENGTH, bytes([link >> 28])),) if link & 0x04000000 else ()
        interface = Interface(self._link, snaplen, resolution, check)
        self._interface = self._numbers.setdefault(interface, len(self.interfaces))
        if self._interface == len(self.interfaces):
            self.interfaces.append(interface)
        u4 = self._order + "u4"
        self._record = np.dtype(
            [("seconds", u4), ("fraction", u4), ("captured", u4), ("length", u4)]
        )
        self._seconds: int | None = None  # of the last packet
        self._sound: int | None = None  # of the last likely packet

    @property
    def context(self) -> object:
        """The last file header has all state."""
        return self._order, self._unit, self._interface

    @staticmethod
    def recognises(head: bytes) -> bool:
        """Whether a file that begins with these bytes, at least four, is a pcap file."""
        return head[:4] in _MAGICS

    def scan(self, data: Bytes, begin: int, end: int) -> ScanResult:
        if self.begins_file(data, begin):
            return self._scan_file_header(data, begin, end)
        table, is_likely, is_broken = self._follow(data, begin, end)
        if len(self._variants) > 1:
            if len(is_likely) > 1 and is_likely[0] and is_likely[1]:
                self._variants = (self._record_bytes,)
            elif self._choose_variant(data, begin, end):
                table, is_likely, is_broken = self._follow(data, begin, end)
        whole = len(is_likely)
        count = self._believable(data, table[0] - self._record_bytes, is_likely, end)
        start, captured, length, time = table[:, :count]
        # The length that led to `stop` may be wrong itself: then the next record begins before it.
        stop, search = begin, begin + 1
        if count:
            search = int(start[-1])
            stop = search + int(captured[-1])
            self._seconds = self._seconds_at(data, search - self._record_bytes)
        link, interface = np.empty((2, count), np.int32)
        link.fill(self._link)
        interface.fill(self._interface)
        columns = PacketColumns(start, captured, length, time, link, interface)
        return ScanResult(columns, stop, search, bool(is_broken) or count < whole)

    def _scan_file_header(self, data: Bytes, begin: int, end: int) -> ScanResult:
        """Scan only the header of an appended file."""
        stop = begin + self.HEADER_BYTES
        if stop > end:
            return ScanResult(NO_PACKETS, begin, begin + 1)
        self._files_left -= 1
        self._begin_file(data[begin:stop].tobytes())
        return ScanResult(NO_PACKETS, stop, stop)

    def begins_file(self, data: Bytes, at: int) -> bool:
        """Whether an appended file begins at a position."""
        return self._files_left > 0 and data[at : at + 8].tobytes() in FRONTS

    def _follow(self, data: Bytes, begin: int, end: int) -> tuple[Int64, UInt8, bool]:
        """The chain of records up to an appended file: start, captured, length and time in an array
        of shape (4, n), whether each one is likely, and whether the chain breaks after them."""
        room = min(max(end - begin, 0) // _SMALL_RECORD + 1, _SCAN_LIMIT)
        table, is_likely = np.empty((4, room), np.int64), np.empty(room, np.uint8)
        whole, is_broken = _native.read_pcap(
            data, begin, end, self._order == ">", self._record_bytes, PACKET_LIMIT, self._unit,
            _NEAR, -1 if self._seconds is None else self._seconds, table.reshape(-1), is_likely,
        )  # fmt: skip
        # A file header has zeros where a record has its lengths.
        for row in np.flatnonzero(table[1, :whole] | table[2, :whole] == 0).tolist():
            if self.begins_file(data, int(table[0, row]) - self._record_bytes):
                whole, is_broken = row, False
                break
        return table[:, :whole], is_likely[:whole], is_broken

    def _seconds_at(self, data: Bytes, at: int) -> int:
        """The seconds of the record at a position."""
        seconds: int = struct.unpack_from(f"{self._order}I", data.data, at)[0]
        return seconds

    def _choose_variant(self, data: Bytes, begin: int, end: int) -> bool:
        """Choose the variant by the first records of a file, once there are enough. Returns whether
        it is not the usual one."""
        counts = {size: self._first_records(data, begin, end, size) for size in self._variants}
        usual = self._variants[0]
        others = [size for size in self._variants[1:] if counts[size] >= _FIRST_RECORDS - 1]
        if not counts[usual] and others:
            self._record_bytes = max(others, key=lambda size: counts[size])
        if counts[usual] > 1 or others:
            self._variants = (self._record_bytes,)
        return self._record_bytes != usual

    def _first_records(self, data: Bytes, begin: int, end: int, size: int) -> int:
        """Number of successive likely records from `begin` on, with headers of `size` bytes."""
        for count in range(_FIRST_RECORDS):
            if begin + self._record.itemsize > end:
                return count
            record = gather(data, np.array([begin]), self._record)
            if not self._likely(record, None)[0]:
                return 0
            begin += size + int(record["captured"][0])
        return _FIRST_RECORDS

    def search(self, data: Bytes, begin: int, end: int, *, final: bool) -> int | None:
        def records(low: int, high: int) -> Int64:
            likely = self._timely(gather(data, slice(low, high), self._record))
            at = low + np.flatnonzero(likely)
            return at[self._begins(data, at, end, final=final)]

        return first_record(begin, end - self._record_bytes + 1, records)

    def _begins(self, data: Bytes, at: Int64, end: int, *, final: bool) -> NDArray[np.bool_]:
        """Whether a likely record begins at each position, followed by another one.

        A record that extends beyond `end` is accepted; at the end of a file, one that ends there.
        """
        record = gather(data, at, self._record)
        following = at + record["captured"] + self._record_bytes
        visible = following + self._record_bytes <= end
        next_record = gather(data, np.where(visible, following, at), self._record)
        leads_on = self._likely(next_record, record["seconds"].astype(np.int64))
        # Without a time to compare with, one record alone proves nothing.
        unseen = ((following == end) if final else True) & (self._seconds is not None)
        return self._timely(record) & np.where(visible, leads_on, unseen)

    def _believable(self, data: Bytes, at: Int64, is_likely: UInt8, end: int) -> int:
        """The number of records of a chain to accept. `is_likely`: whether each one is likely, with
        a time near that of the one before.

        A record that is possible but unlikely comes from an unusual writer, or from following a
        damaged length. In the second case a better chain starts nearby.
        """
        if not len(at):
            return 0
        if is_likely.all():
            self._sound = self._seconds_at(data, int(at[-1]))
            return len(at)
        record = gather(data, at, self._record)
        chain = np.append(at, at[-1:] + record["captured"][-1:] + self._record_bytes)
        seconds = record["seconds"].astype(np.int64)
        before = np.concatenate(
            [seconds[:1] if self._seconds is None else [self._seconds], seconds]
        )
        likely = is_likely.astype(np.bool_) | self._in_a_row(data, record, chain, end)
        if likely.any():
            self._sound = int(seconds[likely][-1])
        for odd in np.flatnonzero(~likely):
            if not self._odd_left:
                break
            self._odd_left -= 1
            self._seconds = int(before[odd])
            begin = int(at[odd - 1]) + self._record_bytes if odd else int(at[odd]) + 1
            candidate = self.search(data, begin, min(end, begin + 2 * PACKET_LIMIT), final=True)
            if candidate is not None and candidate not in chain[odd:]:
                return int(odd)
        return len(at)

    def _in_a_row(
        self, data: Bytes, record: NDArray[np.void], chain: Int64, end: int
    ) -> NDArray[np.bool_]:
        """Whether each record and the next one are likely except for their time, after a pause.

        `chain`: positions of all records, and the position after the last one.
        """
        sound = self._likely(record, None)
        is_visible = int(chain[-1]) + self._record_bytes <= end
        following = gather(data, chain[-1:] if is_visible else chain[:1], self._record)
        is_followed = self._likely(following, None) if is_visible else chain[-1:] == end
        sound &= np.append(sound[1:], is_followed)
        return sound

    def _timely(self, record: NDArray[np.void]) -> NDArray[np.bool_]:
        """Whether each record is likely, with a time near that of the last packet or of the last
        likely packet: the last packet before damage may be damaged itself."""
        if self._seconds is None:
            return self._likely(record, None)
        timely = self._likely(record, self._seconds)
        if self._sound is not None and self._sound != self._seconds:
            timely |= self._likely(record, self._sound)
        return timely

    def _likely(self, record: NDArray[np.void], seconds: Int64 | int | None) -> NDArray[np.bool_]:
        """Whether each record is likely without other evidence; 1 in 10^12 for random bytes.

        `seconds`: the time of the previous packet, if known.
        """
        captured, length = record["captured"], record["length"]
        likely: NDArray[np.bool_] = (captured > 0) & (captured <= length) & (length <= PACKET_LIMIT)
        likely &= record["fraction"] < _SECOND // self._unit
        if seconds is not None:
            likely &= np.abs(record["seconds"].astype(np.int64) - seconds) <= _NEAR
        return likely
