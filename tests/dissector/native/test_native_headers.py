"""The headers of messages: what the decoder of single messages reads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.byteview import ByteView
from dissector.errors import DecodeError
from dissector.exchanges.message_headers import (
    MessageHeaders,
    headers_of,
    read_request_headers,
    response_bodies,
    spaces_of,
)
from dissector.protocol.explain import BodyReader
from dissector.protocol.message import request_header, response_header
from dissector.protocol.notation import Direction
from tests.dissector.exchanges.exchange_frames import (
    SentFrame,
    block,
    sent_request,
    sent_response,
    text,
)

KEYS = st.sampled_from([0, 3, 7, 18, 92, 95, 300, -1])
VERSIONS = st.sampled_from([-1, 0, 1, 2, 3, 9, 13, 31, 32, 127, 128, 32767])
BODIES = st.binary(max_size=9) | st.sampled_from(
    [b"\0\x23" + bytes(4), b"\0\x23\0\0\0\1" + bytes(6), b"\0ab", b"\1\5\2abc", b"\2\1\0\1\0"]
)
CLIENTS = st.sampled_from([b"\xff\xff", b"\0\0", b"\0\2me", b"\0\3\xff\xfe!", b"\x7f\xff", b""])


def int16(value: int) -> bytes:
    return value.to_bytes(2, "big", signed=True)


def headers_in(*sent: SentFrame) -> tuple[MessageHeaders, list[ByteView]]:
    """The headers of messages of one direction, in stream order."""
    frames = block(*sent)
    direction = Direction.REQUEST if frames.requests else Direction.RESPONSE
    return headers_of(frames, direction), spaces_of(frames)


REQUESTS = st.builds(
    lambda key, version, client, body, size: (
        (int16(key) + int16(version) + b"\0\0\0\7" + client + body)[:size]
    ),
    KEYS, VERSIONS, CLIENTS, BODIES, st.integers(0, 99),
)  # fmt: skip


@given(st.lists(REQUESTS, min_size=1, max_size=6))
def test_request_headers(frames: list[bytes]) -> None:
    headers, spaces = headers_in(*(sent_request(frame, 1) for frame in frames))
    read = read_request_headers(headers, spaces)
    for index, frame in enumerate(frames):
        start = int(headers.start[index])
        is_readable = bool(read.known[index]) and read.body[index] <= headers.end[index]
        assert not read.client_id_is_cut[index]
        reader = BodyReader(frame)
        try:
            request_header(reader)
        except DecodeError:
            assert not is_readable
            continue
        assert is_readable
        assert read.body[index] - start == reader.at
        client = next((e.value for e in reader.events if e.name == "client_id"), None)
        length = int(read.client_id_length[index])
        assert (length < 0) == (client is None)
        if client is not None:
            begin = int(read.client_id[index]) - start
            assert frame[begin : begin + length].decode("utf-8", "backslashreplace") == client


@pytest.mark.parametrize(
    ("readable", "known", "is_cut", "length"),
    [(7, False, False, -1), (9, True, False, -1), (10, True, True, 0), (12, True, True, 2),
     (16, True, False, 6)],
)  # fmt: skip
def test_a_request_that_is_cut(readable: int, known: bool, is_cut: bool, length: int) -> None:
    frame = b"\0\3\0\1\0\0\0\7" + text("client") + b"\0\0\0\0"
    headers, spaces = headers_in(SentFrame(0, True, frame, 1, readable))
    read = read_request_headers(headers, spaces)
    assert (read.known[0], read.client_id_is_cut[0]) == (known, is_cut)
    assert read.client_id_length[0] == length
    assert (read.body[0] > headers.end[0]) == is_cut


RESPONSES = st.tuples(
    KEYS, VERSIONS.filter(lambda version: version >= 0),
    st.builds(lambda body, size: (bytes(4) + body)[:size], BODIES, st.integers(0, 99)),
)  # fmt: skip


@given(st.lists(RESPONSES, min_size=1, max_size=6))
def test_response_headers(responses: list[tuple[int, int, bytes]]) -> None:
    headers, spaces = headers_in(*(sent_response(frame, 1) for _, _, frame in responses))
    keys, versions = (np.array(each) for each in list(zip(*responses, strict=True))[:2])
    version, body = response_bodies(headers, spaces, keys, versions)
    for index, (key, requested, frame) in enumerate(responses):
        reader = BodyReader(frame)
        try:
            layout = response_header(reader, key, requested)
        except DecodeError:
            continue
        assert version[index] == layout.version
        assert body[index] - headers.start[index] == reader.at
