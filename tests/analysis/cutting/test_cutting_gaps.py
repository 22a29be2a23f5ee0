"""Sequence numbers without gaps: one after the other, for any origin, also where they wrap."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analysis.cutting.gaps import ClosedGaps

MODULO = 1 << 32


def test_bytes_in_a_gap_have_the_number_of_the_next_message() -> None:
    gaps = ClosedGaps(1001, np.array([1011, 1041]), np.array([10, 5]))
    numbers = {
        1000: 1000,  # the SYN
        1001: 1001, 1010: 1001, 1011: 1001, 1015: 1005,
        1021: 1011, 1030: 1011, 1041: 1011, 1046: 1016,
        1099: 1016,  # a FIN behind a message that is not in the cut
    }  # fmt: skip
    assert {sequence: gaps.number(sequence) for sequence in numbers} == numbers


@given(
    st.integers(0, MODULO - 1),
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 100)), max_size=20),
)
def test_messages_follow_each_other(origin: int, spans: list[tuple[int, int]]) -> None:
    begins, lengths, at = [], [], origin
    for gap, length in spans:
        begins.append((at + gap) % MODULO)
        lengths.append(length)
        at += gap + length
    gaps = ClosedGaps(origin, np.array(begins, np.int64), np.array(lengths, np.int64))
    new = origin
    for begin, length in zip(begins, lengths, strict=True):
        ends = gaps.number(begin), gaps.number((begin + length) % MODULO)
        assert ends == (new, (new + length) % MODULO)
        new = ends[1]
