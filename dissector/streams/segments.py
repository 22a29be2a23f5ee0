"""Segments: ranges of streams, as arrays, and where their bytes are.

Also arithmetic over all streams at once: `stream_base` gives each stream a range of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dissector.arrays import arrays
from dissector.packets.block import Int64
from dissector.parallel_arrays import ParallelArrays

BLOCK = -1
"""`held` of a segment that is not carried: it arrived in this block."""

NOT_LOADED = -(1 << 62)
"""`source` of a carried segment whose bytes are not in the block's data."""

POSITION_BITS = 40
POSITION_LIMIT = 1 << POSITION_BITS
"""Positions that are compared across streams lie in [-POSITION_LIMIT, POSITION_LIMIT)."""


@arrays
class Segments(ParallelArrays):
    """n segments; int64 arrays of shape (n,)."""

    stream: Int64
    """Slot of the stream (see `flows.Assignment`); the stream itself between two blocks."""
    at: Int64
    """Position in the stream of the first byte."""
    length: Int64
    """Captured bytes."""
    span: Int64
    """Bytes on the wire: more than `length` where the capture truncated the packet."""
    source: Int64
    """Offset of the first byte in the block's data; negative if it is not there."""
    held: Int64
    """Place of the first byte in the carry buffer; BLOCK if it arrived in this block."""
    time: Int64
    """ns; time of arrival. Once in order: the latest arrival in the stream up to here."""
    capture: Int64
    number: Int64
    """File and number of the packet."""
    acknowledged: Int64
    """Acknowledgement number of the packet; -1 if it has none, or if the bytes were decrypted."""
    front: Int64
    """Bytes that were removed from its front: what a sender sends as a segment begins before."""

    def trimmed(self, front: Int64, span: Int64) -> Self:
        """Without the first `front` bytes, and with at most `span` bytes from there on."""
        captured = np.minimum(front, self.length)
        return replace(
            self,
            at=self.at + front,
            length=np.minimum(self.length - captured, span),
            span=span,
            source=self.source + captured,
            held=np.where(self.held == BLOCK, BLOCK, self.held + captured),
            front=self.front + front,
        )


NO_SEGMENTS = Segments.empty()


def stream_base(stream: Int64) -> Int64:
    """A base for each stream: base + value sorts by stream, then by value.

    Values lie in [-POSITION_LIMIT, POSITION_LIMIT), streams below 2^22.
    """
    base: Int64 = stream << (POSITION_BITS + 1)
    return base


def running_maximum(stream: Int64, value: Int64, least: Int64 | int) -> Int64:
    """The maximum of `least` and of all earlier values in the same stream, for each element.

    Sorted by stream. Values have the limits of `stream_base`.
    """
    base = stream_base(stream)
    before = np.empty(len(stream), np.int64)
    before[:1] = -2 * POSITION_LIMIT
    np.maximum.accumulate((value + base)[:-1], out=before[1:])
    maximum: Int64 = np.maximum(before - base, least)
    return maximum


def last_of_each(stream: Int64) -> Int64:
    """Index of the last element of each stream; sorted by stream."""
    return np.flatnonzero(np.append(stream[1:] != stream[:-1], True)[: len(stream)])


def before_first(stream: Int64, marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether each segment is before the first marked one of its stream."""
    if not marked.any():
        return np.ones(len(stream), np.bool_)
    mark = marked.astype(np.int64)
    is_before: NDArray[np.bool_] = (running_maximum(stream, mark, 0) == 0) & ~marked
    return is_before


def waiting_behind(segments: Segments, index: Int64) -> tuple[Int64, Int64, Int64]:
    """Number of bytes and of segments of the stream from each of these segments on; and its end."""
    last = last_of_each(segments.stream)
    last = last[np.searchsorted(last, index)]
    total = np.cumsum(segments.span)
    end = segments.at[last] + segments.span[last]
    return total[last] - total[index] + segments.span[index], last - index + 1, end
