"""The compiled loops of streams: where an address is, and how far a chain of frames goes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector import kernel
from dissector.packets.block import PAD
from dissector.streams.byteview import ScatteredBytes
from dissector.streams.frame_chain import FrameChains
from dissector.streams.segments import Segments

pytestmark = pytest.mark.skipif(not kernel.COMPILED, reason="no compiled loops")

SIZES = st.one_of(st.integers(0, 12), st.sampled_from([-1, 40, 10**6, 2**31 - 1]))
LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=12)


@st.composite
def chains(draw: st.DrawFn) -> FrameChains:
    """Some streams of frames, a few of them wrong, cut into pieces with holes between them."""
    data = bytearray()
    columns: list[tuple[int, ...]] = []
    for stream in range(draw(st.integers(1, 9))):
        frames = draw(st.lists(SIZES, max_size=8))
        content = b"".join(
            size.to_bytes(4, "big", signed=True) + bytes(max(min(size, 30), 0)) for size in frames
        )
        at = draw(st.integers(0, 5))
        while content:
            length = min(draw(st.integers(1, 14)), len(content))
            span = length + (draw(st.integers(1, 6)) if draw(st.integers(0, 9)) == 0 else 0)
            columns.append((stream, at, length, span, len(data)))
            data += content[:length]
            content = content[span:]
            at += span
    if not columns:
        columns.append((0, 0, 1, 1, 0))
        data += b"\0"
    stream, at, length, span, source = np.array(columns, np.int64).T.copy()
    nothing = np.zeros(len(stream), np.int64)
    pieces = Segments(
        stream=stream, at=at, length=length, span=span, source=source,
        held=nothing, time=nothing, capture=nothing, number=nothing, acknowledged=nothing,
    )  # fmt: skip
    return FrameChains(np.frombuffer(bytes(data) + bytes(PAD), np.uint8), pieces)


@settings(deadline=None)
@given(chains(), st.data())
def test_the_walk_is_that_of_numpy(chain: FrameChains, data: st.DataObject) -> None:
    index = np.arange(len(chain.stream))
    begin = chain.address[chain.first[:-1]]
    at = begin + np.array([data.draw(st.sampled_from([0, 0, 0, 1, 4, -1])) for _ in index])
    compiled, *ours = chain.walk(index, at)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "COMPILED", False)
        pure, *theirs = chain.walk(index, at)
    for mine, expected in zip(ours, theirs, strict=True):
        assert mine.tolist() == expected.tolist()
    assert compiled.start.tolist() == pure.start.tolist()
    assert compiled.size.tolist() == pure.size.tolist()
    assert compiled.piece.tolist() == pure.piece.tolist()


@settings(deadline=None)
@given(LENGTHS, LENGTHS, st.lists(st.integers(0, 120), max_size=20))
def test_addresses_are_found_among_pieces(
    lengths: list[int], gaps: list[int], at: list[int]
) -> None:
    number = min(len(lengths), len(gaps))
    length = np.array(lengths[:number], np.int64)
    address = np.cumsum(length + gaps[:number]) - length
    data = np.arange(int(length.sum()) + PAD, dtype=np.uint8)
    space = ScatteredBytes(data, address, np.cumsum(length) - length, length)
    where = np.array([place % (space.size + 1) for place in at], np.int64)
    flat = np.zeros(space.size + 1, np.uint8)
    for begin, source, size in zip(address, space.position, length, strict=True):
        flat[begin : begin + size] = data[source : source + size]
    assert space.u8(where).tolist() == flat[where].tolist()
