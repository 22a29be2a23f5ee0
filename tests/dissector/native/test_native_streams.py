"""The walk of frames: what a walk byte by byte finds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dissector import _native
from dissector.packets.block import PAD
from dissector.streams.frame_chain import BAD, CUT, LOST, WHOLE, FrameChains
from dissector.streams.limits import USUAL_FRAME
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
    return FrameChains(np.frombuffer(bytes(data) + bytes(PAD), np.uint8), pieces, np.arange(9))


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
        if not 0 <= size <= USUAL_FRAME:
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
    frames_walked, until, *ends = chain.walk(index, at)
    expected = [walk(chain, *each) for each in zip(at.tolist(), chain.end.tolist(), strict=True)]
    assert [*zip(*(each.tolist() for each in ends), strict=True)] == [each[1:] for each in expected]
    frames = [frame for each in expected for frame in each[0]]
    assert until.tolist() == np.cumsum([len(each[0]) for each in expected]).tolist()
    assert [*zip(frames_walked.start.tolist(), frames_walked.size.tolist(), strict=True)] == frames
    assert frames_walked.piece.tolist() == chain.piece_of(frames_walked.start).tolist()


def test_a_walk_from_before_a_stream_is_lost() -> None:
    nothing = np.zeros(1, np.int64)
    pieces = Segments(
        stream=nothing, at=nothing, length=nothing + 9, span=nothing + 9, source=nothing,
        held=nothing, time=nothing, capture=nothing, number=nothing, acknowledged=nothing,
        front=nothing,
    )  # fmt: skip
    chain = FrameChains(np.zeros(9 + PAD, np.uint8), pieces, np.arange(9))
    assert chain.walk(nothing, nothing - 1).ended.tolist() == [LOST]


def test_more_frames_than_pieces() -> None:
    """The table of frames grows, and keeps the frames of the streams before."""
    data, nothing = np.zeros(400 + PAD, np.uint8), np.zeros(2, np.int64)
    data[:8] = [0, 0, 0, 4, 1, 2, 3, 4]
    stream, source, length = np.array([[0, 1], [0, 8], [8, 392]])
    pieces = Segments(
        stream=stream, at=nothing, length=length, span=length, source=source, held=nothing,
        time=nothing, capture=nothing, number=nothing, acknowledged=nothing, front=nothing,
    )  # fmt: skip
    chain = FrameChains(data, pieces, np.arange(2))
    frames, until, at, ended, _ = chain.walk(np.arange(2), chain.address)
    assert frames.start.tolist() == [0, *range(8, 400, 4)]
    assert frames.size.tolist() == [4] + [0] * 98
    assert frames.first[:2].tolist() == [0x01020304, 0]
    assert (until.tolist(), at.tolist(), ended.tolist()) == ([1, 99], [8, 400], [WHOLE, WHOLE])


NEWEST = [9, 3]
"""Highest version of two APIs."""
RANGE = 100, 200
"""Correlation ids of responses."""
HEADERS = [
    # first number, length of the client id, size, whether the header is usual
    [(0, 5, 15, True), (0, 5, 14, False), (9, -1, 9, True), (10, -1, 9, False)],
    [(100, 0, 4, True), (101, 0, 3, False), (150, 0, 4, True), (150, 0, 4, False)],
    [(99, 0, 9, False), (200, 0, 9, True), (201, 0, 9, False), (120, 0, 9, False)],
    [(1 << 16 | 3, 0, 10, True), (1 << 16 | 4, 0, 10, False), (2 << 16, 0, 10, False)],
    [(3, -2, 10, False), (-1, 0, 10, False), (0, 0, 10, False)],
]
IS_CLIENT = [1, 0, 0, 1, 1]


def test_unusual_headers() -> None:
    rows = [row for stream in HEADERS for row in stream]
    first, third, size, is_usual = np.array(rows, np.int64).T.copy()
    # Zeros as API and version are looked at, whatever the client id is.
    is_usual[first == 0] &= np.repeat(IS_CLIENT, [len(each) for each in HEADERS])[first == 0] == 0
    until = np.cumsum([len(stream) for stream in HEADERS])
    lowest, highest = (np.full(len(HEADERS), end) for end in RANGE)
    unusual = np.zeros(len(rows), np.int64)
    count = _native.find_unusual(
        until, np.array(IS_CLIENT, np.uint8), np.array(NEWEST), lowest, highest, size, first, third,
        unusual,
    )  # fmt: skip
    assert unusual[:count].tolist() == np.flatnonzero(is_usual == 0).tolist()


def test_ids_of_requests_and_responses() -> None:
    """Two slots of three pieces; the client of a connection whose stream is 6 sends the first."""
    piece, slot = np.array([0, 0, 1, 2, 2, 2]), np.array([0, 0, 1])
    first = np.array([3 << 16 | 1, 18 << 16, -7, 50, 90, 70])
    second = np.array([5, -1, 9, 0, 0, 0])
    least, most, fall = np.zeros((3, 2), np.int64)
    earliest, latest = np.full((2, 2), -1)
    key, kind = np.zeros(6, np.int64), np.zeros(6, np.int32)
    count = _native.read_request_ids(
        piece, first, second, slot, np.array([6, -1]), 9, least, most, fall, earliest, key, kind
    )
    assert key[:count].tolist() == [6 << 32 | 5, 6 << 32 | 0xFFFFFFFF, 6 << 32 | 9]
    assert kind[:count].tolist() == [3 << 16 | 1, 18 << 16, -7]
    ids = [each.tolist() for each in (least, most, fall, earliest)]
    assert ids == [[-1, 0], [5, 0], [7, 0], [0, -1]]
    lowest, highest = np.array([9, 50]), np.array([0, 89])
    _native.read_response_ids(piece, first, slot, lowest, highest, latest)
    assert latest.tolist() == [-1, 70]


def test_frames_are_described() -> None:
    """A frame in one piece, one in two pieces, one whose end is missing; of two slots."""
    address, stream, at = np.array([0, 10, 30]), np.array([0, 0, 1]), np.array([100, 110, 7])
    length, source, time = np.array([10, 14, 8]), np.array([40, 0, 60]), np.array([11, 22, 33])
    pieces = [
        stream, at, length, source, time, np.array([0, 1, 2]), np.array([5, 6, 7]),
        np.array([80, -1, 82]),
    ]  # fmt: skip
    order, *frames = np.array(
        [[0, 1, 2], [30, 0, 6], [20, 2, 14], [2, 0, 0], [71, 72, 73], [81, 82, 83]], np.int64
    )  # fmt: skip
    until, count, gaps = np.array([[100, 5], [3, 0], [1, 0]])
    numbers = [np.zeros(3, np.int64) for _ in range(14)]
    requests = _native.describe_frames(
        address, *pieces, np.array([24, 54]), np.array([0xFFFFFFFF, 1000]), np.array([4, -5]),
        order, *frames, until, count, gaps, *numbers,
    )  # fmt: skip
    assert requests == 2
    names = (
        "connection", "capture", "start", "position", "size", "readable", "correlation_id",
        "packet", "time", "end_time", "sequence", "acknowledged", "rank", "run",
    )  # fmt: skip
    assert dict(zip(names, (each.tolist() for each in numbers), strict=True)) == {
        "connection": [4, 4, 4],
        "capture": [0, 0, 2],
        "start": [4, 10, 34],
        "position": [44, 0, -1],
        "size": [2, 14, 20],
        "readable": [2, 14, 4],
        "correlation_id": [0, 83, 71],
        "packet": [5, 5, 7],
        "time": [11, 11, 33],
        "end_time": [11, 22, 33],
        "sequence": [99, 105, 1007],
        "acknowledged": [80, 80, 82],
        "rank": [4, 5, 1],
        "run": [1, 1, 1],
    }
    assert [each.tolist() for each in (until, count, gaps)] == [[124, 31], [5, 1], [1, 1]]
