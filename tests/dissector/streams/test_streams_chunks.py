"""Memory for carried bytes: ranges keep their bytes, and chunks are used again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.packets.block import Bytes, Int64
from dissector.streams.reassembly import chunks as chunks_module
from dissector.streams.reassembly.chunks import Chunks

CHUNK = 64
Range = tuple[int, bytes]
"""Place and content."""


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks_module, "_CHUNK", CHUNK)
        yield


def arrays(ranges: list[Range]) -> tuple[Int64, Int64]:
    place = np.array([place for place, _ in ranges], np.int64)
    return place, np.array([len(content) for _, content in ranges], np.int64)


def added(chunks: Chunks, contents: list[bytes]) -> list[Range]:
    """Add contents, which lie apart in the source."""
    data = np.frombuffer(b"?" + b"?".join(contents) + b"?", np.uint8)
    length = np.array([len(content) for content in contents], np.int64)
    at = 1 + np.cumsum(length + 1) - length - 1
    return [*zip(chunks.add(data, at, length).tolist(), contents, strict=True)]


def contents_of(chunks: Chunks, ranges: list[Range]) -> list[bytes]:
    place, length = arrays(ranges)
    target: Bytes = np.zeros(int(length.sum()), np.uint8)
    offset = chunks.copy(place, length, target)
    return [
        target[begin : begin + size].tobytes()
        for begin, size in zip(offset.tolist(), length.tolist(), strict=True)
    ]


def kept(chunks: Chunks, ranges: list[Range]) -> list[Range]:
    """Keep these ranges, and move those that are to be moved."""
    is_moved = chunks.keep(*arrays(ranges))
    moved = [ranges[index] for index in np.flatnonzero(is_moved)]
    stay = [ranges[index] for index in np.flatnonzero(~is_moved)]
    return stay + added(chunks, contents_of(chunks, moved))


blocks = st.lists(
    st.tuples(st.lists(st.binary(max_size=2 * CHUNK), max_size=8), st.randoms()), max_size=12
)


@given(blocks)
def test_ranges_keep_their_bytes(blocks: list[tuple[list[bytes], Any]]) -> None:
    """Ranges are of any size, also empty ones and ones larger than a chunk."""
    chunks = Chunks()
    ranges: list[Range] = []
    for contents, chance in blocks:
        ranges = kept(chunks, [each for each in ranges if chance.random() < 0.5])
        ranges += added(chunks, contents)
        chance.shuffle(ranges)
        assert contents_of(chunks, ranges) == [content for _, content in ranges]


def test_a_range_inside_a_range_has_a_place() -> None:
    chunks = Chunks()
    [(place, content)] = added(chunks, [b"0123456789"])
    assert contents_of(chunks, [(place + 3, content[3:7])]) == [b"3456"]


def test_memory_is_proportional_to_the_needed_bytes() -> None:
    """One small range of each block is needed for ever: their chunks must not stay."""
    chunks = Chunks()
    ranges: list[Range] = []
    for number in range(200):
        ranges = kept(chunks, ranges) + added(chunks, [bytes([number]), bytes(CHUNK - 1)])[:1]
    memory = sum(len(chunk) for chunk in [*chunks._chunks.values(), *chunks._free])
    assert memory <= 4 * len(ranges) + 3 * CHUNK
    assert contents_of(chunks, ranges) == [content for _, content in ranges]
