"""Finds the records of magic 2 batches by following their lengths.

A record begins with its length, so the position of a record depends on the record before it. The
loop trusts the counts in the headers at first, which gives the memory to allocate: only a right
chain has so many records and ends where the batch ends. A batch with a wrong chain is followed
again, by its bytes alone.
"""

from __future__ import annotations

import numpy as np

from dissector import _native
from dissector.arrays import arrays
from dissector.packets.block import Bytes, Int64
from dissector.streams.byteview import ranges

MIN_RECORD = 7
"""Bytes of the smallest record: length, attributes, two deltas, two lengths and a count."""


@arrays
class RecordChain:
    """The records of n batches, batch by batch."""

    start: Int64
    """Position of each record's length; shape (records,)."""
    count: Int64
    """Records found in each batch; shape (n,)."""
    reached: Int64
    """Where the chain of each batch ended: for an intact batch, at its end; after it, if the last
    record extends beyond; shape (n,)."""


def walk_records(data: Bytes, begin: Int64, end: Int64, count: Int64) -> RecordChain:
    """Find the records between `begin` and `end` of each of n batches. All arrays: shape (n,).

    `count`: the record counts of the headers, which are only a hint.
    """
    most = np.maximum(end - begin, 0) // MIN_RECORD
    room = np.clip(count, 0, most)
    chain = _walk(data, begin, end, room)
    wrong = (chain.count != room) | (chain.reached != end)
    return _walk(data, begin, end, np.where(wrong, most, room)) if wrong.any() else chain


def _walk(data: Bytes, begin: Int64, end: Int64, room: Int64) -> RecordChain:
    """The first records of each batch, at most `room`."""
    first = np.zeros(len(room) + 1, np.int64)
    np.cumsum(room, out=first[1:])
    start, (count, reached) = np.empty(int(first[-1]), np.int64), np.empty((2, len(room)), np.int64)
    _native.walk_records(data, begin, end, first, start, count, reached)
    if (count != room).any():
        start = start[ranges(first[:-1], count)[0]]
    return RecordChain(start, count, reached)
