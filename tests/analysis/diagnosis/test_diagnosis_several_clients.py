"""Rules on made rows: one finding for several clients with the same cause."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from analysis.diagnosis import case
from analysis.diagnosis.rule import Finding
from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of
from tests.analysis.diagnosis.test_diagnosis_growing_lag import slow_group
from tests.analysis.made_rows import (
    MS,
    SECOND,
    START,
    connection,
    error,
    exchange_at,
)

Row = dict[str, Any]


def _reconnects(counts: dict[str, int], hosts: dict[str, str]) -> list[Finding]:
    """Each client opens a connection each second, for one request."""
    links, requests = [], []
    for place, (name, count) in enumerate(counts.items()):
        for n in range(count):
            time, number = START + n * SECOND, 1000 * place + n
            host = {"client_ip": hosts.get(name, "10.0.0.1"), "connection_id": number}
            links.append(
                connection(first_time=time, last_time=time + SECOND // 2, closed="fin", **host)
            )
            requests.append(exchange_at(time, client_id=name, **host))
    return findings_of("connection_churn", made(exchanges=requests, connections=links))


def test_clients_that_reconnect_are_one_finding() -> None:
    (churn,) = _reconnects({"a": 25, "b": 61, "c": 5}, {})
    assert churn.sentence == "2 clients (`b`, `a`) on 10.0.0.1 opened 86 connections in 60 s"
    assert churn.clients == ("b", "a")
    assert churn.numbers["connections"] == 61
    assert "Reconnects: 84. Most: client `b` on 10.0.0.1, with 60." in churn.evidence
    assert "Requests: 86, 1.0 for each" in churn.evidence
    assert (churn.requests, churn.first_time) == (86, START)
    assert churn.last_time == START + 60 * SECOND


def test_hosts_of_clients_that_reconnect_are_named() -> None:
    (churn,) = _reconnects({"a": 25, "b": 30}, {"b": "10.0.0.2"})
    assert churn.sentence.startswith("2 clients (`b`, `a`) on 2 hosts (10.0.0.2, 10.0.0.1) opened")


def _metadata(counts: dict[str, int], errors: dict[str, str]) -> list[Finding]:
    """Each client requests metadata ten times a second; some get errors about a new topic."""
    exchanges, failed = [], []
    for place, (name, count) in enumerate(counts.items()):
        for n in range(count):
            own = {"client_id": name, "connection_id": place, "correlation_id": n}
            time = START + n * SECOND // 10
            exchanges.append(exchange_at(time, **own))
            if name in errors:
                own |= {"error": "LEADER_NOT_AVAILABLE", "error_code": 5}
                failed.append(error(time=time, topic=errors[name], **own))
    links = [connection(connection_id=place) for place in range(len(counts))]
    return findings_of(
        "metadata_storm", made(exchanges=exchanges, errors=failed, connections=links)
    )


def test_metadata_storms_with_the_same_cause_are_one_finding() -> None:
    counts = {"a": 50, "b": 60, "lost": 70, "gone": 55, "calm": 49}
    missing, loop = _metadata(counts, {"lost": "t", "gone": "u"})
    assert loop.sentence == (
        "2 clients (`b`, `a`) request metadata up to 60 times each within ten seconds"
    )
    assert loop.evidence == "110 Metadata requests from 10.0.0.1."
    assert (loop.clients, loop.requests) == (("b", "a"), 110)
    assert missing.clients == ("lost", "gone")
    assert "125 responses have an error about 2 topics (`t`, `u`)." in missing.evidence
    assert missing.cause != loop.cause


def _queued(numbers: dict[str, int]) -> list[Finding]:
    """Of each client, a request that takes 10 s, and others that wait for its end."""
    end, rows = START + 10 * SECOND, []
    for place, (name, number) in enumerate(numbers.items()):
        own = {"client_id": name, "connection_id": place}
        rows.append(exchange_at(START, end, latency_ms=10_000.0, **own))
        rows += [
            exchange_at(START + n * SECOND // 10, end + n * MS, correlation_id=10 + n,
                        latency_ms=10_000.0 - 99 * n, **own)
            for n in range(1, number)
        ]  # fmt: skip
    return findings_of("queueing", made(exchanges=rows))


def test_clients_whose_requests_queue_are_one_finding() -> None:
    alone = {name: _queued({name: number})[0] for name, number in {"a": 60, "b": 90}.items()}
    (queueing,) = _queued({"a": 60, "b": 90, "c": 40})
    assert queueing.sentence.startswith("2 clients (`b`, `a`) delay their own requests: ")
    assert "150 requests (Metadata) waited 6.1 s each on average" in queueing.evidence
    assert "Most: 90 Metadata requests of client `b`, with" in queueing.evidence
    assert queueing.numbers == alone["b"].numbers
    assert queueing.requests == 150
    assert queueing.last_time == alone["b"].last_time


def _fetches(sizes: dict[str, tuple[int, int]]) -> list[Finding]:
    """60 Fetches a second of each client: their number, and the size of each response."""
    rows = [
        exchange_at(
            START + n * SECOND // 60, api="Fetch", api_key=1, correlation_id=n, topics=["t"],
            client_id=name, connection_id=place, max_wait_ms=2, min_bytes=1, record_bytes=size,
        )
        for place, (name, (number, size)) in enumerate(sizes.items())
        for n in range(number)
    ]  # fmt: skip
    return findings_of("fetches", made(exchanges=rows))


def test_consumers_that_fetch_too_often_for_the_same_reason_are_one_finding() -> None:
    sizes = {"a": (200, 0), "b": (300, 0), "small": (400, 500), "large": (300, 5000)}
    findings = {each.severity: each for each in _fetches(sizes)}
    assert findings["warning"].sentence == (
        "2 clients (`b`, `a`) get mostly empty responses to their fetches: "
        "up to 60 requests a second each"
    )
    assert findings["warning"].evidence == (
        "500 Fetches. Most: client `b`, with 300. 100 % of the responses have no records. "
        "The broker waited 2 ms for them (median). fetch.max.wait.ms of the requests: 2; "
        "fetch.min.bytes: 1."
    )
    assert findings["warning"].requests == 500
    assert findings["note"].clients == ("small",)
    assert "Most" not in findings["note"].evidence


def test_the_topics_of_a_group_that_falls_behind_are_one_finding() -> None:
    """The second topic gets ten times as many records."""
    tables = slow_group()
    (alone,) = findings_of("growing_lag", made(**tables))
    tables["partitions"] += [
        row | {"topic": "u"} | {
            name: 10 * row[name] for name in ("offset", "last_offset")
            if row["api"] != "OffsetCommit" and row[name]
        }
        for row in tables["partitions"]
    ]  # fmt: skip
    (both,) = findings_of("growing_lag", made(**tables))
    assert both.sentence == "Group `g` falls behind in 2 topics (`u`, `t`)"
    assert "Lag of partition 0 of topic `u` at the end" in both.evidence
    assert "It grows in 2 partitions of these 2 topics." in both.evidence
    assert both.numbers["topic"] == "u"
    assert (both.requests, both.cause) == (alone.requests, alone.cause)


def test_clients_without_sasl_are_one_finding_for_each_broker() -> None:
    """The broker closes each connection at the first request after ApiVersions."""
    links, rows = [], []
    for n, (name, port) in enumerate([("a", 9092)] * 3 + [("b", 9092)] * 4 + [("c", 9093)] * 3):
        own = {"connection_id": n, "broker_port": port}
        times = {"first_time": START + n * SECOND, "last_time": START + n * SECOND + 9 * MS}
        links.append(connection(closed="fin", **times, **own))
        sent = {"client_id": name, **own}
        rows.append(exchange_at(START + n * SECOND, api="ApiVersions", api_key=18, **sent))
        rows.append(
            exchange_at(
                START + n * SECOND + MS, api=("Metadata", "Produce")[name == "b"],
                status="unanswered", correlation_id=8, **sent,
            )
        )  # fmt: skip
    both, alone = findings_of("no_response", made(exchanges=rows, connections=links))
    assert both.sentence == (
        "10.0.0.9:9092 closes all connections of 2 clients (`b`, `a`) after ApiVersions"
    )
    assert both.evidence.startswith(
        "7 connections without SASL ended at the first other request (Metadata, Produce)."
    )
    assert (both.clients, both.requests) == (("b", "a"), 7)
    assert alone.sentence.startswith("10.0.0.9:9093 closes all connections of client `c` after")


@pytest.mark.parametrize("rule", ["connection_churn", "metadata_storm", "plain_credentials"])
def test_rows_of_clients_without_a_finding_are_not_converted(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These rules read an answer with a row for each client; a dict takes a kilobyte."""
    links = [connection(connection_id=n, client_ip=f"10.0.1.{n}") for n in range(20)]
    requests = [
        exchange_at(START, connection_id=n, client_ip=f"10.0.1.{n}", client_id=f"app{n}")
        for n in range(20)
    ]
    convert = case.row_dicts
    converted: list[Row] = []

    def counted(table: pa.Table) -> list[Row]:
        converted.extend(rows := convert(table))
        return rows

    monkeypatch.setattr(case, "row_dicts", counted)
    assert not findings_of(rule, made(exchanges=requests, connections=links))
    assert not converted
