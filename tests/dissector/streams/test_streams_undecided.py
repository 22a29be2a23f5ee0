"""Time and memory that connections take while their protocol is undecided."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from dissector.streams import Streams
from dissector.streams.detection import detector as detection
from dissector.streams.limits import SEEK_BYTES
from dissector.streams.search import request_evidence
from dissector.streams.search.request_evidence import IMPOSSIBLE
from tests.dissector.streams.dialogue import NEWEST, Dialogue, body_end, dissect, request, response


def test_zeros_take_little_memory() -> None:
    """Each byte of zeros may begin a request, by the bytes that hardly vary between requests."""
    dialogue, connection = Dialogue.connected(handshake=False)
    connection.broker(response(0))
    for _ in range(32):
        connection.client(bytes(SEEK_BYTES))
    tracemalloc.start()
    try:
        assert dissect(dialogue.packets).frames == []
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("before", [-20, -8, -3, -1, 0, 1])
def test_a_request_is_found_wherever_a_part_of_the_search_ends(before: int) -> None:
    """The requests begin inside a segment. Only their responses show that they are requests."""
    dialogue, requests = Dialogue(), [request(3, 1, number, bytes(60)) for number in range(7, 10)]
    connection = dialogue.connect(handshake=False)
    connection.client(b"\xff" * (SEEK_BYTES + before) + b"".join(requests))
    for number in range(7, 10):
        connection.broker(response(number, bytes(40)))
    assert dissect(dialogue.packets).messages()[0] == [each[4:] for each in requests]


@pytest.mark.parametrize("is_answered", [True, False])
def test_calls_do_not_grow_with_undecided_connections(
    monkeypatch: pytest.MonkeyPatch, is_answered: bool
) -> None:
    """Their requests cannot be decoded."""
    calls, verdicts = [], detection.verdicts

    def counted(*arguments: Any) -> Any:
        calls.append(len(arguments[2]))
        return verdicts(*arguments)

    monkeypatch.setattr(detection, "verdicts", counted)
    counts = []
    for connections in (300, 1200):
        dialogue = Dialogue()
        for _ in range(connections):
            connection = dialogue.connect(handshake=False)
            connection.client(request(3, 1, 5))
            if is_answered:
                connection.broker(response(5))
        calls.clear()
        streams = Streams(
            ports=(9092,), newest=NEWEST, evidence=lambda *_: IMPOSSIBLE, body_end=body_end
        )
        dissect(dialogue.packets, streams=streams)
        counts.append(len(calls))
    assert counts[1] <= counts[0] + 4


def test_the_number_of_connections_of_an_endpoint() -> None:
    """Counted all at once after `MOST_SCANS` scans of the table, to the same result."""
    dialogue = Dialogue()
    for number in (1, 2, 2, 3, 3, 3):
        dialogue.connect(
            client=f"10.0.0.{number}", port=number, isn=(1000 * len(dialogue.packets), 5)
        )
    streams = Streams(ports=[], newest=NEWEST, body_end=body_end)
    dissect(dialogue.packets, streams=streams)
    table = streams.connections
    scorer = request_evidence.RequestScorer(table, None, None, None, None)  # type: ignore[arg-type]
    scanned = [[scorer._connections_of(row, end) for end in (0, 1)] for row in range(table.count)]
    np.testing.assert_array_equal(scanned, [[1, 6], *[[2, 6]] * 2, *[[3, 6]] * 3])
    np.testing.assert_array_equal(scanned, request_evidence._endpoint_counts(table))


@pytest.mark.parametrize("cuts", [(), (9,), range(200)])
@pytest.mark.parametrize(("port", "begin", "gaps"), [
    (8080, b"GET / HTTP/1.1\r\n\r\n", 0),
    (8080, b"\x16\x03\x01\0\x05\2\0\0\1\0", 0),
    (9092, request(3, 1, 0), 2),
    (9092, b"", 2),
])  # fmt: skip
def test_gaps_are_reported_unless_another_protocol_is_recognised(
    port: int, begin: bytes, gaps: int, cuts
) -> None:
    dialogue, connection = Dialogue.connected(broker=(9, port), handshake=bool(begin))
    connection.client(begin or bytes(100))
    for number in range(40):
        connection.broker(response(number, bytes(100)), sent=number not in (20, 30))
        dialogue.wait(100)
        connection.packet(0)
    out = dissect(dialogue.packets, cuts=cuts)
    assert [each.kind for each in out.problems].count("lost_bytes") == gaps
