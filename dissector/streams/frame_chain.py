"""Frame chains: from the segments of streams to frames.

A frame is a 4-byte size and that many bytes, so the sizes of a stream form a chain.

Addresses count the bytes of all streams of a block, one stream after another, holes included. A
hole inside a frame does not break the chain, since the size gives the start of the next frame. A
hole over a size, or an impossible size, breaks it; then `resync` searches for the next message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import NamedTuple

import numpy as np

from dissector import _native
from dissector.arrays import arrays, mutable
from dissector.byteview import ByteView, copy_ranges
from dissector.packets.block import Bytes, Int64
from dissector.parallel_arrays import ParallelArrays
from dissector.streams.connections.table import Bools
from dissector.streams.limits import USUAL_FRAME
from dissector.streams.segments import Segments

WHOLE, CUT, LOST, BAD = range(4)
"""Where the walk of a stream ended: at its end, inside a frame, at a lost size, at an impossible
size."""

NO_GAP = 1 << 62
"""An address after all others."""


@arrays
class ChainFrames(ParallelArrays):
    """n frames; int64 arrays of shape (n,)."""

    start: Int64
    """Address of the size."""
    size: Int64
    piece: Int64
    """The piece that holds the first byte of the size."""
    first: Int64
    """The 4 bytes after the size: API and version of a request, or the correlation id of a
    response."""
    second: Int64
    """The next 4 bytes: the correlation id of a request."""
    third: Int64
    """The next 2 bytes: the length of the client id of a request."""


class Walk(NamedTuple):
    """The frames of streams, and for each stream, in arrays of shape (n,), where they end."""

    frames: ChainFrames
    until: Int64
    """The number of frames up to its last one."""
    at: Int64
    """The address where the walk ended."""
    ended: Int64
    """The reason: WHOLE, CUT, LOST or BAD."""
    behind: Int64
    """The end of an incomplete frame, or -1 if its size is incomplete too."""


@mutable
class FrameChains:
    """The bytes of a block's streams, and the walk along their frames.

    Methods take `index`: the index of a stream in `stream`.
    """

    data: Bytes
    pieces: Segments
    """Segments by slot and position, without overlap."""
    stream_ids: Int64
    """The stream of each slot, ascending."""
    address: Int64 = field(init=False)
    """Address of each piece's first byte."""
    space: ByteView = field(init=False)
    slot: Int64 = field(init=False)
    """Slots of the streams that have pieces, ascending; shape (streams,)."""
    stream: Int64 = field(init=False)
    """These streams."""
    first: Int64 = field(init=False)
    """First piece of each stream, then the number of pieces; shape (streams + 1,)."""
    end: Int64 = field(init=False)
    """Address after the last byte of each stream."""
    _gap_start: Int64 = field(init=False)
    _gap_end: Int64 = field(init=False)

    def __post_init__(self) -> None:
        pieces, count = self.pieces, len(self.pieces)
        self.address = np.empty(count, np.int64)
        streams, gaps = np.empty((3, count), np.int64), np.empty((count, 2), np.int64)
        stream_count, gap_count = _native.lay_out(
            pieces.stream, pieces.at, pieces.length, pieces.span, self.address,
            streams.reshape(-1), gaps.reshape(-1),
        )  # fmt: skip
        self.space = ByteView(self.data, self.address, pieces.source, pieces.length)
        self.slot, first, self.end = streams[:, :stream_count].copy()
        self.stream = self.stream_ids[self.slot]
        self.first = np.append(first, count)
        self._gap_start, self._gap_end = gaps[:gap_count].T.copy()

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
        piece: Int64 = self.address.searchsorted(address, "right") - 1
        return piece

    def is_border(self, address: Int64) -> Bools:
        """Whether a segment begins at each address, as it was sent."""
        piece = self.piece_of(address)
        is_start: Bools = (self.address[piece] == address) & (self.pieces.front[piece] == 0)
        return is_start

    def is_segment_end(self, address: Int64) -> Bools:
        """Whether a segment that was captured as a whole ends at each address."""
        piece = self.piece_of(address - 1)
        length, span = self.pieces.length[piece], self.pieces.span[piece]
        is_end: Bools = (self.address[piece] + span == address) & (length == span)
        return is_end

    def gap_after(self, address: Int64) -> Int64:
        """Address of the first missing byte at or after each address; the ends of streams are not
        counted. NO_GAP if no byte is missing."""
        if not len(self._gap_start):
            return np.full(len(address), NO_GAP)
        next_gap = self._gap_end.searchsorted(address, "right")
        start = np.append(self._gap_start, NO_GAP)[next_gap]
        until: Int64 = np.maximum(start, address)
        return until

    def after_gap(self, address: Int64) -> Int64:
        """The end of the gap that each address is in, or the address if its byte is there."""
        if not len(self._gap_start):
            return address
        gap = self._gap_end.searchsorted(address, "right")
        is_inside = np.append(self._gap_start, NO_GAP)[gap] <= address
        return np.where(is_inside, np.append(self._gap_end, NO_GAP)[gap], address)

    def readable(self, address: Int64, index: Int64) -> Int64:
        """Number of bytes from each address to the first missing byte, or to the end of its
        stream."""
        return np.minimum(self.gap_after(address), self.end[index]) - address

    def number(self, address: Int64, dtype: str) -> Int64:
        """See `ByteView.number`. Addresses may be beyond all bytes."""
        return self.space.number(np.minimum(address, self.space.size), dtype)

    def frames_at(self, address: Int64, size: Int64) -> ChainFrames:
        """The frames at these addresses."""
        heads = (
            self.number(address + offset, dtype)
            for offset, dtype in ((4, "i4"), (8, "i4"), (12, "i2"))
        )
        return ChainFrames(address, size, self.piece_of(address), *heads)

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
        ends = np.cumsum(length)
        window = np.empty(int(ends[-1]), np.uint8)
        copy_ranges(self.data, source, length, window)
        shift = low - (ends - length)

        def address(offset: Int64) -> Int64:
            shifted: Int64 = offset + shift[ends.searchsorted(offset, "right")]
            return shifted

        return window, address

    def walk(self, index: Int64, at: Int64) -> Walk:
        """Walk the chains of these streams, in order, from the addresses `at` on.

        An unusual size is BAD.
        """
        at, space = at.copy(), self.space
        first, end = self.first[index], self.end[index]
        until, ended, behind = np.full((3, len(index)), -1)
        walked = count = 0
        frames = np.empty((6, len(self.pieces) + len(index)), np.int64)  # mostly, a piece is one
        while walked < len(index):
            walked = _native.walk_frames(
                *space.pieces, first, end, USUAL_FRAME, walked, at, ended, behind, until,
                frames.reshape(-1), count,
            )  # fmt: skip
            count = int(until[min(walked, len(index) - 1)])
            if walked < len(index):
                frames = np.hstack([frames, np.empty_like(frames)])
        return Walk(ChainFrames(*frames[:, :count]), until, at, ended, behind)
