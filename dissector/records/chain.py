"""Where the records of batches begin: the chain of their lengths.

Each record of a batch of magic 2 begins with its length, so the second can only be found by the
first. One batch is a loop of some 0.1 µs a record. But the batches of a block are independent: with
dozens of them, the j-th record of every batch is one step on arrays, in which one lookup of the
two bytes at hand gives the whole way to the next record. That lookup knows lengths of one and two
bytes, which is records up to 8 KB, and the step trusts the counts in the headers. Both guesses are
checked at the end, since only right ones end where the batch does; a batch for which they were
wrong is walked alone, by nothing but its bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dissector.packets.block import Bytes, Int64
from dissector.records.varints import SHORT, read_one, value_of, width_of, words

MIN_RECORD = 7
"""Bytes of the smallest record: length, attributes, two deltas, two lengths and a count."""
_ALONE = 40
"""With fewer batches than this still going, each is faster alone."""

_ADVANCE = np.where(
    (width_of(SHORT) > 0) & (value_of(SHORT) >= MIN_RECORD - 1),
    width_of(SHORT) + value_of(SHORT),
    0,
)
"""From the two bytes that a record begins with, how far on the next one is; 0 where they do not
tell."""
_ADVANCE_LIST: list[int] = _ADVANCE.tolist()


@dataclass(frozen=True, slots=True)
class RecordChain:
    """The records of n batches, batch by batch."""

    start: Int64
    """Position of each record's length; shape (records,)."""
    count: Int64
    """Records found in each batch; shape (n,)."""
    reached: Int64
    """Where each batch's walk ended: at the batch's end, if its bytes are right; shape (n,)."""


def walk_records(data: Bytes, begin: Int64, end: Int64, count: Int64) -> RecordChain:
    """Find the records between `begin` and `end` of each of n batches. All of shape (n,).

    `count` is what the headers say; it is only a hint.
    """
    hint = np.clip(count, 0, np.maximum(end - begin, 0) // MIN_RECORD)
    if len(begin) >= _ALONE:
        start, found, reached = _walk_together(data, begin, end, hint)
        wrong = np.flatnonzero(reached != end)
        if not len(wrong):
            return RecordChain(start, found, reached)
    else:
        start, found, reached = np.zeros(0, np.int64), np.zeros_like(hint), begin.copy()
        wrong = np.arange(len(begin))
    first = np.cumsum(found) - found
    parts: list[Int64] = []
    behind = 0
    memory = data.data
    for index in wrong.tolist():
        parts.append(start[behind : first[index]])
        behind = int(first[index] + found[index])
        alone, reached[index] = _walk_alone(memory, int(begin[index]), int(end[index]))
        found[index] = len(alone)
        parts.append(np.frombuffer(alone, np.int64))
    parts.append(start[behind:])
    return RecordChain(np.concatenate(parts), found, reached)


def _walk_together(
    data: Bytes, begin: Int64, end: Int64, count: Int64
) -> tuple[Int64, Int64, Int64]:
    """Starts, counts and ends of the walks; these are right where the end is."""
    word = words(data, 2)
    memory = data.data
    order = np.argsort(-count, kind="stable")
    # going[j]: how many batches have a j-th record, by their counts
    going = (len(count) - np.cumsum(np.bincount(count))).tolist()
    start = np.zeros(int(count.sum()), np.int64)
    slot = (np.cumsum(count) - count)[order]
    at, stop = begin[order], end[order]
    some_at, some_slot, some_stop = at, slot, stop
    for step, left in enumerate(going):
        if left < _ALONE:
            for index in range(left):
                alone, at[index] = _walk_alone(memory, int(at[index]), int(stop[index]))
                if len(alone) != count[order[index]] - step:
                    at[index] = -1
                else:
                    start[slot[index] : slot[index] + len(alone)] = np.frombuffer(alone, np.int64)
            break
        if left < len(some_at):
            some_at, some_slot, some_stop = some_at[:left], some_slot[:left], some_stop[:left]
        start[some_slot] = some_at
        some_slot += 1
        some_at += _ADVANCE[word[some_at].astype(np.intp)]
        np.minimum(some_at, some_stop, out=some_at)
    reached = np.empty_like(at)
    reached[order] = at
    # A walk that reached the end too early, or ran over it, stands there all the same.
    filled = np.flatnonzero(count > 0)
    last = start[(np.cumsum(count) - 1)[filled]]
    exact = last + _ADVANCE[word[last].astype(np.intp)]
    exact = np.where(last < end[filled], exact, -1)
    reached[filled] = np.where(exact == reached[filled], exact, -1)
    return start, count.copy(), reached


def _walk_alone(memory: memoryview, at: int, end: int) -> tuple[array[int], int]:
    """The starts of the records in [at, end), and where the walk ended.

    That is before `end` where a length is not one, behind it where the last record runs over.
    """
    starts = array("q", _starts(memory, at, end))
    if starts:
        at = starts[-1] + _step(memory, starts[-1], end)
    return starts, at


def _starts(memory: memoryview, at: int, end: int) -> Iterator[int]:
    advance = _ADVANCE_LIST
    while at < end:
        step = advance[memory[at] | memory[at + 1] << 8] or _step(memory, at, end)
        if not step:
            return
        yield at
        at += step


def _step(memory: memoryview, at: int, end: int) -> int:
    """How far on the next record is; 0 where there is no length that a record can have."""
    length, behind = read_one(memory, at, end)
    return behind - at + length if length >= MIN_RECORD - 1 else 0
