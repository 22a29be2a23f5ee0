"""CarryBuffer: bytes that are carried from block to block.

The bytes are copied to a store of their own, so that no block stays in memory because of a few
bytes. Each byte is copied into the store once, and once from the store to the front of the block
that needs it: a frame that spans a thousand blocks is not copied a thousand times. A full store is
replaced by one of twice the needed size, so that the total cost is linear.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dissector.packets.block import Bytes, Int64
from dissector.streams.rows import places, streams_of
from dissector.streams.segments import BLOCK, NO_SEGMENTS, Segments, last_of_each
from dissector.streams.table import Bools

_SMALLEST = 1 << 16


class CarryBuffer:
    """Carried segments, with their bytes."""

    def __init__(self) -> None:
        self.segments = NO_SEGMENTS
        """By stream and position. `source`: offset in the next block's data."""
        self.bytes = 0
        """Number of carried bytes."""
        self._store: Bytes = np.empty(0, np.uint8)
        self._end = 0

    def load(self, data: Bytes, segments: Segments) -> None:
        """Copy the bytes of these carried segments into the block's data."""
        copy_ranges(self._store, segments.held, data, segments.source, segments.length)

    def oldest(self, excess: int) -> tuple[Int64, Int64, Int64]:
        """The streams with the oldest carried bytes, as many as carry `excess` bytes: stream, first
        position and number of bytes."""
        carried = self.segments
        if excess <= 0 or not len(carried):
            empty = np.zeros(0, np.int64)
            return empty, empty, empty
        first = np.append(0, last_of_each(carried.stream)[:-1] + 1)
        size = np.add.reduceat(carried.length, first)
        order = np.argsort(np.minimum.reduceat(carried.time, first), kind="stable")
        evicted = order[np.cumsum(size[order]) - size[order] < excess]
        return carried.stream[first[evicted]], carried.at[first[evicted]], size[evicted]

    def take(self, rows: Int64) -> tuple[Segments, Bytes]:
        """The carried segments of these connections, numbered like `rows`, and their bytes."""
        index, place = places(self.segments.stream >> 1, rows)
        chosen = self.segments[index]
        data = np.empty(int(chosen.length.sum()), np.uint8)
        begin = np.cumsum(chosen.length) - chosen.length
        copy_ranges(self._store, chosen.held, data, begin, chosen.length)
        return replace(chosen, stream=2 * place + (chosen.stream & 1), held=begin), data

    def put(self, rows: Int64, taken: tuple[Segments, Bytes]) -> None:
        """Add what `take` returned. `rows`: the row of each connection, -1: leave it out."""
        segments, data = taken
        segments = segments[rows[segments.stream >> 1] >= 0]
        segments = replace(segments, stream=streams_of(rows, segments.stream))
        kept, begin = self.segments, len(self._store)
        self._store = np.concatenate([self._store, data])
        self._end = len(self._store)
        both = kept + replace(segments, held=segments.held + begin)
        self._keep(both[np.lexsort((both.at, both.stream))])

    def discard(self, rows: Int64) -> None:
        """Drop the segments of these connections."""
        self._keep(self.segments[~np.isin(self.segments.stream >> 1, rows)])

    def _keep(self, segments: Segments) -> None:
        """Carry these segments, whose bytes are in the store."""
        self.segments = replace(segments, source=np.cumsum(segments.length) - segments.length)
        self.bytes = int(segments.length.sum())

    def store(self, data: Bytes, segments: Segments, joins: Bools) -> None:
        """Carry these segments, and no others.

        Segments that arrived in this block are copied from its data. `joins`: segments that may be
        merged with the previous one if they follow it.
        """
        fresh = segments.held == BLOCK
        length = segments.length
        total, added = int(length.sum()), int(length[fresh].sum())
        if self._end + added > len(self._store):
            store = np.empty(max(2 * total, _SMALLEST), np.uint8)
            place = np.cumsum(length) - length
            old = ~fresh
            copy_ranges(self._store, segments.held[old], store, place[old], length[old])
            copy_ranges(data, segments.source[fresh], store, place[fresh], length[fresh])
            self._store, self._end = store, total
        else:
            place = segments.held.copy()
            place[fresh] = self._end + np.cumsum(length[fresh]) - length[fresh]
            copy_ranges(data, segments.source[fresh], self._store, place[fresh], length[fresh])
            self._end += added
        if not total:
            self._store, self._end = np.empty(0, np.uint8), 0
        kept = _joined(replace(segments, held=place), joins)
        self.segments = replace(kept, source=np.cumsum(kept.length) - kept.length)
        self.bytes = total


def _joined(segments: Segments, joins: Bools) -> Segments:
    """Merge neighbours in stream and store; the result has the time and packet of the first."""
    if len(segments) < 2:
        return segments
    before, after = slice(None, -1), slice(1, None)
    follows = joins[after] & (segments.stream[after] == segments.stream[before])
    follows &= segments.at[after] == segments.at[before] + segments.length[before]
    follows &= segments.held[after] == segments.held[before] + segments.length[before]
    first = np.flatnonzero(np.append(True, ~follows))
    joined = segments[first]
    return replace(
        joined,
        length=np.add.reduceat(segments.length, first),
        span=np.add.reduceat(segments.span, first),
    )


def copy_ranges(source: Bytes, at: Int64, target: Bytes, to: Int64, length: Int64) -> None:
    """Copy ranges: one step per range, at the speed of memory."""
    read, write = source.data, target.data
    for begin, to_begin, size in zip(at.tolist(), to.tolist(), length.tolist(), strict=True):
        write[to_begin : to_begin + size] = read[begin : begin + size]
