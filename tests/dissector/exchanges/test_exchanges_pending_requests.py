"""Requests that wait for responses in later blocks."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from dissector.exchanges.pending_requests import PendingRequests
from tests.dissector.exchanges.exchange_frames import (
    SentFrame,
    response,
    sent_request,
    sent_response,
)
from tests.dissector.exchanges.test_exchanges_correlator import CorrelatorTest, heartbeat, produce

BLOCKS = 64


@pytest.mark.parametrize("acks", [0, 1])
def test_requests_without_a_response_are_copied_a_few_times(
    acks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another connection has responses in each block."""
    copied = 0
    join = PendingRequests._joined

    def counted(self: PendingRequests, tables: list[pa.Table]) -> pa.Table:
        nonlocal copied
        copied += sum(map(len, tables)) * (len(tables) > 1)
        return join(self, tables)

    monkeypatch.setattr(PendingRequests, "_joined", counted)
    test, rows, seen = CorrelatorTest(), [], 0
    feed = test.correlator.feed

    def watched(*arguments: Any, **options: Any) -> Any:
        nonlocal seen
        result = feed(*arguments, **options)
        seen += len(result.requests)
        return result

    monkeypatch.setattr(test.correlator, "feed", watched)
    for number in range(BLOCKS):
        rows += test.feed(
            sent_request(produce(number, acks), number),
            sent_request(heartbeat(number), number, 1),
            sent_response(response(number - 1, b"\0\0"), number, 1),
        )
    assert seen < 4 * BLOCKS
    assert copied < 2 * BLOCKS * BLOCKS.bit_length()
    assert test.correlator.in_flight == BLOCKS + 1
    rows += test.feed(sent_request(heartbeat(BLOCKS), BLOCKS, 1), last=True)
    assert [row["correlation_id"] for row in rows if row["api"] == "Produce"] == [*range(BLOCKS)]


@pytest.mark.parametrize("seed", range(2))
def test_rows_do_not_depend_on_blocks(seed: int) -> None:
    chance = random.Random(seed)
    sent: list[SentFrame] = []
    for number in range(90):
        connection, kind = chance.randrange(6), chance.random()
        message = produce(number, acks=0) if kind < 0.3 else heartbeat(number)
        sent.append(sent_request(message, number, connection))
        if 0.3 <= kind < 0.9:
            at = number + chance.choice([1, 2, 30])
            sent.append(sent_response(response(number, b"\0\0"), at, connection))
    sent.sort(key=lambda each: each.ms)
    rows = []
    for size in (len(sent), 2, 20):
        test, parts = CorrelatorTest(), []
        for begin in range(0, len(sent), size):
            parts += test.feed(*sent[begin : begin + size])
        parts += test.feed(sent_request(heartbeat(90), 200, 5), last=True)
        for row in parts:
            del row["request_packet"], row["response_packet"]  # numbers within the block
        rows.append(sorted(parts, key=lambda row: row["correlation_id"]))
    assert len(rows[0]) == 91
    assert rows[1:] == rows[:1] * 2
