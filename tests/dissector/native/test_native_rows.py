"""Rows of columns, lists of words, and requests in flight: what Python finds step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector import _native
from dissector.exchanges.columns import take_rows
from dissector.exchanges.matching import in_flight

VALUES = st.lists(st.none() | st.integers(-(2**15), 2**15 - 1), max_size=40)
PLACES = st.lists(st.integers(0, 60), max_size=40)


@given(VALUES, PLACES, st.integers(0, 9), st.sampled_from(["int16", "int32", "int64"]))
def test_rows_of_numbers(
    values: list[int | None], places: list[int], offset: int, dtype: str
) -> None:
    column = pa.array(values, getattr(pa, dtype)())[offset:]
    rows = [place % (len(column) + 1) - 1 for place in places]
    chosen = take_rows(column, np.array(rows, np.int64))
    assert chosen.type == column.type
    chosen.validate(full=True)
    kept = values[offset:]
    assert chosen.to_pylist() == [None if row < 0 else kept[row] for row in rows]
    assert chosen.null_count == chosen.to_pylist().count(None)


@given(st.lists(st.sampled_from([None, "", "a", "b"]), max_size=20), PLACES)
def test_rows_of_texts(texts: list[str | None], places: list[int]) -> None:
    rows = [place % (len(texts) + 1) - 1 for place in places]
    expected = [None if row < 0 else texts[row] for row in rows]
    for column in (pa.array(texts, pa.string()), pa.array(texts, pa.string()).dictionary_encode()):
        assert take_rows(column, np.array(rows, np.int64)).to_pylist() == expected


def test_a_row_outside_of_the_column_is_refused() -> None:
    for row in (2, 2**62):
        with pytest.raises(IndexError):
            take_rows(pa.array([1, 2]), np.array([row]))


WORDS = st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 3)), max_size=40)
"""Message and code of each word, in order of address."""


def listed(words: list[tuple[int, int, int]], messages: int) -> tuple[list[int], list[int]] | None:
    """`list_words`; None if it refused the order of the addresses."""
    message, address, code = np.array(words, np.int64).reshape(-1, 3).T.copy()
    begin, codes = np.empty(messages + 1, np.int32), np.empty(len(words), np.int32)
    last = np.zeros(4, np.int64)
    count = _native.list_words(message, address, code.astype(np.int32), last, begin, codes)
    return None if count < 0 else (begin.tolist(), codes[:count].tolist())


@given(WORDS)
def test_lists_of_words(words: list[tuple[int, int]]) -> None:
    lists = [
        list(dict.fromkeys(code for message, code in words if message == each and code >= 0))
        for each in range(6)
    ]
    begin = [sum(map(len, lists[:count])) for count in range(7)]
    in_order = [(message, address, code) for address, (message, code) in enumerate(words)]
    assert listed(in_order, 6) == (begin, [code for each in lists for code in each])
    is_unique = len({message for message, _ in words}) == len(words)
    assert (listed(in_order[::-1], 6) is None) == (not is_unique)


@pytest.mark.parametrize("word", [(1, 0, 0), (0, 0, 4)])
def test_words_outside_of_all_messages_are_refused(word: tuple[int, int, int]) -> None:
    with pytest.raises(IndexError):
        listed([word], 1)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 9)), max_size=30),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 9)), max_size=30),
    st.booleans(),
)
def test_requests_in_flight(requests: Any, responses: Any, is_sorted: bool) -> None:
    if is_sorted:
        requests.sort()
    before = [2, 0, 1]
    (connection, time, ordinal), (of, at, number) = (
        np.array(messages, np.int64).reshape(-1, 3).T.copy() for messages in (requests, responses)
    )
    counts = in_flight(connection, ordinal, time, np.stack([of, number, at]), np.array(before))
    assert counts.tolist() == [
        max(
            place
            - max([before[row], *(n for r, moment, n in responses if r == row and moment <= now)]),
            1,
        )
        for row, now, place in requests
    ]
