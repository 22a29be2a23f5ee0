"""The rule about small batches on made rows: one finding for producers with the same cause."""

from __future__ import annotations

from typing import Any

from analysis.diagnosis.rule import Finding
from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of
from tests.analysis.made_rows import MS, START, exchange

Row = dict[str, Any]


def _batches(
    client_id: str, number: int, *, topic: str = "t", records: int = 1, connection_id: int = 0
) -> list[Row]:
    """Batches of a producer, one every ms."""
    return [
        {
            "connection_id": connection_id, "correlation_id": n, "time": START + n * MS,
            "request_time": START + n * MS, "api": "Produce", "client_id": client_id,
            "topic": topic, "partition": 0, "record_count": records, "bytes": 80 * records,
            "batch_index": 0, "error_code": 0,
        }
        for n in range(number)
    ]  # fmt: skip


def _findings(batches: list[Row], in_flight: dict[str, int] | None = None) -> list[Finding]:
    numbers = {row["client_id"]: (in_flight or {}).get(row["client_id"], 5) for row in batches}
    sent = [
        exchange(api="Produce", client_id=name, in_flight=number)
        for name, number in numbers.items()
    ]
    tables = made(exchanges=sent, batches=batches, decompressed_batches=batches)
    return findings_of("small_batches", tables)


def test_producers_with_the_same_cause_are_one_finding() -> None:
    counts = {"a": 100, "b": 130, "c": 120, "d": 110, "e": 105, "f": 99}
    (finding,) = _findings([
        row
        for place, (name, count) in enumerate(counts.items())
        for row in _batches(name, count, connection_id=place)
    ])  # fmt: skip
    assert finding.sentence == (
        "5 clients (`b`, `c`, `d`, `e` and 1 more) send batches of 1 record to topic `t` in quick "
        "succession"
    )
    assert finding.clients == ("b", "c", "d", "e", "a")
    assert finding.numbers["client_id"] == "b"
    assert "Most: client `b` and topic `t`, with 130 batches" in finding.evidence
    assert finding.requests == 100 + 130 + 120 + 110 + 105


def test_a_client_that_waits_for_responses_has_a_finding_of_its_own() -> None:
    batches = [*_batches("a", 100), *_batches("b", 100, connection_id=1)]
    fast, waiting = _findings(batches, in_flight={"b": 1})
    assert (fast.subject, waiting.subject) == ("client `a`", "client `b`")
    assert fast.cause != waiting.cause


def test_the_topics_of_a_client_are_one_finding() -> None:
    """Its requests may have batches for both of them."""
    both = [*_batches("a", 100), *_batches("a", 120, topic="u", records=3)]
    (finding,) = _findings(both)
    assert finding.sentence == (
        "Client `a` sends batches of 1 to 3 records to 2 topics (`u`, `t`) in quick succession"
    )
    assert finding.requests == 120


def test_the_messages_of_a_request_are_one_batch() -> None:
    """Before Kafka 0.11, each record is a message with a header of its own."""
    batches = [
        row | {"magic": 0, "time": START + at * 500 * MS, "correlation_id": at}
        for at in range(30)
        for row in _batches("a", 10)
    ]
    assert _findings(batches) == []
    (finding,) = _findings([row | {"magic": 0} for row in _batches("a", 100)])
    assert "100 batches" in finding.evidence
