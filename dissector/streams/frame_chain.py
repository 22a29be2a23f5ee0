"""Frame chains: from the segments of streams to frames.

A frame is a 4-byte size and that many bytes, so the sizes of a stream form a chain. Most small
messages are one segment each. If a segment at the chain is exactly one frame, all directly
following segments of this kind are taken at once. Elsewhere all streams advance together, one frame
of each stream per step; the last few streams advance one by one.

Addresses count the bytes of all streams of a block, one stream after another, holes included. A
hole inside a frame does not break the chain, since the size gives the start of the next frame. A
hole over a size, or an impossible size, breaks it; then `resync` searches for the next message.

If the loops are compiled (see `kernel`), one compiled loop walks the streams one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dissector import kernel
from dissector.packets.block import Bytes, Int64
from dissector.streams.byteview import ContiguousBytes, ScatteredBytes, ranges
from dissector.streams.limits import FRAME_LIMIT
from dissector.streams.segments import Segments, last_of_each
from dissector.streams.table import Bools

SEQUENTIAL_STREAMS = 6
"""Up to this number of streams, walking them one by one is cheaper than together."""

WHOLE, CUT, LOST, BAD = range(4)
"""Where the walk of a stream ended: at its end, inside a frame, at a lost size, at an impossible
size."""

NO_GAP = 1 << 62
"""An address behind all others."""


@dataclass(frozen=True, slots=True)
class ChainFrames:
    """n frames; int64 arrays of shape (n,)."""

    start: Int64
    """Address of the size."""
    size: Int64
    piece: Int64
    """The piece that holds the first byte of the size."""

    @classmethod
    def joined(cls, parts: Sequence[ChainFrames]) -> ChainFrames:
        """The frames of all parts, in order of address."""
        if len(parts) == 1 and (np.diff(parts[0].start) > 0).all():
            return parts[0]
        empty = [np.zeros(0, np.int64)]
        start = np.concatenate([each.start for each in parts] or empty)
        order = np.argsort(start, kind="stable")
        return cls(
            start[order],
            np.concatenate([each.size for each in parts] or empty)[order],
            np.concatenate([each.piece for each in parts] or empty)[order],
        )

    def where(self, mask: Bools) -> ChainFrames:
        """The frames that the mask selects."""
        return ChainFrames(self.start[mask], self.size[mask], self.piece[mask])


@dataclass(slots=True)
class FrameChains:
    """The bytes of a block's streams, and the walk along their frames.

    Methods take `index`: the index of a stream in `stream`.
    """

    data: Bytes
    pieces: Segments
    """Segments by stream and position, without overlap."""
    address: Int64 = field(init=False)
    """Address of each piece's first byte."""
    space: ScatteredBytes = field(init=False)
    stream: Int64 = field(init=False)
    """Slots of the streams that have pieces, ascending; shape (streams,)."""
    first: Int64 = field(init=False)
    """First piece of each stream, then the number of pieces; shape (streams + 1,)."""
    end: Int64 = field(init=False)
    """Address behind the last byte of each stream."""
    _gap_start: Int64 = field(init=False)
    _gap_end: Int64 = field(init=False)
    _size: Int64 = field(init=False)
    """The first four bytes of each piece, as a size."""
    _is_frame: Bools = field(init=False)
    """Pieces whose size is that of exactly one frame."""
    _until: Int64 = field(init=False)
    """For each piece, the next one that is not one frame, or does not directly follow."""

    def __post_init__(self) -> None:
        pieces, count = self.pieces, len(self.pieces)
        last = last_of_each(pieces.stream)
        same = pieces.stream[1:] == pieces.stream[:-1]
        step = np.where(same, np.diff(pieces.at), pieces.span[:-1])
        self.address = np.zeros(count, np.int64)
        np.cumsum(step, out=self.address[1:])
        self.space = ScatteredBytes(self.data, self.address, pieces.source, pieces.length)
        self.stream = pieces.stream[last]
        self.first = np.append(0, last + 1)
        self.end = self.address[last] + pieces.span[last]
        piece_end = self.address + pieces.length
        next_start = np.append(self.address[1:], self.end[-1:])
        gaps = np.flatnonzero(next_start > piece_end)
        self._gap_start, self._gap_end = piece_end[gaps], next_start[gaps]
        size = ContiguousBytes(self.data).number(pieces.source, "i4")
        self._size = size.astype(np.int64)
        self._is_frame = (pieces.length >= 4) & (pieces.length == pieces.span)
        self._is_frame &= self._size == pieces.length - 4
        chained = self._is_frame.copy()
        chained[:1] = False
        chained[1:] &= same & (piece_end[:-1] == self.address[1:])
        breaks = np.append(np.flatnonzero(~chained), count)
        self._until = np.repeat(breaks[1:], np.diff(breaks)) if count else breaks[:0]

    def address_of(self, index: Int64, position: Int64) -> Int64:
        """Address of a position in each of these streams."""
        first = self.first[index]
        return self.address[first] + position - self.pieces.at[first]

    def position_of(self, index: Int64, address: Int64) -> Int64:
        """Position of an address in each of these streams."""
        first = self.first[index]
        return address - self.address[first] + self.pieces.at[first]

    def piece_of(self, address: Int64) -> Int64:
        """Index of the piece that holds, or comes last before, each address."""
        piece: Int64 = np.searchsorted(self.address, address, side="right") - 1
        return piece

    def gap_after(self, address: Int64) -> Int64:
        """Address of the first missing byte at or behind each address; the ends of streams are not
        counted. NO_GAP if no byte is missing."""
        if not len(self._gap_start):
            return np.full(len(address), NO_GAP)
        next_gap = np.searchsorted(self._gap_end, address, side="right")
        start = np.append(self._gap_start, NO_GAP)[next_gap]
        until: Int64 = np.maximum(start, address)
        return until

    def runs_behind_gaps(self, count: int) -> Int64:
        """Pieces behind missing bytes that begin at least `count` pieces of one frame each."""
        piece = np.minimum(np.searchsorted(self.address, self._gap_end), len(self.pieces) - 1)
        piece = piece[(self.address[piece] == self._gap_end) & self._is_frame[piece]]
        runs: Int64 = piece[self._until[piece] - piece >= count]
        return runs

    def numbers_at(self, address: Int64) -> Int64:
        """The 4-byte numbers at these addresses, which may lie behind the last byte."""
        at = np.minimum(address, self.space.size)
        return self.space.number(at, "i4").astype(np.int64)

    def bytes_between(
        self, index: int, begin: int, end: int
    ) -> tuple[Bytes, Callable[[Int64], Int64]]:
        """The bytes of a stream between two addresses, without its holes; and a function from
        offsets in them to addresses."""
        first = int(self.piece_of(np.array([begin]))[0])
        last = min(int(self.piece_of(np.array([end - 1]))[0]) + 1, int(self.first[index + 1]))
        low = np.maximum(self.address[first:last], begin)
        high = np.minimum(self.address[first:last] + self.pieces.length[first:last], end)
        length = np.maximum(high - low, 0)
        source = self.pieces.source[first:last] + low - self.address[first:last]
        parts = [
            self.data[at : at + size]
            for at, size in zip(source.tolist(), length.tolist(), strict=True)
        ]
        ends = np.cumsum(length)
        shift = low - (ends - length)

        def address(offset: Int64) -> Int64:
            shifted: Int64 = offset + shift[np.searchsorted(ends, offset, side="right")]
            return shifted

        return np.concatenate(parts), address

    def walk(self, index: Int64, at: Int64) -> tuple[ChainFrames, Int64, Int64, Int64]:
        """Walk the chains of these streams from the addresses `at` on.

        Returns the frames; then for each stream the address where its walk ended, the reason
        (WHOLE, CUT, LOST, BAD), and the end of an incomplete frame, or -1 if its size is incomplete
        too.
        """
        at = at.copy()
        ended = np.full(len(index), WHOLE)
        behind = np.full(len(index), -1)
        if kernel.COMPILED and len(index):
            return self._compiled(index, at, ended, behind), at, ended, behind
        parts: list[ChainFrames] = []
        lost = at < self.address[self.first[index]]
        ended[lost] = LOST
        live = np.flatnonzero(~lost & (at < self.end[index]))
        while len(live) > SEQUENTIAL_STREAMS:
            here, end = at[live], self.end[index[live]]
            piece = self.piece_of(here)
            leap = self._is_frame[piece] & (self.address[piece] == here)
            until = np.where(leap, self._until[piece], piece + 1)
            run = ranges(piece[leap], until[leap] - piece[leap])[0]
            parts.append(ChainFrames(self.address[run], self._size[run], run))
            size, how = self._sizes(here, end, ~leap)
            single = ~leap & (how == WHOLE)
            parts.append(ChainFrames(here[single], size[single], piece[single]))
            edge = self.address[until - 1] + self.pieces.length[until - 1]
            stop = how != WHOLE
            ended[live] = how
            behind[live] = np.where((how == CUT) & (here + 4 <= end), here + 4 + size, -1)
            here = np.where(stop, here, np.where(leap, edge, here + 4 + size))
            at[live] = here
            live = live[~stop & (here < end)]
        for each in live.tolist():
            frames, at[each], ended[each], behind[each] = self._walk_one(
                int(at[each]), int(self.end[index[each]])
            )
            parts.append(frames)
        return ChainFrames.joined(parts), at, ended, behind

    def _compiled(self, index: Int64, at: Int64, ended: Int64, behind: Int64) -> ChainFrames:
        """`walk` by the compiled loop, which fills `at`, `ended` and `behind`."""
        space = self.space
        frames = kernel.loops.walk_frames(
            self.data, space.address, space.position, space.length, self._size,
            self.first[index], self.end[index], FRAME_LIMIT, at, ended, behind,
        )  # fmt: skip
        start, size, piece = np.frombuffer(frames, np.int64).reshape(-1, 3).T.copy()
        return ChainFrames(start, size, piece)

    def _sizes(self, at: Int64, end: Int64, wanted: Bools) -> tuple[Int64, Int64]:
        """The size at each wanted address, and how the walk goes on: WHOLE if not wanted."""
        size = np.zeros(len(at), np.int64)
        how = np.full(len(at), WHOLE)
        index = np.flatnonzero(wanted)
        if len(index):
            at, end = at[index], end[index]
            size[index] = value = self.space.number(at, "i4").astype(np.int64)
            state = np.where(at + 4 + value > end, CUT, WHOLE)
            state[(value < 0) | (value > FRAME_LIMIT)] = BAD
            state[at + 4 > end] = CUT
            state[self.gap_after(at) < np.minimum(at + 4, end)] = LOST
            how[index] = state
        return size, how

    def _walk_one(self, at: int, end: int) -> tuple[ChainFrames, int, int, int]:
        """`walk` for one stream."""
        starts: list[int] = []
        sizes: list[int] = []
        pieces: list[int] = []
        memory = self.data.data
        how, behind = WHOLE, -1
        piece = low = high = shift = 0
        while at < end:
            if not low < at <= high - 4:
                piece = int(np.searchsorted(self.address, at, side="right")) - 1
                low = int(self.address[piece])
                if at == low and self._is_frame[piece]:
                    run = slice(piece, int(self._until[piece]))
                    starts += self.address[run].tolist()
                    sizes += self._size[run].tolist()
                    pieces += range(run.start, run.stop)
                    at = starts[-1] + 4 + sizes[-1]
                    continue
                high = low + int(self.pieces.length[piece])
                shift = int(self.pieces.source[piece]) - low
            if at <= high - 4:
                size = int.from_bytes(memory[at + shift : at + shift + 4], "big", signed=True)
                how = WHOLE if at + 4 + size <= end else CUT
                how = how if 0 <= size <= FRAME_LIMIT else BAD
            else:
                value, state = self._sizes(np.array([at]), np.array([end]), np.ones(1, np.bool_))
                size, how = int(value[0]), int(state[0])
            if how != WHOLE:
                behind = at + 4 + size if how == CUT and at + 4 <= end else -1
                break
            starts.append(at)
            sizes.append(size)
            pieces.append(piece)
            at += 4 + size
        columns = (np.array(each, np.int64) for each in (starts, sizes, pieces))
        return ChainFrames(*columns), at, how, behind
