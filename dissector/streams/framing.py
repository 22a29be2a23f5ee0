"""Framing: from stretches of streams to frames.

A frame is a 4-byte size and that many bytes, so the sizes of a stream form a chain. Most small
messages are one packet each: for each stream, the stretch that begins where the chain is and whose
size is its own length is a frame, and so on to the first that is not, all at once. From there all
streams are walked together, a frame of each a step, and the last few one by one.

Addresses count the bytes of all streams of a block, one stream after the other, holes included. A
hole inside a frame leaves the chain whole, since the size says where the next one begins. A hole
over a size, or a size that cannot be, breaks it; then `sync` finds a new beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dissector.packets.block import Bytes, Int64
from dissector.streams.bytespace import FlatSpace, PiecedSpace
from dissector.streams.reassembly import Segments

MAX_FRAME = 100 << 20
"""Largest size taken for one: a broker's socket.request.max.bytes, which is 104857600."""

FEW = 6
"""Streams for which a step each is cheaper than a step together."""

WHOLE, CUT, BROKEN = range(3)
"""How the walk of a stream ended: at its end, inside a frame, or where no size can be."""

FAR = 1 << 62


@dataclass(slots=True)
class Chains:
    """The bytes of a block's streams, and the walk along their frames."""

    data: Bytes
    pieces: Segments
    """Sorted by stream and position."""
    address: Int64 = field(init=False)
    """Of each piece's first byte."""
    space: PiecedSpace = field(init=False)
    stream: Int64 = field(init=False)
    """The streams that have pieces, ascending; shape (streams,)."""
    first: Int64 = field(init=False)
    """First piece of each stream, and the number of pieces at the end; shape (streams + 1,)."""
    end: Int64 = field(init=False)
    """Address behind the last byte of each stream."""
    _gap_start: Int64 = field(init=False)
    _gap_end: Int64 = field(init=False)

    def __post_init__(self) -> None:
        pieces = self.pieces
        new = np.ones(len(pieces), np.bool_)
        new[1:] = pieces.stream[1:] != pieces.stream[:-1]
        step = np.where(new[1:], pieces.span[:-1], np.diff(pieces.at))
        self.address = np.concatenate([np.zeros(min(len(pieces), 1), np.int64), np.cumsum(step)])
        self.space = PiecedSpace(self.data, self.address, pieces.source, pieces.length)
        self.first = np.append(np.flatnonzero(new), len(pieces))
        self.stream = pieces.stream[self.first[:-1]]
        last = self.first[1:] - 1
        self.end = self.address[last] + pieces.span[last]
        there = self.address + pieces.length
        follows = np.append(self.address[1:], self.end[-1:])
        gaps = np.flatnonzero(follows > there)
        self._gap_start, self._gap_end = there[gaps], follows[gaps]

    def address_of(self, index: Int64, position: Int64) -> Int64:
        """Address of a position in each of the streams at `index`."""
        first = self.first[index]
        return self.address[first] + position - self.pieces.at[first]

    def position_of(self, index: Int64, address: Int64) -> Int64:
        """The opposite."""
        first = self.first[index]
        return address - self.address[first] + self.pieces.at[first]

    def piece_of(self, address: Int64) -> Int64:
        """Index of the piece that holds, or comes last before, each address."""
        piece: Int64 = np.searchsorted(self.address, address, side="right") - 1
        return piece

    def there_until(self, address: Int64) -> Int64:
        """How far the bytes from each address on are there."""
        if not len(self._gap_start):
            return np.full(len(address), FAR)
        next_gap = np.searchsorted(self._gap_end, address, side="right")
        start = np.append(self._gap_start, FAR)[next_gap]
        until: Int64 = np.maximum(start, address)
        return until

    def walk(self, index: Int64, at: Int64) -> tuple[Int64, Int64, Int64, Int64, Int64]:
        """Walk the chains of the streams at `index` from the addresses `at` on.

        Returns address and size of each frame and the index of its stream; then for each stream the
        address where its walk ended, and how (WHOLE, CUT, BROKEN).
        """
        found: list[tuple[Int64, Int64, Int64]] = [self._one_each(index, at)]
        at = at.copy()
        np.maximum.at(at, np.searchsorted(index, found[0][2]), found[0][0] + 4 + found[0][1])
        ended = np.full(len(index), WHOLE)
        live = np.flatnonzero(at < self.end[index])
        while len(live) > FEW:
            here, end = at[live], self.end[index[live]]
            size, how = self._sizes(here, end)
            good = how == WHOLE
            found.append((here[good], size[good], index[live[good]]))
            ended[live] = how
            at[live] = here + np.where(good, 4 + size, 0)
            live = live[good]
            live = live[at[live] < self.end[index[live]]]
        for each in live.tolist():
            starts, sizes, at[each], ended[each] = self._alone(
                int(at[each]), int(self.end[index[each]])
            )
            who = np.full(len(starts), index[each])
            found.append((np.array(starts, np.int64), np.array(sizes, np.int64), who))
        start, size, who = (np.concatenate(each) for each in zip(*found, strict=True))
        order = np.argsort(start, kind="stable")
        return start[order], size[order], who[order], at, ended

    def _one_each(self, index: Int64, at: Int64) -> tuple[Int64, Int64, Int64]:
        """Frames that are one piece each, from the beginning of each stream on."""
        pieces = self.pieces
        size = FlatSpace(self.data).number(pieces.source, "i4").astype(np.int64)
        fits = (pieces.length >= 4) & (size == pieces.length - 4) & (pieces.span == pieces.length)
        fits[1:] &= self.address[1:] == (self.address + pieces.span)[:-1]
        begins = np.full(len(self.stream), -1)
        begins[index] = at
        starts = self.first[:-1]
        fits[starts] = (
            (begins == self.address[starts])
            & (pieces.length[starts] >= 4)
            & (size[starts] == pieces.length[starts] - 4)
            & (pieces.span[starts] == pieces.length[starts])
        )
        misses = np.cumsum(~fits)
        whose = np.repeat(np.arange(len(self.stream)), np.diff(self.first))
        misses -= (misses[starts] - ~fits[starts])[whose]
        some = np.flatnonzero(misses == 0)
        return self.address[some], size[some], whose[some]

    def _sizes(self, at: Int64, end: Int64) -> tuple[Int64, Int64]:
        """The size at each address, and how the walk goes on from there."""
        size = self.space.number(np.minimum(at, end), "i4").astype(np.int64)
        how = np.full(len(at), WHOLE)
        how[at + 4 + size > end] = CUT
        how[(size < 0) | (size > MAX_FRAME)] = BROKEN
        how[at + 4 > end] = CUT
        how[self.there_until(at) < np.minimum(at + 4, end)] = BROKEN
        return size, how

    def _alone(self, at: int, end: int) -> tuple[list[int], list[int], int, int]:
        """The same walk for one stream; sizes are read from each piece while they lie inside it."""
        starts: list[int] = []
        sizes: list[int] = []
        memory = self.data.data
        low = high = shift = 0
        while at < end:
            if not low <= at <= high - 4:
                piece = int(np.searchsorted(self.address, at, side="right")) - 1
                low = int(self.address[piece])
                high = low + int(self.pieces.length[piece])
                shift = int(self.pieces.source[piece]) - low
            if at <= high - 4:
                size = int.from_bytes(memory[at + shift : at + shift + 4], "big", signed=True)
                how = WHOLE if 0 <= size <= MAX_FRAME else BROKEN
            else:
                one, state = self._sizes(np.array([at]), np.array([end]))
                size, how = int(one[0]), int(state[0])
            if how != WHOLE or at + 4 + size > end:
                return starts, sizes, at, how or CUT
            starts.append(at)
            sizes.append(size)
            at += 4 + size
        return starts, sizes, at, WHOLE
