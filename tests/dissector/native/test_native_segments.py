"""The tables of segments: which bytes remain, byte by byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector import _native
from dissector.streams.reassembly.origins import LIMITS
from dissector.streams.segments import BLOCK

pytestmark = pytest.mark.usefixtures("loops")

AT, LENGTH, SPAN, SOURCE, HELD, TIME, ARRIVAL = 1, 2, 3, 4, 5, 6, 11
PLAIN = 0, AT, LENGTH, SOURCE, TIME, 7, 8, 9
"""The columns that are filled if no segment is out of order."""
STREAMS = 2
UNSET = -77
NOWHERE = -(1 << 62)
NEEDED = 5
"""First position of each stream that is needed."""

packets = st.lists(
    st.tuples(st.integers(0, STREAMS - 1), st.integers(0, 30), st.integers(1, 12)), max_size=12
)


@st.composite
def mostly_following(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Payloads, most of which begin where the one before ends, or repeat one before."""
    rows: list[tuple[int, int, int]] = []
    end = [NEEDED] * STREAMS
    for stream, at, length in draw(packets):
        kind = draw(st.integers(0, 9))
        before = [row for row in rows if row[0] == stream]
        if kind == 0:
            rows.append((stream, at, length))
        elif kind <= 3 and before:
            rows.append(draw(st.sampled_from(before)))
        else:
            rows.append((stream, end[stream], length))
        end[stream] = max(end[stream], sum(rows[-1][1:]))
    return rows


def placed(rows: list[tuple[int, int, int]], *, is_plain: bool = False) -> tuple[np.ndarray, bool]:
    """A table of payloads: stream, position and length of each."""
    slot, at, length = np.array(rows, np.int64).reshape(-1, 3).T.copy()
    index, size = np.arange(len(rows)), length.astype(np.int32)
    count = np.bincount(slot, minlength=STREAMS)
    base = np.full(STREAMS, NEEDED)
    table = np.full((13, len(rows)), UNSET)
    is_sorted = _native.place_segments(
        slot, at, size, size, 100 * index, index, size, index, size.astype(np.uint32),
        np.zeros(len(rows), np.uint8), np.zeros(0, np.int64), is_plain, base,
        np.cumsum(count) - count, np.full(STREAMS, -1), base.copy(), base.copy(), base.copy(),
        table.reshape(-1),
    )  # fmt: skip
    return table, is_sorted


@given(packets)
def test_each_byte_is_of_the_first_segment_that_has_it(rows: list[tuple[int, int, int]]) -> None:
    table, is_sorted = placed(rows)
    assert sorted(table[TIME].tolist()) == list(range(len(rows)))
    in_order = [sorted(row for row in rows if row[0] == stream) for stream in range(STREAMS)]
    if [each for stream in in_order for each in stream] == sorted(rows, key=lambda row: row[0]):
        assert is_sorted
    if not is_sorted:
        return
    expected: dict[tuple[int, int], int] = {}
    for index, (stream, at, length) in enumerate(rows):
        for place in range(max(at, NEEDED), at + length):
            expected.setdefault((stream, place), 100 * index + place - at)
    retransmitted, out_of_order = np.zeros((2, STREAMS), np.int64)
    next_position, gap = np.full(STREAMS, NEEDED + 1), np.empty(len(rows), np.int64)
    kept = _native.trim_segments(
        0, np.full(STREAMS, NEEDED), next_position, retransmitted, out_of_order, gap,
        table.reshape(-1),
    )  # fmt: skip
    actual = {}
    behind = dict.fromkeys(range(STREAMS), NEEDED + 1)
    for row, missing in zip(table[:, :kept].T.tolist(), gap[:kept].tolist(), strict=True):
        stream, at, length, span, source, held = row[:6]
        assert (length, held) == (span, BLOCK)
        assert missing == max(at - behind[stream], 0)
        behind[stream] = max(at + span, behind[stream])
        actual |= {(stream, at + each): source + each for each in range(length)}
    assert actual == expected
    assert retransmitted.sum() == len(rows) - kept


