"""The log of requests, and the ends of bodies."""

from __future__ import annotations

import numpy as np
import pytest

from dissector.errors import DecodeError, UnknownVersion
from dissector.protocol.body_end import body_end
from dissector.streams.search.bodies import LOG_ENTRIES, RequestLog, key_of
from tests.dissector.streams.dialogue import (
    Dialogue,
    dissect,
    framed,
    request,
    response,
    sasl_request,
    sasl_response,
)

FETCH_V4, METADATA_V1 = 1 << 16 | 4, 3 << 16 | 1


def log_of(*requests: tuple[int, int, int]) -> RequestLog:
    log = RequestLog()
    for stream, correlation, kind in requests:
        log.add(key_of(np.array([stream]), np.array([correlation])), np.array([kind], np.int32))
    return log


def test_the_requests_with_an_id_are_found() -> None:
    log = log_of((2, 7, METADATA_V1), (4, 7, FETCH_V4), (2, 7, FETCH_V4), (2, 8, METADATA_V1))
    assert log.find(2, 7) == [(1, 4), (3, 1)]
    assert log.find(2, 8) == [(3, 1)]
    assert log.find(4, 8) == []
    assert log.find(3, 7) == []


def test_ids_may_be_negative() -> None:
    log = log_of((2, -7, METADATA_V1))
    assert log.find(2, -7) == [(3, 1)]


def test_the_requests_of_forgotten_connections_are_forgotten() -> None:
    log = log_of((2, 7, METADATA_V1), (4, 7, METADATA_V1))
    log.forget(np.array([1]))
    assert log.find(2, 7) == []
    assert log.find(4, 7) == [(3, 1)]


@pytest.mark.parametrize("parts", [16, 1000])
def test_the_log_is_bounded(parts: int) -> None:
    log = RequestLog()
    count = LOG_ENTRIES // parts
    blocks = 3 * parts + 100
    for block in range(blocks):
        keys = key_of(np.full(count, 2), block * count + np.arange(count))
        log.add(keys, np.full(count, METADATA_V1, np.int32))
    assert log.find(2, blocks * count - 1) == [(3, 1)]
    assert log.find(2, blocks * count - LOG_ENTRIES) == [(3, 1)]
    assert log.find(2, 0) == []


def test_the_end_of_a_body() -> None:
    message = request(3, 1, 7, b"\0\0\0\1\0\5topic")[4:]
    for length in range(8, len(message)):
        assert body_end(message[:length], len(message) + 100) >= len(message), length
    assert body_end(message, len(message)) == len(message)
    assert body_end(message + bytes(100), len(message) + 100) == len(message)


def test_a_body_that_is_longer_than_the_size() -> None:
    message = request(3, 1, 7, b"\0\0\0\1\0\5topic")[4:]
    with pytest.raises(DecodeError):
        body_end(message[:20], len(message) - 3)
    with pytest.raises(UnknownVersion):
        body_end(request(3, 99, 7)[4:], 100)


def test_a_message_inside_an_unknown_body_is_not_parsed_before_the_end() -> None:
    """Before the stream ends, no evidence contradicts the size."""
    dialogue, connection = Dialogue.connected()
    for number in range(3):
        connection.exchange(request(3, 1, number, b"\xff\xff\xff\xff"), response(number, bytes(8)))
    outer = request(90, 15, 3, bytes(400))
    inner = request(3, 1, 4, b"\xff\xff\xff\xff")
    connection.client(outer[:100])
    connection.client(inner + outer[100 + len(inner) : 300])
    connection.client(outer[300:])
    cuts = range(1, len(dialogue.packets))
    requests = dissect(dialogue.packets, cuts=cuts).messages()[0]
    assert len(requests) == 4
    assert len(requests[3]) == len(outer) - 4


def test_a_response_that_fits_one_of_several_requests_with_its_id() -> None:
    """A client that always sends 0 has two requests in flight; the second one has version 1."""
    inner = framed(sasl_response(0, b"\0you")[4:] + bytes(8))
    outer = sasl_response(0, bytes(100) + inner + bytes(100))
    start = outer.index(inner)
    dialogue, connection = Dialogue.connected()
    connection.client(sasl_request(0, b"\0me"))
    connection.exchange(request(36, 1, 0, b"\0\0\0\3\0me"), outer[:start])
    connection.broker(outer[start : start + len(inner)])
    cut = len(dialogue.packets)
    connection.broker(outer[start + len(inner) :])
    connection.broker(inner)
    out = dissect(dialogue.packets, cuts=[cut])
    assert out.messages()[1] == [outer[4:], inner[4:]]
