"""The walk of frames: what a walk byte by byte finds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dissector.packets.block import PAD
from dissector.streams.frame_chain import BAD, CUT, LOST, WHOLE, FrameChains
from dissector.streams.limits import FRAME_LIMIT
from dissector.streams.segments import Segments

SIZES = st.one_of(st.integers(0, 12), st.sampled_from([-1, 40, 10**6, 2**31 - 1]))


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
        front=nothing,
    )  # fmt: skip
    return FrameChains(np.frombuffer(bytes(data) + bytes(PAD), np.uint8), pieces)


def walk(chain: FrameChains, at: int, end: int) -> tuple[list[tuple[int, int]], int, int, int]:
    """Start and size of the frames of one stream, where and how the walk ended, and the end of an
    incomplete frame."""
    content: dict[int, int] = {}
    pieces = chain.pieces
    columns = (chain.address, pieces.source, pieces.length)
    for address, source, length in zip(*(each.tolist() for each in columns), strict=True):
        content |= enumerate(chain.data[source : source + length].tolist(), address)
    frames: list[tuple[int, int]] = []
    while at < end:
        head = [content.get(place) for place in range(at, min(at + 4, end))]
        known = [byte for byte in head if byte is not None]
        if len(known) < len(head):
            return frames, at, LOST, -1
        if len(head) < 4:
            return frames, at, CUT, -1
        size = int.from_bytes(bytes(known), "big", signed=True)
        if not 0 <= size <= FRAME_LIMIT:
            return frames, at, BAD, -1
        if at + 4 + size > end:
            return frames, at, CUT, at + 4 + size
        frames.append((at, size))
        at += 4 + size
    return frames, at, WHOLE, -1


@given(chains(), st.data())
def test_walk(chain: FrameChains, data: st.DataObject) -> None:
    index = np.arange(len(chain.stream))
    begin = chain.address[chain.first[:-1]]
    at = begin + np.array([data.draw(st.sampled_from([0, 0, 0, 1, 4])) for _ in index])
    frames_walked, *ends = chain.walk(index, at)
    expected = [walk(chain, *each) for each in zip(at.tolist(), chain.end.tolist(), strict=True)]
    assert [*zip(*(each.tolist() for each in ends), strict=True)] == [each[1:] for each in expected]
    frames = [frame for each in expected for frame in each[0]]
    assert [*zip(frames_walked.start.tolist(), frames_walked.size.tolist(), strict=True)] == frames
    assert frames_walked.piece.tolist() == chain.piece_of(frames_walked.start).tolist()


def test_a_walk_from_before_a_stream_is_lost() -> None:
    nothing = np.zeros(1, np.int64)
    pieces = Segments(
        stream=nothing, at=nothing, length=nothing + 9, span=nothing + 9, source=nothing,
        held=nothing, time=nothing, capture=nothing, number=nothing, acknowledged=nothing,
        front=nothing,
    )  # fmt: skip
    chain = FrameChains(np.zeros(9 + PAD, np.uint8), pieces)
    assert chain.walk(nothing, nothing - 1)[2].tolist() == [LOST]
