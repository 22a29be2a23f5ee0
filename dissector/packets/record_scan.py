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
"""Records to follow one by one before they are checked: a chain that went astray costs no more."""
COMPILED_LIMIT = 1 << 17
"""The same for the compiled loop, whose steps cost less."""
LANES = 512
"""Walks that go together at most; more of them take fewer, but longer steps."""
FEWEST = 128
"""With fewer walks, one record after the other is found as fast."""
WINDOW = 2048
"""Bytes at the head of each lane to search for a sync point; longer than an Ethernet frame."""
DENSE = 1536
"""Bytes of a record, on average, below which this is worth its while."""


def numbers(data: Bytes, order: str, offset: int) -> NDArray[np.uint32]:
    """At index i the number of 4 bytes that begins `offset` bytes behind position i."""
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
    """`begin`, and positions behind it at which a record seems to begin, far from each other;
    ascending. `begin` alone where they would be too few.

    The byte `mark_at` bytes behind a record's beginning is one of `marks`, few and seldom else:
    that is looked at everywhere. `begins` judges those positions thoroughly.
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
    found = begins(at)
    lane, earliest = np.unique(lane[found], return_index=True)
    if len(lane) < lanes // 2:
        return np.array([begin])
    return np.concatenate([[begin], at[found][earliest]])


@dataclass(frozen=True, slots=True)
class Steps:
    """How a chain goes on from record to record, for the compiled loop."""

    size_at: int
    """Where in a record its size of 4 bytes stands,"""
    header: int
    """what is to be added to it,"""
    least: int
    """how far on the next one is at least,"""
    most: int
    """what no size can be more than,"""
    stop: int = 0
    """and what number at the beginning of a record is not of the chain any more; 0: none."""


def follow_compiled(data: Bytes, starts: Int64, end: int, order: str, steps: Steps) -> Int64:
    """`follow`, but for sizes beyond `steps.most`: with the first of these the chain ends."""
    found = kernel.loops.follow(
        data, starts, end, order == ">",
        steps.size_at, steps.header, steps.least, steps.most, steps.stop, COMPILED_LIMIT,
    )  # fmt: skip
    return np.frombuffer(found, np.int64)


def follow(starts: Int64, end: int, following: Callable[[Int64], Int64]) -> Int64:
    """Positions, ascending, of the records of the chain that begins at starts[0].

    `starts`: that record, and sync points after it. `end`: behind the last position at which a
    record may begin. `following`: where the records behind those at some positions begin, which is
    always farther on.
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
    found = np.concatenate(steps)
    wrong = np.flatnonzero(reached[:-1] != bounds[:-1])
    if len(wrong):
        found = found[np.concatenate(lanes) <= wrong[0]]
    found.sort()
    return found
