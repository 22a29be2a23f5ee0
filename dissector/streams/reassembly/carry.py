"""CarryBuffer: bytes that are carried from block to block.

The bytes are copied to memory of their own, so that no block stays in memory because of a few
bytes. Each byte is copied there once or a few times, and once from there to the front of the block
that needs it: a frame that spans a thousand blocks is not copied a thousand times.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from dissector.packets.block import Bytes, Int64
from dissector.streams.connections.rows import places
from dissector.streams.connections.table import Bools, streams_at
from dissector.streams.reassembly.chunks import Chunks
from dissector.streams.segments import BLOCK, NO_SEGMENTS, NOT_LOADED, Segments, last_of_each

_PARTS: Final = 1000
"""Segments that would be joined with the previous one, if their bytes were in order. If there are
more, all bytes are put in order, but no sooner than half of them are new."""


class CarryBuffer:
    """Carried segments, with their bytes."""

    def __init__(self) -> None:
        self.segments = NO_SEGMENTS
        """By stream and position. `held`: place in the chunks."""
        self.bytes = 0
        """Number of carried bytes."""
        self._chunks = Chunks()
        self._added = 0
        """Bytes that were added since all of them were put in order."""

    def load(self, data: Bytes, end: int, segments: Segments) -> tuple[Segments, int]:
        """Copy the bytes of carried segments to `data`, in front of the offset `end`.

        Returns the segments with their `source`, and the offset of the first copied byte.
        """
        carried = np.flatnonzero(segments.source < 0)
        if not len(carried):
            return segments, end
        source, length = segments.source.copy(), segments.length[carried]
        begin = end - int(length.sum())
        source[carried] = begin + self._chunks.copy(segments.held[carried], length, data[begin:])
        return replace(segments, source=source), begin

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
        """The carried segments of these connections, numbered like `rows`, and their bytes.
        `source`: the offset in these bytes."""
        index, stream = places(self.segments.stream, streams_at(rows))
        chosen = self.segments[index]
        data = np.empty(int(chosen.length.sum()), np.uint8)
        chosen, _ = self.load(data, len(data), chosen)
        return replace(chosen, stream=stream), data

    def put(self, rows: Int64, taken: tuple[Segments, Bytes]) -> None:
        """Add what `take` returned. `rows`: the row of each connection."""
        segments, data = taken
        held = self._chunks.add(data, segments.source, segments.length)
        segments = replace(segments, stream=streams_at(rows)[segments.stream], held=held)
        both = self.segments + segments
        self._keep(both[np.lexsort((both.at, both.stream))])

    def discard(self, rows: Int64) -> None:
        """Drop the segments of these connections."""
        self._keep(self.segments[~np.isin(self.segments.stream >> 1, rows)])

    def _keep(self, segments: Segments) -> None:
        """Carry these segments, whose bytes are in chunks."""
        self.segments = replace(segments, source=np.full(len(segments), NOT_LOADED))
        self.bytes = int(segments.length.sum())

    def store(self, data: Bytes, segments: Segments, joins: Bools) -> None:
        """Carry these segments, and no others.

        Segments that arrived in this block are copied from its data. `joins`: segments that may be
        merged with the previous one if they follow it.
        """
        held, length = segments.held.copy(), segments.length
        follows = _follows(segments)
        # The last segment before missing bytes may be the end of a message, and keeps its time.
        follows &= joins & np.append(follows[1:], False)[: len(follows)]
        old, fresh = np.flatnonzero(held != BLOCK), np.flatnonzero(held == BLOCK)
        is_moved = self._chunks.keep(held[old], length[old])
        self._added += int(length[fresh].sum())
        if np.count_nonzero(follows[old]) > _PARTS and 2 * self._added > length.sum():
            is_moved[:], self._added = True, 0
        moved = old[is_moved]
        copies = np.empty(int(length[moved].sum()), np.uint8)
        source = self._chunks.copy(held[moved], length[moved], copies)
        held[moved] = self._chunks.add(copies, source, length[moved])
        held[fresh] = self._chunks.add(data, segments.source[fresh], length[fresh])
        follows[1:] &= held[1:] == held[:-1] + length[:-1]
        self._keep(_joined(replace(segments, held=held), follows))


def _follows(segments: Segments) -> Bools:
    """Whether each segment is directly after the previous one in its stream."""
    follows = np.zeros(len(segments), np.bool_)
    before, after = slice(None, -1), slice(1, None)
    follows[after] = segments.stream[after] == segments.stream[before]
    follows[after] &= segments.at[after] == segments.at[before] + segments.length[before]
    return follows


def _joined(segments: Segments, is_joined: Bools) -> Segments:
    """Merge segments with the previous ones; the result has the time and packet of the first."""
    first = np.flatnonzero(~is_joined)
    if len(first) == len(segments):
        return segments
    return replace(
        segments[first],
        length=np.add.reduceat(segments.length, first),
        span=np.add.reduceat(segments.span, first),
    )
