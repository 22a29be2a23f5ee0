"""Contiguous memory for address ranges, without a copy where the bytes are contiguous already.

Checksums and decompressors need memory, not addresses. `slices` returns the memory of n ranges: one
slice for a range in one array, several slices for a range that several packets carried.
`as_contiguous` returns one array that holds all ranges, and their positions in it. The array is the
original one if each range is contiguous in it, otherwise a joined copy.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dissector.arrays import arrays
from dissector.packets.block import PAD, Bytes, Int64
from dissector.streams.byteview import ByteView, ContiguousBytes, offsets_of, ranges

MAX_ROW = (1 << 31) - 1
"""Longest array: Arrow views have 32-bit positions."""


@arrays
class RangeSlices:
    """The m >= n slices of `data` that make up n ranges, in order."""

    data: Bytes
    first: Int64
    """Index of the first slice of each range, and m at the end; shape (n + 1,)."""
    low: Int64
    """Begin and end of each slice in `data`; shape (m,)."""
    high: Int64

    def memory(self) -> list[list[memoryview]]:
        """The memory of each range."""
        memory = self.data.data
        pairs = zip(self.low.tolist(), self.high.tolist(), strict=True)
        parts = [memory[low:high] for low, high in pairs]
        return [parts[first:behind] for first, behind in pairwise(self.first.tolist())]


def slices(space: ByteView, start: Int64, length: Int64) -> RangeSlices:
    """The memory of n ranges; lost bytes are zeros. `length` is 0 or more."""
    if isinstance(space, ContiguousBytes):
        return RangeSlices(space.data, np.arange(len(start) + 1), start, start + length)
    if len(space.address):
        covered = _scattered_slices(space, start, length)
        sizes = np.append(covered.high - covered.low, 0)
        total = np.add.reduceat(sizes, covered.first[:-1]) if len(start) else start
        if np.array_equal(total, length):
            return covered
    data, offsets = space.take(start, length)
    return RangeSlices(data, np.arange(len(start) + 1), offsets[:-1], offsets[1:])


def _scattered_slices(space: ByteView, start: Int64, length: Int64) -> RangeSlices:
    end = start + length
    begin = np.maximum(np.searchsorted(space.address, start, side="right") - 1, 0)
    behind = np.maximum(np.searchsorted(space.address, end, side="left"), begin + 1)
    piece, first = ranges(begin, behind - begin)
    count = behind - begin
    low = np.maximum(space.address[piece], np.repeat(start, count))
    high = np.minimum(space.address[piece] + space.length[piece], np.repeat(end, count))
    move = space.position[piece] - space.address[piece]
    return RangeSlices(space.data, first, low + move, np.maximum(low, high) + move)


def as_contiguous(space: ByteView, start: Int64, length: Int64) -> tuple[Bytes, Int64]:
    """An array with PAD bytes of padding at its end, and the position of each range in it."""
    covered = slices(space, start, length)
    if len(covered.low) == len(start) and PAD <= len(covered.data) <= MAX_ROW + PAD:
        ends = len(covered.data) - PAD
        if not len(start) or int(covered.high.max()) <= ends:
            return covered.data, covered.low
    memory = covered.data.data
    pairs = zip(covered.low.tolist(), covered.high.tolist(), strict=True)
    row = b"".join([*(memory[low:high] for low, high in pairs), bytes(PAD)])
    return np.frombuffer(row, np.uint8), offsets_of(length)[:-1]
