"""Chunks: memory for ranges of bytes that are needed for different times.

New ranges follow the last ones. A chunk without needed bytes is used again. The ranges of a chunk
of which less than half is needed should be moved: then memory and the cost of copies are
proportional to the needed bytes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dissector.byteview import copy_ranges
from dissector.packets.block import Bytes, Int64
from dissector.streams.connections.table import Bools

_CHUNK: Final = 4 << 20
_OFFSET_BITS: Final = 40


class Chunks:
    """Ranges of bytes. Their places are int64: the number of a chunk, and the offset in it."""

    def __init__(self) -> None:
        self._last = 0
        """Number of the chunk to which ranges are added."""
        self._end = 0
        """Bytes of the last chunk that were written."""
        self._chunks = {self._last: np.empty(0, np.uint8)}
        self._free: list[Bytes] = []

    def add(self, data: Bytes, at: Int64, length: Int64) -> Int64:
        """Copy ranges of an array; returns their places."""
        place, ends = np.empty(len(at), np.int64), np.cumsum(length)
        first = done = 0
        while first < len(at):
            chunk = self._chunks[self._last]
            until = int(ends.searchsorted(done + len(chunk) - self._end, "right"))
            if until <= first:
                self._grow(int(length[first]))
                continue
            added = slice(first, until)
            copy_ranges(data, at[added], length[added], chunk[self._end :])
            begin = (self._last << _OFFSET_BITS) + self._end - done
            place[added] = begin + ends[added] - length[added]
            self._end += int(ends[until - 1]) - done
            first, done = until, int(ends[until - 1])
        return place

    def _grow(self, size: int) -> None:
        """Add a chunk in which `size` bytes fit."""
        if not self._end:
            del self._chunks[self._last]
        self._last, self._end = self._last + 1, 0
        is_free = bool(self._free) and len(self._free[-1]) >= size
        chunk = self._free.pop() if is_free else np.empty(max(size, _CHUNK), np.uint8)
        self._chunks[self._last] = chunk

    def copy(self, place: Int64, length: Int64, target: Bytes) -> Int64:
        """Copy ranges to the beginning of an array, in any order; returns their offsets there."""
        offset, begin, chunk = np.empty(len(place), np.int64), 0, self._chunk_of(place, length)
        for number in np.unique(chunk).tolist():
            index = np.flatnonzero(chunk == number)
            at, size = place[index] - (number << _OFFSET_BITS), length[index]
            ends = np.cumsum(size)
            offset[index] = begin + ends - size
            # Ranges that were added together are copied together.
            first = np.flatnonzero(np.append(True, at[1:] != at[:-1] + size[:-1]))
            joined = np.diff(np.append(ends[first] - size[first], ends[-1]))
            copy_ranges(self._chunks[number], at[first], joined, target[begin:])
            begin += int(ends[-1])
        return offset

    def keep(self, place: Int64, length: Int64) -> Bools:
        """Free the chunks that contain none of these ranges; and whether each range is to be moved.

        The last chunk is left alone, so that a range is moved only after as many bytes were added.
        """
        numbers, index = np.unique(self._chunk_of(place, length), return_inverse=True)
        unneeded = self._chunks.keys() - {*numbers.tolist(), self._last}
        self._free += [self._chunks.pop(number) for number in unneeded]
        del self._free[len(numbers) // 2 + 1 :]
        size = np.array([len(self._chunks[number]) for number in numbers.tolist()], np.int64)
        is_sparse = (2 * np.bincount(index, length, len(numbers)) < size) & (numbers < self._last)
        is_moved: Bools = is_sparse[index]
        return is_moved

    def _chunk_of(self, place: Int64, length: Int64) -> Int64:
        """The chunk of each range; the last one for ranges without bytes, which need none."""
        return np.where(length > 0, place >> _OFFSET_BITS, self._last)
