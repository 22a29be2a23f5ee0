"""Ranges of a byte space as slices of memory, without copying where the bytes lie in one row.

Checksums and decompressors want memory, not addresses. `slices` gives, for n ranges, the stretches
of one array that hold them: one each where the bytes lie in one row, several where they came in
several packets. `in_one_row` puts the ranges where whole columns can be gathered from: where they
are already, if every one lies in one piece, else joined behind each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dissector.packets.block import PAD, Bytes, Int64
from dissector.streams.byteview import ByteView, ContiguousBytes, ScatteredBytes, ranges

MAX_ROW = (1 << 31) - 1
"""Longest row: Arrow's views count positions in 32 bits."""


@dataclass(frozen=True, slots=True)
class Slices:
    """The stretches of `data` that n ranges consist of, m >= n of them, in order."""

    data: Bytes
    first: Int64
    """Index of each range's first stretch, and m at the end; shape (n + 1,)."""
    low: Int64
    """Where in `data` each stretch begins, and where it ends; shape (m,)."""
    high: Int64

    def of(self, index: int) -> list[memoryview]:
        """The memory of one range."""
        memory = self.data.data
        some = slice(int(self.first[index]), int(self.first[index + 1]))
        return [
            memory[low:high]
            for low, high in zip(self.low[some].tolist(), self.high[some].tolist(), strict=True)
        ]


def slices(space: ByteView, start: Int64, length: Int64) -> Slices:
    """Where the n ranges lie in memory; lost bytes are zeros. `length` is 0 or more."""
    if isinstance(space, ContiguousBytes):
        return Slices(space.data, np.arange(len(start) + 1), start, start + length)
    if isinstance(space, ScatteredBytes) and len(space.address):
        found = _pieces(space, start, length)
        if np.array_equal(np.add.reduceat(np.append(found.high - found.low, 0), found.first[:-1])
                          if len(start) else start, length):  # fmt: skip
            return found
    data, offsets = space.take(start, length)
    return Slices(data, np.arange(len(start) + 1), offsets[:-1], offsets[1:])


def _pieces(space: ScatteredBytes, start: Int64, length: Int64) -> Slices:
    end = start + length
    begin = np.maximum(np.searchsorted(space.address, start, side="right") - 1, 0)
    behind = np.maximum(np.searchsorted(space.address, end, side="left"), begin + 1)
    piece, first = ranges(begin, behind - begin)
    count = behind - begin
    low = np.maximum(space.address[piece], np.repeat(start, count))
    high = np.minimum(space.address[piece] + space.length[piece], np.repeat(end, count))
    move = space.position[piece] - space.address[piece]
    return Slices(space.data, first, low + move, np.maximum(low, high) + move)


def in_one_row(space: ByteView, start: Int64, length: Int64) -> tuple[Bytes, Int64]:
    """An array that ends with PAD bytes of padding, and where in it each of the n ranges lies."""
    found = slices(space, start, length)
    if len(found.low) == len(start) and PAD <= len(found.data) <= MAX_ROW + PAD:
        ends = len(found.data) - PAD
        if not len(start) or int(found.high.max()) <= ends:
            return found.data, found.low
    memory = found.data.data
    pairs = zip(found.low.tolist(), found.high.tolist(), strict=True)
    row = b"".join([*(memory[low:high] for low, high in pairs), bytes(PAD)])
    offsets = np.zeros(len(start), np.int64)
    np.cumsum(length[:-1], out=offsets[1:])
    return np.frombuffer(row, np.uint8), offsets
