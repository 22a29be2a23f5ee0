"""Finds the records of a capture file from many positions at once.

Each record has its length, so records can be found one after the other, with a step in Python for
each. If there are many, sync points help: positions, far from each other, at which a record very
likely begins. The chain is followed from all of them together, one record of each per array step,
until every walk has reached the next sync point.

A walk that began at a record and meets the next sync point proves that a record begins there. If a
walk steps over it, that sync point was wrong, and the records from there on are dropped. So the
result is exactly the chain followed one by one, as far as it goes.

If loops are compiled (`kernel`), one of them follows the chain. Sync points help it too, since the
walks do not wait for each other's memory accesses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dissector import kernel
from dissector.packets.block import Bytes, Int64, UInt8

CHAIN_LIMIT = 1 << 14
"""Records to follow one by one before validation: this limits the cost of a wrong chain."""
COMPILED_LIMIT = 1 << 17
"""The same for the compiled loop, whose steps cost less."""
LANES = 512
"""Maximum number of parallel walks; with more walks, steps are fewer but longer."""
FEWEST = 128
"""Minimum number of walks; with fewer, following one chain is as fast."""
WINDOW = 2048
"""Bytes at the head of each lane to search for a sync point; longer than an Ethernet frame."""
DENSE = 1536
"""Average size of a record, in bytes, below which sync points are worth their cost."""


def numbers(data: Bytes, order: str, offset: int) -> NDArray[np.uint32]:
    """At index i, the number in the 4 bytes at position i + `offset`."""
    count = max(len(data) - offset - 3, 0)
    return np.ndarray((count,), order + "u4", data, offset if count else 0, strides=(1,))


def sync_points(
    data: Bytes,
    begin: int,
    end: int,
    mark_at: int,
    marks: Sequence[int],
    begins: Callable[[Int64], NDArray[np.bool_]],
) -> Int64:
    """`begin`, and later positions of likely records, far from each other; ascending. Only `begin`
    if there would be too few.

    The byte at offset `mark_at` of a record is one of `marks`, few values that are rare elsewhere.
    Positions with such a byte are candidates; `begins` validates them.
    """
    lanes = min((end - begin) // (4 * WINDOW), LANES)
    if lanes < FEWEST:
        return np.array([begin])
    stride = (end - begin) // lanes
    first = begin + stride + mark_at
    heads: UInt8 = np.ndarray((lanes - 1, WINDOW), np.uint8, data, first, (stride, 1))
    marked = heads == marks[0]
    for mark in marks[1:]:
        marked |= heads == mark
    lane, offset = np.divmod(np.flatnonzero(marked), WINDOW)
    at = begin + (lane + 1) * stride + offset
    is_record = begins(at)
    lane, earliest = np.unique(lane[is_record], return_index=True)
    if len(lane) < lanes // 2:
        return np.array([begin])
    return np.concatenate([[begin], at[is_record][earliest]])


@dataclass(frozen=True, slots=True)
class Steps:
    """The step from a record to the next one, for the compiled loop."""

    size_at: int
    """Offset of the size, 4 bytes, in a record."""
    header: int
    """Number to add to the size."""
    least: int
    """Minimum distance to the next record."""
    most: int
    """Maximum size."""
    stop: int = 0
    """Number at the beginning of a record that ends the chain; 0 if there is none."""


def follow_compiled(data: Bytes, starts: Int64, end: int, order: str, steps: Steps) -> Int64:
    """Like `follow`, but the chain ends at the first size beyond `steps.most`."""
    positions = kernel.loops.follow(
        data, starts, end, order == ">",
        steps.size_at, steps.header, steps.least, steps.most, steps.stop, COMPILED_LIMIT,
    )  # fmt: skip
    return np.frombuffer(positions, np.int64)


def follow(starts: Int64, end: int, following: Callable[[Int64], Int64]) -> Int64:
    """Positions, ascending, of the records of the chain that begins at starts[0].

    `starts`: this record, and sync points after it. `end`: after the last position at which a
    record may begin. `following`: returns the position of the next record for each record, which
    is always larger.
    """
    bounds = np.append(starts[1:], end)
    reached = np.empty_like(bounds)
    lane, at, bound = np.arange(len(starts)), starts, bounds
    steps, lanes = [], []
    while len(at):
        steps.append(at)
        lanes.append(lane)
        at = following(at)
        inside = at < bound
        if not inside.all():
            reached[lane[~inside]] = at[~inside]
            lane, at, bound = lane[inside], at[inside], bound[inside]
    positions = np.concatenate(steps)
    wrong = np.flatnonzero(reached[:-1] != bounds[:-1])
    if len(wrong):
        positions = positions[np.concatenate(lanes) <= wrong[0]]
    positions.sort()
    return positions
