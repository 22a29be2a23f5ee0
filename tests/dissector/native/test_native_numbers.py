"""Numbers, ranges and words at many places: what Python reads there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector import _native
from dissector.byteview import ByteView, ContiguousBytes
from dissector.packets.block import PAD

DATA = st.binary(max_size=60)
PLACES = st.lists(st.integers(0, 60), max_size=40)
LENGTHS = st.lists(st.sampled_from([0, 1, 2, 7, 8, 9, 16, 20]), min_size=40, max_size=40)


def at(places: list[int], size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([place % (size + 1) for place in places], np.int64)


@given(DATA, PLACES, st.sampled_from(["u1", "i1", "u2", "i2", "u4", "i4", "i8"]))
def test_numbers(data: bytes, places: list[int], dtype: str) -> None:
    where = at(places, len(data))
    padded, width = data + bytes(PAD), int(dtype[1])
    numbers = ContiguousBytes.of(data).number(where, dtype)
    assert numbers.tolist() == [
        int.from_bytes(padded[place : place + width], "big", signed=dtype[0] == "i")
        for place in where.tolist()
    ]


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
    count = _native.number_words(space.data, where, length, _native.HASH_KEY, code, first)
    words = list(dict.fromkeys(expected))
    assert count == len(words)
    assert [words[each] for each in code.tolist()] == expected
    assert first[:count].tolist() == [expected.index(word) for word in words]


@pytest.mark.parametrize("place", [-1, 16, 2**62])
def test_bytes_outside_of_all_pieces_are_zero(place: int) -> None:
    space = ContiguousBytes(np.ones(16, np.uint8))
    where, single = np.array([place]), np.ones(1, np.int64)
    assert space.number(where, "i1").tolist() == [0]
    assert space.take(where, single)[0].tolist() == [0]
    code, first = np.zeros(1, np.int32), np.ones(1, np.int64)
    with pytest.raises(ValueError, match="outside"):
        _native.number_words(space.data, where, single, _native.HASH_KEY, code, first)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=9), PLACES)
def test_pieces(pieces: list[tuple[int, int]], places: list[int]) -> None:
    """Numbers and ranges across pieces; the bytes between two pieces are zero."""
    length, hole = np.array(pieces, np.int64).T.copy()
    address = np.cumsum(length + hole) - length
    position = np.cumsum(length) - length
    data = np.arange(1, int(length.sum()) + PAD + 1, dtype=np.uint8)
    space = ByteView(data, address, position, length)
    flat = bytearray(space.size + 8)
    for begin, source, size in zip(address, position, length, strict=True):
        flat[begin : begin + size] = data[source : source + size].tobytes()
    where = at(places, space.size)
    assert space.number(where, "i8").tolist() == [
        int.from_bytes(flat[place : place + 8], "big", signed=True) for place in where.tolist()
    ]
    sizes = np.minimum(space.size - where, 11)
    expected = [bytes(flat[place : place + size]) for place, size in zip(where, sizes, strict=True)]
    assert space.take(where, sizes)[0].tobytes() == b"".join(expected)
