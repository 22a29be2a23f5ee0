"""Fragments of IP packets (RFC 791, section 3.2; RFC 8200, section 4.5), put together.

Pieces wait until all of their packet are there; then its bytes are appended to the block's data,
and the piece that came last becomes the whole packet, with its own time and number. This is rare,
so that it goes piece by piece. A piece that is there twice, as where two captures of the same
traffic are read as one, is kept for a second copy of the packet.

What waits is bounded in packets and bytes: the oldest is given up first. So is what is older than
TIMEOUT, since identifications come again, and pieces that overlap in any other way than being there
twice (RFC 5722). Fragments that were given up become a `Problem`, counted; of UDP only those of
tunnels, and of second copies none.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from dissector.packets.block import PAD, Int32
from dissector.packets.capture_reader import PacketRecords
from dissector.packets.headers import PORTS, PROTOCOLS, Kind, Names, Packets
from dissector.problems import Problem, packets_are

PACKETS = 4096
"""Most packets that wait for fragments."""
BYTES = 16 << 20
"""Most bytes of them together."""
TIMEOUT = 30 * 10**9
"""ns of capture time; as long as Linux waits (ipfrag_time)."""
LARGEST = 0xFFFF
"""Bytes of the largest packet."""
UDP = 17

_Key: TypeAlias = tuple[int, ...]


@dataclass(slots=True)
class _Fragment:
    data: bytes
    """As captured."""
    length: int
    """On the wire."""
    protocol: int


@dataclass(slots=True)
class _Datagram:
    """What is there of one packet."""

    time: int
    """ns; of the piece that came first."""
    capture: str
    number: int
    is_copy: bool = False
    """The packet was complete already when these pieces were left over."""
    again: dict[int, _Fragment] = field(default_factory=dict)
    """Those that came a second time, by offset."""
    pieces: dict[int, _Fragment] = field(default_factory=dict)
    """By offset."""
    size: int | None = None
    """Of the whole, once its last piece is there."""
    length: int = 0
    """Of all pieces."""

    @property
    def is_missed(self) -> bool:
        """Whether the packet may hold TCP that nothing else holds."""
        if self.is_copy:
            return False
        first = self.pieces.get(0)
        if any(piece.protocol != UDP for piece in self.pieces.values()):
            return True
        port = int.from_bytes(first.data[2:4], "big") if first else 0
        return bool(PORTS[port] != Kind.OTHER)

    def payload(self) -> bytes | None:
        """Its bytes, up to the first that was not captured; None where pieces overlap."""
        found, end, is_there = bytearray(), 0, True
        for offset, piece in sorted(self.pieces.items()):
            if offset != end:
                return None
            end += piece.length
            if is_there:
                found += piece.data
                is_there = len(piece.data) == piece.length
        return bytes(found) if end == self.size else None


class Fragments:
    """The fragments of a capture that wait for others."""

    def __init__(self) -> None:
        self._waiting: dict[_Key, _Datagram] = {}  # oldest first
        self._bytes = 0
        self._lost: list[_Datagram] = []

    def join(self, packets: Packets, records: PacketRecords, capture: Int32, names: Names) -> bool:
        """Take all fragments among `packets`; whether any of them were made whole packets.

        `capture`: the file of each packet, as a key of `names`.
        """
        is_fragment = (packets.kind == Kind.FRAGMENT) | (packets.kind == Kind.FRAGMENT_V6)
        appended = [packets.data[:-PAD]]
        end = len(appended[0])
        found = False
        for row in np.flatnonzero(is_fragment).tolist():
            place = names[int(capture[row])], int(records.number[row])
            pieces = self._take(packets, row, int(records.columns.time[row]), place)
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
            appended.append(np.frombuffer(data, np.uint8))
            end += len(data)
            found = True
        if found:
            packets.data = np.concatenate([*appended, np.zeros(PAD, np.uint8)])
        return found

    def _take(
        self, packets: Packets, row: int, time: int, place: tuple[str, int]
    ) -> _Datagram | None:
        """Add one fragment to its packet; all pieces where it was the last that was missing.

        `place`: the file of the fragment, and its number there.
        """
        key, offset, is_last, begin, protocol = _header(packets, row)
        end, wire_end = int(packets.end[row]), int(packets.wire_end[row])
        piece = _Fragment(packets.data[begin:end].tobytes(), wire_end - begin, protocol)
        pieces = self._waiting.get(key)
        if pieces is not None and abs(time - pieces.time) > TIMEOUT:
            self._give_up(key)
            pieces = None
        if pieces is None:
            pieces = self._waiting[key] = _Datagram(time, *place)
        before = pieces.pieces.setdefault(offset, piece)
        if before is not piece and before.length == piece.length:
            self._keep_again(pieces, offset, piece)
            return None
        if before is not piece:
            self._give_up(key)
            return None
        pieces.length += piece.length
        self._bytes += len(piece.data)
        contradicts = is_last and pieces.size not in (None, offset + piece.length)
        if is_last:
            pieces.size = offset + piece.length
        unaligned = not is_last and piece.length % 8
        too_long = offset + piece.length > LARGEST
        if contradicts or unaligned or too_long or piece.length <= 0:
            self._give_up(key)
            return None
        while len(self._waiting) > PACKETS or self._bytes > BYTES:
            self._give_up(next(iter(self._waiting)))
        if pieces.size is None or pieces.length < pieces.size:
            return None
        return self._complete(key)

    def _keep_again(self, pieces: _Datagram, offset: int, piece: _Fragment) -> None:
        """Keep a piece that was captured twice, or sent twice."""
        if offset not in pieces.again:
            pieces.again[offset] = piece
            self._bytes += len(piece.data)

    def _complete(self, key: _Key) -> _Datagram:
        """Remove a packet of which all pieces are there; what came twice waits on."""
        pieces = self._drop(key)
        if pieces.again:
            again = pieces.again
            ends = [offset + piece.length for offset, piece in again.items()]
            self._waiting[key] = _Datagram(
                pieces.time, pieces.capture, pieces.number, is_copy=True, pieces=again,
                size=pieces.size if pieces.size in ends else None,
                length=sum(piece.length for piece in again.values()),
            )  # fmt: skip
            self._bytes += sum(len(piece.data) for piece in again.values())
        return pieces

    def _drop(self, key: _Key) -> _Datagram:
        pieces = self._waiting.pop(key)
        every = [*pieces.pieces.values(), *pieces.again.values()]
        self._bytes -= sum(len(piece.data) for piece in every)
        return pieces

    def _give_up(self, key: _Key) -> None:
        pieces = self._drop(key)
        self._lost.append(pieces)

    def given_up(self) -> list[Problem]:
        """What was given up since the last call, a row for each file."""
        lost: dict[str, list[_Datagram]] = {}
        for pieces in self._lost:
            if pieces.is_missed:
                lost.setdefault(pieces.capture, []).append(pieces)
        self._lost = []
        return [_problem(pieces) for pieces in lost.values()]

    def finish(self) -> list[Problem]:
        """No more packets come: give up what still waits."""
        for key in list(self._waiting):
            self._give_up(key)
        return self.given_up()


def _problem(lost: list[_Datagram]) -> Problem:
    """The row for fragments of one file."""
    first, count = lost[0], sum(len(each.pieces) for each in lost)
    return Problem(
        "packets", "fragment",
        f"{packets_are(count)} fragments of IP packets of which other fragments are missing",
        time=first.time, capture=first.capture, packet=first.number,
        bytes=sum(each.length for each in lost), count=count,
    )  # fmt: skip


def _header(packets: Packets, row: int) -> tuple[_Key, int, bool, int, int]:
    """Key of a fragment's packet, offset, whether it is the last, where its bytes begin, protocol.

    Packets stand before the header that says so, which was found whole.
    """
    at = int(packets.at[row])
    ends = tuple(
        int(each[row])
        for each in (packets.src_high, packets.src_low, packets.dst_high, packets.dst_low)
    )
    memory = packets.data.data
    if packets.kind[row] == Kind.FRAGMENT:
        version, identification, flags, protocol = struct.unpack_from(">B3xHHxB", memory, at)
        key = (4, identification, protocol, *ends)
        return key, (flags & 0x1FFF) * 8, not flags & 0x2000, at + (version & 15) * 4, protocol
    protocol, flags, identification = struct.unpack_from(">BxHI", memory, at)
    return (6, identification, *ends), flags & 0xFFF8, not flags & 1, at + 8, protocol
