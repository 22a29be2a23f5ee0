"""Quotas on made rows: the time for which clients are throttled, and its causes."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.diagnosis.run import DIAGNOSIS_TABLES
from analysis.input.filters import Filter
from tests.analysis.answering import capture, made
from tests.analysis.diagnosis.diagnosing import findings_of, times_of_clients
from tests.analysis.made_rows import MS, SECOND, START, connection, error, exchange, exchange_at


def test_a_request_that_a_quota_leaves_unread_takes_no_time_of_the_broker() -> None:
    """The second request is sent before the response that begins the wait of 500 ms (KIP-219)."""
    start, end = START + MS, START + SECOND // 2 + 7 * MS
    waiting = exchange_at(start, end, correlation_id=8, latency_ms=506.0, in_flight=2)
    link = connection() | {"client_rtt_ms": 0.5, "broker_rtt_ms": 0.0}
    rows = made(exchanges=[exchange(throttle_time_ms=500), waiting], connections=[link])
    (client,) = times_of_clients(rows)
    assert client["broker_ms"] == pytest.approx(2 + 5)
    assert client["queue_ms"] == pytest.approx(1 + 500)


def throttled(at_ms: int, **columns: Any) -> dict[str, Any]:
    """An exchange without a duration, which asks the client to wait for 500 ms."""
    return exchange_at(START + at_ms * MS, **{"throttle_time_ms": 500, **columns})


def test_a_client_of_a_quota_is_throttled_in_every_part_of_the_capture() -> None:
    """Each response asks `chatty` for one second. Its connection lasts longer than the part."""
    tables = capture("kafka-4-quotas", DIAGNOSIS_TABLES)
    start = tables["connections"]["first_time"].min().value
    part = Filter(client=["chatty"], since="17s", until="22s", start=start).apply(tables)
    (finding,) = findings_of("throttling", part)
    assert finding.severity == "critical"
    assert finding.sentence == "Client `chatty` spends 99 % of its time throttled by a quota"


@pytest.mark.parametrize(
    ("throttles", "cause"),
    [
        ([("Produce", 900), ("Produce", 800)], "producer_byte_rate or request_percentage"),
        ([("Produce", 1001)], "producer_byte_rate"),
        ([("Produce", 1000), ("Metadata", 200)], "request_percentage"),
        ([("Produce", 3000), ("Metadata", 200)], "producer_byte_rate, request_percentage"),
    ],
)
def test_the_quota_that_a_client_exceeds(throttles: list[tuple[str, int]], cause: str) -> None:
    """A throttle time of request_percentage is at most a second, and in all APIs (KIP-124)."""
    rows = [
        throttled(n * 5000, correlation_id=n, api=api, throttle_time_ms=wait)
        for n, (api, wait) in enumerate(throttles)
    ]
    (finding,) = findings_of("throttling", made(exchanges=rows, connections=[connection()]))
    assert finding.cause == f"the client exceeds {cause}"


def test_topics_that_a_controller_does_not_create_because_of_a_quota() -> None:
    refused = {"error": "THROTTLING_QUOTA_EXCEEDED", "error_code": 89, "api": "CreateTopics"}
    rows = [throttled(0, api="CreateTopics", throttle_time_ms=8000)]
    tables = made(exchanges=rows, errors=[error(**refused)], connections=[connection()])
    (finding,) = findings_of("throttling", tables)
    assert finding.evidence.endswith("1 request failed with THROTTLING_QUOTA_EXCEEDED.")


def test_the_time_in_a_quota_is_that_of_the_throttled_connections() -> None:
    """Ten instances with one client id wait at the same time, each for a tenth of its time."""
    rows = [
        throttled(at_ms, connection_id=n, throttle_time_ms=wait)
        for n in range(10)
        for at_ms, wait in ((0, 500), (5000, None))
    ]
    links = [connection(connection_id=n) for n in range(10)]
    (finding,) = findings_of("throttling", made(exchanges=rows, connections=links))
    assert finding.severity == "warning"
    assert finding.sentence == "Client `app` spends 10 % of its time throttled by a quota"


def test_a_client_that_does_not_wait_is_throttled_for_as_long() -> None:
    """The broker reads its next request when the throttle time of 4 of 5 s has passed (KIP-219)."""
    rows = [
        throttled(at_ms, correlation_id=at_ms, throttle_time_ms=wait)
        for at_ms, wait in ((0, 4000), (1000, 0), (5000, 0))
    ]
    tables = made(exchanges=rows, connections=[connection()])
    (finding,) = findings_of("throttling", tables)
    assert finding.sentence == "Client `app` spends 80 % of its time throttled by a quota"
    (client,) = times_of_clients(tables)
    assert client["quota_ms"] == pytest.approx(1000)


def test_waits_that_overlap_count_once() -> None:
    rows = [throttled(n, correlation_id=n) for n in range(2)] + [throttled(600, throttle_time_ms=0)]
    (client,) = times_of_clients(made(exchanges=rows, connections=[connection()]))
    assert client["quota_ms"] == pytest.approx(1 + 500)


@pytest.mark.parametrize(("client_ip", "quota_ms"), [("10.0.0.1", 500 + 100), ("10.0.0.2", 1000)])
def test_waits_of_a_host_at_two_brokers_count_once(client_ip: str, quota_ms: float) -> None:
    other = {"connection_id": 1, "broker_ip": "10.0.0.8", "client_ip": client_ip}
    rows = [throttled(0), throttled(100, **other), throttled(5000, throttle_time_ms=0, **other)]
    links = [connection(), connection(**other)]
    (client,) = times_of_clients(made(exchanges=rows, connections=links))
    assert client["quota_ms"] == pytest.approx(quota_ms)


def test_the_share_of_a_quota_is_that_of_all_hosts_with_the_client_id() -> None:
    """Each of 6 hosts waits for 1 of 25 s."""
    hosts = [{"connection_id": n, "client_ip": f"10.0.0.{n}"} for n in range(6)]
    links = [connection(last_time=START + 25 * SECOND, **host) for host in hosts]
    requests = [
        exchange(throttle_time_ms=ms, request_time=at, response_end_time=at + 1, **host)
        for host in hosts for ms, at in ((1000, START), (0, START + 25 * SECOND))
    ]  # fmt: skip
    (quota,) = findings_of("throttling", made(exchanges=requests, connections=links))
    assert quota.severity == "warning"
    assert quota.sentence == "Client `app` spends 4 % of its time throttled by a quota"
