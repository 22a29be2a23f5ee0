"""Finds the records of magic 2 batches by following their lengths.

A record begins with its length, so the position of a record depends on the record before it. A loop
over one batch takes about 0.1 µs per record. The batches of a block are independent, and are
followed together, one lane per batch, in three ways:

- step: the next record of every lane at once. A table lookup of the first two bytes of a record
  returns the distance to the next one.
- leap: if records have equal sizes, the positions of the next dozens are guessed and checked at
  once. A lane advances as far as its guess was right.
- alone: if few lanes are left, they are followed one after the other.

The table knows lengths of one and two bytes, that is records up to 8 KB, and the lanes trust the
counts in the headers. Both are checked at the end, because only a right chain ends where the batch
ends. A batch with a wrong chain is followed again, by its bytes alone.

If loops are compiled (`kernel`), one of them does all this, batch by batch.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from dissector import kernel
from dissector.packets.block import Bytes, Int64
from dissector.records.varints import SHORT, read_one, value_of, width_of, words

MIN_RECORD = 7
"""Bytes of the smallest record: length, attributes, two deltas, two lengths and a count."""
_FEW = 40
"""With fewer lanes than this, following each alone is faster."""
_VERY_FEW = 4
"""With fewer lanes than this, checking each lane is faster than arrays."""
_LEAP = 16, 4096
"""Records per lane of the first leap, and at most."""
_LEAP_SIZE = 1 << 16
"""Maximum number of records in a leap, over all lanes."""
_WALK = 64, 4096
"""Steps per lane before the next leap, at first and at most."""

_ADVANCE = np.where(
    (width_of(SHORT) > 0) & (value_of(SHORT) >= MIN_RECORD - 1),
    width_of(SHORT) + value_of(SHORT),
    0,
)
"""Distance to the next record, by the first two bytes of a record; 0 if they do not suffice."""
_ADVANCE_LIST: list[int] = _ADVANCE.tolist()


@dataclass(frozen=True, slots=True)
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
    hint = np.clip(count, 0, np.maximum(end - begin, 0) // MIN_RECORD)
    if kernel.COMPILED:
        start, right = np.zeros(int(hint.sum()), np.int64), np.empty(len(hint), np.bool_)
        kernel.loops.walk_records(data, begin, end, hint, start, right)
    else:
        start = _Lanes(data, begin, end, hint).walk()
        right = _right(data, start, begin, end, hint)
    wrong = np.flatnonzero(~right)
    if not len(wrong):
        return RecordChain(start, hint, end)
    counts, reached = hint.copy(), end.copy()
    first = np.cumsum(hint) - hint
    parts: list[Int64] = []
    behind = 0
    for index in wrong.tolist():
        parts.append(start[behind : first[index]])
        behind = int(first[index] + hint[index])
        alone, reached[index] = _walk_alone(data.data, int(begin[index]), int(end[index]))
        counts[index] = len(alone)
        parts.append(np.frombuffer(alone, np.int64))
    parts.append(start[behind:])
    return RecordChain(np.concatenate(parts), counts, reached)


def _right(data: Bytes, start: Int64, begin: Int64, end: Int64, count: Int64) -> NDArray[np.bool_]:
    """Whether each lane ended at the end of its batch."""
    right = begin == end
    filled = np.flatnonzero(count)
    last = start[(np.cumsum(count) - 1)[filled]]
    advance = _ADVANCE[words(data, 2)[last].astype(np.intp)]
    right[filled] = (last >= 0) & (advance > 0) & (last + advance == end[filled])
    return np.asarray(right, np.bool_)


class _Lanes:
    """Batches that are followed together; arrays of shape (lanes,)."""

    def __init__(self, data: Bytes, begin: Int64, end: Int64, count: Int64) -> None:
        self._memory = data.data
        self._word = words(data, 2)
        self._start = np.full(int(count.sum()), -1)  # positions that are not reached stay -1
        self._at = begin.copy()
        self._end = end
        self._left = count.copy()
        self._slot = np.cumsum(count) - count

    def walk(self) -> Int64:
        """The record positions of each batch, as many as its count states, right or wrong."""
        leap, walk = _LEAP[0], _WALK[0]
        while self._drop_finished():
            if self._promising() and self._leap(leap):
                leap, walk = min(4 * leap, _LEAP[1]), _WALK[0]
                continue
            self._walk(walk)
            leap, walk = _LEAP[0], min(4 * walk, _WALK[1])
        return self._start

    def _drop_finished(self) -> bool:
        """Drop finished lanes; returns whether lanes remain."""
        going = self._left > 0
        if not going.all():
            self._at, self._end = self._at[going], self._end[going]
            self._left, self._slot = self._left[going], self._slot[going]
        return len(self._at) > 0

    def _advance(self, at: Int64) -> Int64:
        return _ADVANCE[self._word[at].astype(np.intp)]

    def _promising(self) -> bool:
        """Whether the next two records have equal sizes in half of the lanes."""
        if len(self._at) < _VERY_FEW:
            ends = zip(self._at.tolist(), self._end.tolist(), strict=True)
            sizes = [list(islice(_starts(self._memory, at, end), 3)) for at, end in ends]
            same = sum(len(at) > 2 and at[2] - at[1] == at[1] - at[0] for at in sizes)
        else:
            size = self._advance(self._at)
            following = self._advance(np.minimum(self._at + size, self._end))
            same = int(np.count_nonzero(following == size))
        return 2 * same >= len(self._at)

    def _leap(self, most: int) -> bool:
        """Guess that the next `most` records of each lane have the size of the current one.

        Returns whether half of the guesses were right."""
        size = self._advance(self._at)
        ahead = np.arange(min(most, int(self._left.max()), max(_LEAP_SIZE // len(size), 2)))
        guess = self._at[:, None] + size[:, None] * ahead
        np.minimum(guess, self._end[:, None], out=guess)
        tried = np.minimum(self._left, len(ahead))
        right = self._advance(guess) == size[:, None]
        slot = self._slot[:, None] + ahead
        if right.all() and int(tried.min()) == len(ahead):
            run = tried
            self._start[slot] = guess
        else:
            right &= ahead < tried[:, None]
            run = np.where(right.all(1), len(ahead), right.argmin(1))
            taken = ahead < run[:, None]
            self._start[slot[taken]] = guess[taken]
        self._at = np.minimum(self._at + run * size, self._end)
        self._slot += run
        self._left -= run
        return bool(2 * run.sum() >= tried.sum())

    def _walk(self, times: int) -> None:
        """Walk the next `times` records of each lane."""
        if len(self._at) < _FEW:
            self._alone(times)
            return
        while times and self._drop_finished():
            together = min(times, int(self._left.min()))
            self._step(together)
            times -= together

    def _step(self, times: int) -> None:
        """The next records of all lanes, one of each at a time."""
        at, slot, end, start = self._at, self._slot, self._end, self._start
        for _ in range(times):
            start[slot] = at
            slot += 1
            at += self._advance(at)
            np.minimum(at, end, out=at)
        self._left -= times

    def _alone(self, times: int) -> None:
        """The next records of one lane after the other."""
        lanes = zip(self._at.tolist(), self._end.tolist(), self._left.tolist(), strict=True)
        for lane, (at, end, left) in enumerate(lanes):
            wanted = min(left, times)
            if not wanted:  # a leap took the last of it
                continue
            starts = array("q", islice(_starts(self._memory, at, end), wanted))
            if len(starts) < wanted:
                self._left[lane] = 0  # its count is wrong, and it will be walked again
                continue
            slot = int(self._slot[lane])
            self._start[slot : slot + wanted] = starts
            self._at[lane] = starts[-1] + _step(self._memory, starts[-1], end)
            self._slot[lane] += wanted
            self._left[lane] -= wanted


def _walk_alone(memory: memoryview, at: int, end: int) -> tuple[array[int], int]:
    """The starts of the records in [at, end), and the position where the walk ended.

    This position is before `end` if a length is invalid, after `end` if the last record extends
    beyond it.
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
    """Distance to the next record; 0 if the length is invalid.

    If the record extends beyond the end, the distance does too; its length may be any number.
    """
    length, behind = read_one(memory, at, end)
    return min(behind + length, end + 1) - at if length >= MIN_RECORD - 1 else 0
