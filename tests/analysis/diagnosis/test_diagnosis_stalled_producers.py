"""Rules on made rows: producers that wait for a follower that is not in the capture."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of
from tests.analysis.made_rows import MS, SECOND, START, connection, exchange_at, partition

WAIT_S = 12


def tables(
    *,
    waits: int = 2,
    starts: bool = False,
    refuses: bool = False,
    fetches: range = range(WAIT_S),
    denied: int | None = None,
    **columns: Any,
) -> Any:
    """Producers whose requests take 10 ms, and then 12 s. Meanwhile, the broker responds to a
    consumer in these seconds.

    `starts`: these are the first requests of the producers. `refuses`: another broker refuses a
    connection meanwhile. `denied`: a follower without the right to fetch.
    """
    rows = []
    for n in range(waits):
        produce: dict[str, Any] = {"api": "Produce", "client_id": f"shop-{n}", "connection_id": n}
        produce |= columns
        if not starts:
            rows.append(exchange_at(START, START + 10 * MS, **produce))
        late = START + SECOND
        times = {"correlation_id": 8, "latency_ms": WAIT_S * 1000.0}
        rows.append(exchange_at(late, late + WAIT_S * SECOND, **times, **produce))
    rows += [
        exchange_at(at, at + MS, api="Fetch", client_id="reader", connection_id=9, max_wait_ms=500)
        for at in (START + (n + 1) * SECOND + 100 * MS for n in fetches)
    ]
    end = START + 20 * SECOND
    links = [connection(connection_id=n, last_time=end) for n in (*range(waits), 9)]
    if refuses:
        attempt = {"handshake_rtt_ms": None, "closed": "rst", "protocol": "unknown"}
        attempt |= {"client_packets": 1, "broker_packets": 1, "client_bytes": 0, "broker_bytes": 0}
        for n in (10, 11):
            at = START + n // 2 * SECOND + n * MS
            times = {"first_time": at, "last_time": at + MS, "connection_id": n}
            links.append(connection(broker_ip="10.0.0.8", **times, **attempt))
    refused = partition("Fetch", replica_id=denied) | {"error": "TOPIC_AUTHORIZATION_FAILED"}
    return made(exchanges=rows, connections=links, partitions=[refused])


def test_producers_that_wait_for_a_follower_at_a_broker_that_serves_others() -> None:
    (finding,) = findings_of("late_followers", tables())
    assert finding.sentence == (
        "Produce requests with acks=all waited up to 12.0 s at 10.0.0.9:9092, which responded to "
        "other requests meanwhile"
    )
    assert finding.evidence.startswith("2 requests of 2 clients (`shop-0`, `shop-1`) waited.")
    assert "10.0.0.9:9092 sent 12 responses to later requests" in finding.evidence
    assert finding.cause.startswith("a follower of these partitions did not fetch")
    assert finding.first_time == START + SECOND


@pytest.mark.parametrize(
    "changed",
    [
        {"waits": 1},
        {"starts": True},
        {"refuses": True},
        {"denied": 2},
        {"acks": 1},
        {"throttle_time_ms": 12_000},
        {"fetches": range(5)},
        {"fetches": range(0)},
    ],
    ids=[
        "one",
        "start",
        "another broker is down",
        "denied",
        "acks=1",
        "quota",
        "broker paused",
        "no other requests",
    ],
)
def test_producers_that_wait_for_another_reason(changed: dict[str, Any]) -> None:
    assert findings_of("late_followers", tables(**changed)) == []
