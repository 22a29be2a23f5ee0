"""Reassembly of IP fragments (RFC 791, section 3.2; RFC 8200, section 4.5).

Fragments are buffered until their packet is complete. Then its bytes are appended to the block's
data, and the last fragment becomes the whole packet, with its own time and number. Fragments are
rare, so they are processed one by one. A duplicate fragment (two captures of the same traffic may
be read as one) is kept for a second copy of the packet.

The buffer is limited in packets and bytes: the oldest packet is dropped first. A packet is also
dropped if a fragment shows that its identification is used again (RFC 4963): the fragment comes
after TIMEOUT, or has other bytes than the one at its offset. So are packets whose fragments
overlap, except for duplicates (RFC 5722). Dropped fragments become a `Problem` with their number.
For UDP, only fragments of tunnels count. Fragments of second copies do not count.
"""

from __future__ import annotations

import struct
from dataclasses import field
from typing import TypeAlias

import numpy as np

from dissector.arrays import mutable
from dissector.packets.block import PAD, Int32, Place
from dissector.packets.formats.capture_reader import PacketRecords
from dissector.packets.layers.headers import PORTS, PROTOCOLS, Kind, Names, Packets
from dissector.problems import Problem, packets_are

PACKETS = 4096
"""Maximum number of incomplete packets."""
BYTES = 16 << 20
"""Maximum number of bytes of all incomplete packets."""
TIMEOUT = 10**9
"""ns of capture time. The fragments of a packet follow each other. Fast senders need a few seconds
for all identifications of IPv4 (RFC 4963, section 2)."""
LARGEST = 0xFFFF
"""Bytes of the largest packet."""
UDP = 17
ADDRESSES = ("src_high", "src_low", "dst_high", "dst_low")

_Key: TypeAlias = tuple[int, ...]


@mutable
class _Fragment:
    data: bytes
    """The captured bytes."""
    length: int
    """Bytes on the wire."""
    protocol: int
    places: list[Place]
    """Its packet; several if the fragment was itself in a fragmented packet."""


@mutable
class _Datagram:
    """The fragments of one packet so far."""

    time: int
    """ns; time of the first fragment."""
    capture: str
    number: int
    is_copy: bool = False
    """These are duplicates of fragments of a packet that was complete."""
    duplicates: dict[int, _Fragment] = field(default_factory=dict)
    """Duplicate fragments, by offset."""
    pieces: dict[int, _Fragment] = field(default_factory=dict)
    """Fragments by offset."""
    size: int | None = None
    """Bytes of the whole packet, known from its last fragment."""
    length: int = 0
    """Bytes of all fragments so far."""

    @property
    def is_missed(self) -> bool:
        """Whether the packet may contain TCP that is nowhere else in the capture."""
        if self.is_copy:
            return False
        first = self.pieces.get(0)
        if any(piece.protocol != UDP for piece in self.pieces.values()):
            return True
        port = int.from_bytes(first.data[2:4], "big") if first else 0
        return bool(PORTS[port] != Kind.OTHER)

    def is_over(self, offset: int, piece: _Fragment, time: int) -> bool:
        """Whether a fragment is of a later packet with the same identification."""
        before = self.pieces.get(offset, piece)
        size = min(len(before.data), len(piece.data))
        differs = before.length != piece.length or before.data[:size] != piece.data[:size]
        return differs or abs(time - self.time) > TIMEOUT

    def payload(self) -> bytes | None:
        """Its bytes up to the first missing byte; None if fragments overlap."""
        data, end, is_there = bytearray(), 0, True
        for offset, piece in sorted(self.pieces.items()):
            if offset != end:
                return None
            end += piece.length
            if is_there:
                data += piece.data
                is_there = len(piece.data) == piece.length
        return bytes(data) if end == self.size else None


