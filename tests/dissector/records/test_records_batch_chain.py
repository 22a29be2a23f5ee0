"""The chain of batches in fields: as they were written, in any pieces."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dissector.byteview import ByteView
from dissector.packets.block import PAD
from dissector.records.batch_headers import MIN_SIZE, follow_sizes

BATCHES = st.lists(st.tuples(st.sampled_from([0, 1, 2]), st.integers(0, 30)), max_size=9)
NO_BATCH = [bytes(17), b"\xff" * 20, b"\0" * 11 + b"\x30" + b"\0" * 4 + b"\x03"]
"""Zeros; a negative size; an unknown magic."""
TAILS = st.sampled_from([b"", b"\xff" * 16, *NO_BATCH])


def batch(magic: int, surplus: int) -> bytes:
    size = MIN_SIZE[magic] + surplus
    return bytes(8) + (size - 12).to_bytes(4) + bytes(4) + bytes([magic]) + bytes(size - 17)


def view(data: bytes, cuts: list[int]) -> ByteView:
    """The bytes in pieces, the last of which is the first in memory."""
    borders = np.unique([0, *(cut % (len(data) + 1) for cut in cuts), len(data)])
    pieces = [data[begin:end] for begin, end in pairwise(borders.tolist())][::-1]
    position = np.cumsum([0, *map(len, pieces)])[:-1][::-1]
    memory = np.frombuffer(b"".join(pieces) + bytes(PAD), np.uint8)
    return ByteView(memory, borders[:-1].copy(), position.copy(), np.diff(borders))


@given(
    st.lists(st.tuples(BATCHES, TAILS), max_size=6), st.lists(st.integers(0, 2_000), max_size=12)
)
def test_batches_are_those_that_were_written(
    fields: list[tuple[list[tuple[int, int]], bytes]], cuts: list[int]
) -> None:
    expected, broken, starts, data = [], [], [], b""
    for index, (batches, tail) in enumerate(fields):
        starts.append(len(data))
        for magic, surplus in batches:
            expected.append((index, len(data), MIN_SIZE[magic] + surplus, magic))
            data += batch(magic, surplus)
        if tail in NO_BATCH:
            broken.append((index, len(data)))
        data += tail
    stops = np.array([*starts[1:], len(data)][: len(fields)], np.int64)
    chain = follow_sizes(view(data, cuts), np.array(starts, np.int64), stops)
    columns = chain.field, chain.address, chain.size, chain.magic
    assert [*zip(*(column.tolist() for column in columns), strict=True)] == expected
    assert chain.broken == broken


def test_a_cut_batch_ends_a_field() -> None:
    data = batch(2, 5) + batch(2, 5)[:40]
    chain = follow_sizes(view(data, []), np.array([0, 1]), np.array([len(data), 10]))
    assert chain.address.tolist() == [0, 66]
    assert chain.size.tolist() == [66, 66]
    assert chain.broken == []
