"""The compiled loops that read at many places: what Python reads there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector import kernel
from dissector.packets.block import PAD
from dissector.streams.byteview import ContiguousBytes

pytestmark = pytest.mark.skipif(not kernel.COMPILED, reason="no compiled loops")

DATA = st.binary(max_size=60)
PLACES = st.lists(st.integers(0, 60), max_size=40)
LENGTHS = st.lists(st.sampled_from([0, 1, 2, 7, 8, 9, 16, 20]), min_size=40, max_size=40)


def at(places: list[int], size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([place % (size + 1) for place in places], np.int64)


@settings(deadline=None)
@given(DATA, PLACES, st.sampled_from(["u2", "i2", "u4", "i4", "u8", "i8"]))
def test_numbers(data: bytes, places: list[int], dtype: str) -> None:
    where = at(places, len(data))
    padded, width = data + bytes(PAD), int(dtype[1])
    numbers = ContiguousBytes.of(data).number(where, dtype)
    assert numbers.dtype == dtype
    assert numbers.tolist() == [
        int.from_bytes(padded[place : place + width], "big", signed=dtype[0] == "i")
        for place in where.tolist()
    ]


@settings(deadline=None)
@given(DATA, PLACES, LENGTHS)
def test_ranges_and_words(data: bytes, places: list[int], lengths: list[int]) -> None:
    where = at(places, len(data))
    length = np.array(
        [min(size, len(data) - place) for place, size in zip(where, lengths, strict=False)],
        np.int64,
    )
    expected = [data[place : place + size] for place, size in zip(where, length, strict=True)]
    space = ContiguousBytes.of(data)
    copies, offsets = space.take(where, length)
    assert copies.tobytes() == b"".join(expected)
    assert offsets.tolist() == [sum(map(len, expected[:n])) for n in range(len(expected) + 1)]

    code, first = np.empty(len(where), np.int32), np.empty(len(where), np.int64)
    count = kernel.loops.number_words(space.data, where, length, kernel.HASH_KEY, code, first)
    words = list(dict.fromkeys(expected))
    assert count == len(words)
    assert [words[each] for each in code.tolist()] == expected
    assert first[:count].tolist() == [expected.index(word) for word in words]


@pytest.mark.parametrize("place", [-1, 13, 2**62])
def test_places_outside_of_the_data_are_refused(place: int) -> None:
    data, where, ones = np.zeros(16, np.uint8), np.array([place]), np.ones(1, np.int64)
    with pytest.raises(ValueError, match="outside"):
        kernel.loops.read_numbers(data, where, 4, np.zeros(1, "i4"))
    with pytest.raises(ValueError, match="outside"):
        kernel.loops.copy_ranges(data, where, 4 * ones, np.zeros(4, np.uint8))
    with pytest.raises(ValueError, match="outside"):
        kernel.loops.number_words(
            data, where, 4 * ones, kernel.HASH_KEY, np.zeros(1, np.int32), np.ones(1, np.int64)
        )
