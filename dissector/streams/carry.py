"""CarryBuffer: bytes that are kept from block to block.

They lie in one store of their own, so that no block stays in memory for the sake of a few bytes.
Each byte is copied into the store once, and once out of it, into the front of the block in which it
is needed: a frame that takes a thousand blocks is not copied a thousand times. A store that is full
is exchanged for one of twice the size of what is needed of it, which is linear over time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dissector.packets.block import Bytes, Int64
from dissector.streams.segments import BLOCK, NO_SEGMENTS, Segments, last_of_each
from dissector.streams.table import Bools

_SMALLEST = 1 << 16


class CarryBuffer:
    """Segments that are kept, with their bytes."""

    def __init__(self) -> None:
        self.segments = NO_SEGMENTS
        """By stream and position. `source` is their place in the next block's data."""
        self.bytes = 0
        """How many there are."""
        self._store: Bytes = np.empty(0, np.uint8)
        self._end = 0

    def give(self, data: Bytes, segments: Segments) -> None:
        """Put the bytes of these held segments into the block's data."""
        _copy(self._store, segments.held, data, segments.source, segments.length)

    def oldest(self, excess: int) -> tuple[Int64, Int64, Int64]:
        """The streams that wait longest, as many as hold `excess` bytes: each one's number, first
        position and bytes."""
        held = self.segments
        if excess <= 0 or not len(held):
            none = np.zeros(0, np.int64)
            return none, none, none
        first = np.append(0, last_of_each(held.stream)[:-1] + 1)
        size = np.add.reduceat(held.length, first)
        order = np.argsort(np.minimum.reduceat(held.time, first), kind="stable")
        chosen = order[np.cumsum(size[order]) - size[order] < excess]
        return held.stream[first[chosen]], held.at[first[chosen]], size[chosen]

    def keep(self, data: Bytes, segments: Segments, joins: Bools) -> None:
        """Hold these segments, and nothing else.

        Those that came in this block are copied from its data. `joins`: segments that need not be
        told from the one before, where they follow it.
        """
        fresh = segments.held == BLOCK
        length = segments.length
        total, more = int(length.sum()), int(length[fresh].sum())
        if self._end + more > len(self._store):
            store = np.empty(max(2 * total, _SMALLEST), np.uint8)
            place = np.cumsum(length) - length
            old = ~fresh
            _copy(self._store, segments.held[old], store, place[old], length[old])
            _copy(data, segments.source[fresh], store, place[fresh], length[fresh])
            self._store, self._end = store, total
        else:
            place = segments.held.copy()
            place[fresh] = self._end + np.cumsum(length[fresh]) - length[fresh]
            _copy(data, segments.source[fresh], self._store, place[fresh], length[fresh])
            self._end += more
        if not total:
            self._store, self._end = np.empty(0, np.uint8), 0
        kept = _joined(replace(segments, held=place), joins)
        self.segments = replace(kept, source=np.cumsum(kept.length) - kept.length)
        self.bytes = total


def _joined(segments: Segments, joins: Bools) -> Segments:
    """Neighbours in stream and store made one; it has the time and packet of the first."""
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


def _copy(source: Bytes, at: Int64, target: Bytes, to: Int64, length: Int64) -> None:
    """Copy ranges; a step for each, at the speed of memory."""
    get, put = source.data, target.data
    for here, there, size in zip(at.tolist(), to.tolist(), length.tolist(), strict=True):
        put[there : there + size] = get[here : here + size]
