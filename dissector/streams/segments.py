"""Segments: stretches of streams, as arrays, and where their bytes are."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Int64

BLOCK = -1
"""Place of a segment that is not held: it came in this block."""


@dataclass(frozen=True, slots=True)
class Segments:
    """n stretches of streams; int64 arrays of shape (n,)."""

    stream: Int64
    """Local stream number (see `tracking`); of segments held between blocks, the stream."""
    at: Int64
    """Position in the stream of the first byte."""
    length: Int64
    """Bytes that are there."""
    span: Int64
    """Bytes that it stands for: more where the capture cut the packet."""
    source: Int64
    """Position of the first byte in the block's data."""
    held: Int64
    """Position of the first byte among those that are held from earlier blocks; else BLOCK."""
    time: Int64
    """ns; of arrival, and once in order, of the latest arrival up to here."""
    capture: Int64
    number: Int64
    """File and number of the packet."""
    acknowledged: Int64
    """Acknowledgement number of the packet; -1 where it has none, or the bytes were decrypted."""

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, index: NDArray[np.integer] | NDArray[np.bool_]) -> Segments:
        return Segments(*(getattr(self, each.name)[index] for each in fields(self)))

    def __add__(self, other: Segments) -> Segments:
        return Segments(
            *(
                np.concatenate([getattr(self, each.name), getattr(other, each.name)])
                for each in fields(self)
            )
        )

    def trimmed(self, front: Int64, span: Int64) -> Segments:
        """Without the first `front` bytes, and no more than `span` bytes from there."""
        there = np.minimum(front, self.length)
        return replace(
            self,
            at=self.at + front,
            length=np.minimum(self.length - there, span),
            span=span,
            source=self.source + there,
            held=np.where(self.held == BLOCK, BLOCK, self.held + there),
        )


NO_SEGMENTS = Segments(*(np.zeros(0, np.int64) for _ in fields(Segments)))


def running_maximum(stream: Int64, value: Int64, least: Int64 | int) -> Int64:
    """The largest of `least` and of the values before each one in its stream.

    Sorted by stream. Values lie in [-2^40, 2^40), streams below 2^22: one running maximum serves
    all of them, each being lifted above the one before it.
    """
    lift = stream << 41
    before = np.empty(len(stream), np.int64)
    before[:1] = -(1 << 41)
    np.maximum.accumulate((value + lift)[:-1], out=before[1:])
    return np.maximum(before - lift, least)


def last_of_each(stream: Int64) -> Int64:
    """Index of the last segment of each stream; sorted by stream."""
    return np.flatnonzero(np.append(stream[1:] != stream[:-1], True)[: len(stream)])