class Fragments:
    """The buffered fragments of a capture."""

    def __init__(self) -> None:
        self._waiting: dict[_Key, _Datagram] = {}  # oldest first
        self._bytes = 0
        self._lost: list[_Datagram] = []
        self._joined: dict[Place, list[Place]] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether later packets may complete a datagram."""
        return bool(self._waiting)

    def renumber(self, packets: int) -> None:
        """Add to the packet numbers of all fragments, which were counted from a later packet."""
        for datagram in self._waiting.values():
            datagram.number += packets
            for piece in (*datagram.pieces.values(), *datagram.duplicates.values()):
                piece.places = [(file, number + packets) for file, number in piece.places]

    def join(self, packets: Packets, records: PacketRecords, capture: Int32, names: Names) -> bool:
        """Take all fragments among `packets`. Returns whether packets were completed.

        `capture`: the file of each packet, as a key of `names`.
        """
        is_fragment = (packets.kind == Kind.FRAGMENT) | (packets.kind == Kind.FRAGMENT_V6)
        appended = [packets.data[:-PAD]]
        end = len(appended[0])
        has_joined = False
        for row in np.flatnonzero(is_fragment).tolist():
            place = int(capture[row]), int(records.number[row])
            pieces = self._take(packets, row, int(records.columns.time[row]), place, names)
            packets.kind[row] = Kind.OTHER
            packets.at[row] = packets.end[row]
            if pieces is None:
                continue
            data = pieces.payload()
            if data is None:
                self._lost.append(pieces)
                continue
            assert pieces.size is not None
            packets.kind[row] = PROTOCOLS[pieces.pieces[0].protocol]
            packets.at[row], packets.end[row] = end, end + len(data)
            packets.wire_end[row] = end + pieces.size
            parts = pieces.pieces.values()
            self._joined[place] = [each for piece in parts for each in piece.places]
            appended.append(np.frombuffer(data, np.uint8))
            end += len(data)
            has_joined = True
        if has_joined:
            packets.data = np.concatenate([*appended, np.zeros(PAD, np.uint8)])
        return has_joined

    def _take(
        self, packets: Packets, row: int, time: int, place: Place, names: Names
    ) -> _Datagram | None:
        """Add one fragment to its packet. Returns the packet if it is complete."""
        key, offset, is_last, begin, protocol = _header(packets, row)
        end, wire_end = int(packets.end[row]), int(packets.wire_end[row])
        places = self._joined.get(place, [place])
        piece = _Fragment(packets.data[begin:end].tobytes(), wire_end - begin, protocol, places)
        pieces = self._waiting.get(key)
        if pieces is not None and pieces.is_over(offset, piece, time):
            self._discard(key)
            pieces = None
        if pieces is None:
            pieces = self._waiting[key] = _Datagram(time, names[place[0]], place[1])
        before = pieces.pieces.setdefault(offset, piece)
        if before is not piece:
            if offset not in pieces.duplicates:  # captured or sent twice
                pieces.duplicates[offset] = piece
                self._bytes += len(piece.data)
            return None
        pieces.length += piece.length
        self._bytes += len(piece.data)
        contradicts = is_last and pieces.size not in (None, offset + piece.length)
        if is_last:
            pieces.size = offset + piece.length
        unaligned = not is_last and piece.length % 8
        too_long = offset + piece.length > LARGEST
        if contradicts or unaligned or too_long or piece.length <= 0:
            self._discard(key)
            return None
        while len(self._waiting) > PACKETS or self._bytes > BYTES:
            self._discard(next(iter(self._waiting)))
        if pieces.size is None or pieces.length < pieces.size:
            return None
        return self._complete(key)

    def _complete(self, key: _Key) -> _Datagram:
        """Remove a complete packet; its duplicate fragments stay in the buffer."""
        pieces = self._drop(key)
        if pieces.duplicates:
            duplicates = pieces.duplicates
            ends = [offset + piece.length for offset, piece in duplicates.items()]
            self._waiting[key] = _Datagram(
                pieces.time, pieces.capture, pieces.number, is_copy=True, pieces=duplicates,
                size=pieces.size if pieces.size in ends else None,
                length=sum(piece.length for piece in duplicates.values()),
            )  # fmt: skip
            self._bytes += sum(len(piece.data) for piece in duplicates.values())
        return pieces

    def _drop(self, key: _Key) -> _Datagram:
        pieces = self._waiting.pop(key)
        dropped = [*pieces.pieces.values(), *pieces.duplicates.values()]
        self._bytes -= sum(len(piece.data) for piece in dropped)
        return pieces

    def _discard(self, key: _Key) -> None:
        self._lost.append(self._drop(key))

    def joined(self) -> dict[Place, list[Place]]:
        """All fragments of each packet that was completed since the last call, by the last one."""
        joined, self._joined = self._joined, {}
        return joined

    def discarded(self) -> list[Problem]:
        """Fragments dropped since the last call, as a row for each file."""
        lost: dict[str, list[_Datagram]] = {}
        for pieces in self._lost:
            if pieces.is_missed:
                lost.setdefault(pieces.capture, []).append(pieces)
        self._lost = []
        return [_problem(pieces) for pieces in lost.values()]

    def finish(self) -> list[Problem]:
        """Drop all incomplete packets at the end of the capture."""
        for key in list(self._waiting):
            self._discard(key)
        return self.discarded()


def _problem(lost: list[_Datagram]) -> Problem:
    """The row for dropped fragments of one file."""
    first, count = lost[0], sum(len(each.pieces) for each in lost)
    return Problem(
        "packets", "fragment",
        f"{packets_are(count)} fragments of IP packets that are incomplete or contradictory",
        time=first.time, capture=first.capture, packet=first.number,
        bytes=sum(each.length for each in lost), count=count,
    )  # fmt: skip


def _header(packets: Packets, row: int) -> tuple[_Key, int, bool, int, int]:
    """Key of a fragment's packet, offset, whether it is the last, position of its bytes, protocol.

    Packets are at the header with the fragment's offset, which is complete.
    """
    at = int(packets.at[row])
    ends = [int(packets.columns[name][row]) for name in ADDRESSES]
    memory = packets.data.data
    if packets.kind[row] == Kind.FRAGMENT:
        version, identification, flags, protocol = struct.unpack_from(">B3xHHxB", memory, at)
        key = (4, identification, protocol, *ends)
        return key, (flags & 0x1FFF) * 8, not flags & 0x2000, at + (version & 15) * 4, protocol
    protocol, flags, identification = struct.unpack_from(">BxHI", memory, at)
    return (6, identification, *ends), flags & 0xFFF8, not flags & 1, at + 8, protocol