@given(mostly_following(), st.booleans())
def test_positions(rows: list[tuple[int, int, int]], is_new: bool) -> None:
    """Payloads that only repeat bytes have no position, as long as all others follow each other;
    nor does the byte of a keep-alive."""
    slot, at, length = np.array(rows, np.int64).reshape(-1, 3).T.copy()
    size, index = length.astype(np.int32), np.arange(len(rows))
    near, reference, end = np.full((3, STREAMS), NEEDED)
    least = np.full(STREAMS, NEEDED if is_new else -100)
    count, cut, repeated, jumps = np.zeros((4, STREAMS), np.int64)
    highest, latest, lowest = np.full(STREAMS, NEEDED - 1), np.full(STREAMS, -1), near + 100
    positions, stray = np.zeros(len(rows), np.int64), np.zeros(2 * len(rows), np.int64)
    strays, in_order = _native.find_positions(
        slot, at.astype(np.uint32), np.zeros(len(rows), np.uint8), size, size, index, near,
        reference, np.zeros(STREAMS, np.uint8), least, LIMITS, positions, count, lowest, cut, end,
        highest, latest, repeated, True, stray, *np.full((2, STREAMS), -1), jumps,
    )  # fmt: skip
    assert strays == 0
    ends, tops, repeats = [NEEDED] * STREAMS, [NEEDED - 1] * STREAMS, [0] * STREAMS
    expected, follows = [], True
    last = [-1] * STREAMS
    for stream, begin, bytes_sent in rows:
        is_keep_alive = (bytes_sent, begin + 1) == (1, last[stream])
        last[stream] = begin + bytes_sent
        if is_keep_alive:
            expected.append(NOWHERE)
            continue
        if follows and begin == ends[stream]:
            ends[stream], tops[stream] = begin + bytes_sent, begin
        elif (
            follows
            and begin + bytes_sent <= ends[stream]
            and least[stream] <= begin <= tops[stream]
        ):
            repeats[stream] += 1
            expected.append(NOWHERE)
            continue
        else:
            follows = False
        expected.append(begin)
    assert in_order == follows
    assert positions.tolist() == expected
    assert repeated.tolist() == repeats
    placed_rows = [row for row, place in zip(rows, expected, strict=True) if place != NOWHERE]
    for stream in range(STREAMS):
        starts = [begin for each, begin, _ in placed_rows if each == stream]
        assert (count[stream], lowest[stream]) == (len(starts), min([*starts, NEEDED + 100]))
    if in_order:
        assert (end.tolist(), highest.tolist()) == (ends, tops)


def test_times_are_those_of_the_latest_byte_before() -> None:
    slot, at, span = np.array([[0, 0, 0, 1], [-4, 0, 4, 0], [4, 4, 6, 1]], np.int64)
    time, end, latest = np.array([7, 3, 9, 1]), np.zeros(3, np.int64), np.full(3, -1)
    before = np.array([5, 0, 0])
    _native.read_segments(slot, at, span, np.zeros(3, np.int64), before, time, end, latest)
    assert time.tolist() == [7, 7, 9, 1]
    assert (end.tolist(), latest.tolist()) == ([10, 1, 0], [9, 1, -1])


@given(mostly_following(), st.sampled_from([0, (1 << 32) - 20]))
def test_repeats(rows: list[tuple[int, int, int]], begin: int) -> None:
    """Payloads that begin before the end of an earlier one, also where the numbers wrap."""
    slot, at, length = np.array(rows, np.int64).reshape(-1, 3).T.copy()
    seq = ((begin + at) % (1 << 32)).astype(np.uint32)
    repeats = np.zeros(len(rows), np.int64)
    count = _native.find_repeats(slot, seq, length.astype(np.int32), np.full(STREAMS, -1), repeats)
    expected, ends = [], [-1] * STREAMS
    for index, (stream, first, size) in enumerate(rows):
        if first < ends[stream]:
            expected.append(index)
        ends[stream] = max(ends[stream], first + size)
    assert repeats[:count].tolist() == expected
