"""Rules on made rows: connections in quick succession, and requests without a response."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from analysis.diagnosis.run import DIAGNOSIS_TABLES
from analysis.input.filters import Filter
from tests.analysis.answering import capture, made
from tests.analysis.diagnosis.diagnosing import findings_of, rules
from tests.analysis.made_rows import MS, SECOND, START, connection, error, exchange, exchange_at


def test_an_idle_connection_does_not_hide_reconnects() -> None:
    """The last of 84 connections in 5 s stays open for an hour without requests."""
    tables = capture("kafka-4-misused", DIAGNOSIS_TABLES)
    tables = Filter(client=["reconnecting"]).apply(tables)
    links = tables["connections"]
    latest = links["first_time"] == links["first_time"].max()
    ends = links["last_time"].mask(latest, links["last_time"] + pd.Timedelta(hours=1))
    tables = {**tables, "connections": links.assign(last_time=ends)}
    (churn,) = findings_of("connection_churn", tables)
    assert churn.sentence == "Client `reconnecting` on 127.0.0.1 opened 84 connections in 5 s"


@pytest.mark.parametrize(
    ("size", "answered", "end", "expected"),
    [
        (500_000, 8_000, "fin", ["no_response"]),
        (500_000, 8_000, "rst", ["no_response"]),
        (500_000, 600_000, "fin", ["connection_churn"]),
        (90_000, 8_000, "fin", ["connection_churn"]),
    ],
    ids=["too large", "reset", "not too large", "small"],
)
def test_requests_that_are_too_large_for_the_broker(
    size: int, answered: int, end: str, expected: list[str]
) -> None:
    """A broker with socket.request.max.bytes below the request closes the connection at once."""
    times = [START + n * SECOND // 4 for n in range(30)]
    links = [
        connection(connection_id=n, first_time=time, last_time=time + 20_000_000, closed=end)
        for n, time in enumerate(times)
    ]
    rows = [exchange(client_id="other", api="Produce", connection_id=99, request_bytes=answered)]
    rows += [
        exchange_at(time, api="Produce", connection_id=n, request_bytes=size, status="unanswered")
        for n, time in enumerate(times)
    ]
    links.append(connection(connection_id=99))
    names = ("no_response", "connection_churn")
    assert rules(*names, exchanges=rows, connections=links) == expected


@pytest.mark.parametrize(
    ("idle_ms", "closed", "status", "setting"),
    [
        (1000, "fin", "answered", "connections.max.idle.ms"),
        (999, "fin", "answered", None),
        (1000, "rst", "answered", None),
        (1000, "fin", "unanswered", None),
    ],
    ids=["idle", "busy", "reset", "waits"],
)
@pytest.mark.parametrize("name", ["it's", "", None])
def test_connections_that_are_closed_while_they_are_idle(
    idle_ms: int, closed: str, status: str, setting: str | None, name: str | None
) -> None:
    """A broker whose connections.max.idle.ms is shorter than the pauses of its client."""
    times = [START + 2 * n * SECOND for n in range(30)]
    links = [
        connection(connection_id=n, first_time=time, last_time=time + idle_ms * MS, closed=closed)
        for n, time in enumerate(times)
    ]
    rows = [
        exchange_at(time, connection_id=n, client_id=name, status=status)
        for n, time in enumerate(times)
    ]
    (churn,) = findings_of("connection_churn", made(exchanges=rows, connections=links))
    assert churn.setting == setting
    expected = "30 connections carried no message for 1.0 s" if setting else "with a reset: "
    assert expected in churn.evidence


def test_hosts_that_share_a_client_id_are_separate_clients() -> None:
    """One opens a connection each second for 30 s, the other one uses a single one for an hour."""
    hosts = {"10.0.0.1": range(30), "10.0.0.2": [3600]}
    links = [
        connection(
            connection_id=number, client_ip=host, first_time=START + seconds * SECOND,
            last_time=START + seconds * SECOND + SECOND // 2,
        )
        for host, times in hosts.items() for number, seconds in enumerate(times, 100 * len(times))
    ]  # fmt: skip
    requests = [
        exchange_at(
            link["first_time"], connection_id=link["connection_id"], client_ip=link["client_ip"]
        )
        for link in links
    ]
    (churn,) = findings_of("connection_churn", made(exchanges=requests, connections=links))
    assert churn.sentence == "Client `app` on 10.0.0.1 opened 30 connections in 29 s"
    assert churn.numbers["client_ip"] == "10.0.0.1"
    assert "Requests: 30, 1.0 for each connection" in churn.evidence


@pytest.mark.parametrize(
    ("retriable", "after_ms", "count"),
    [(False, 0, 0), (False, 999, 0), (False, 1000, 1), (True, 0, 1)],
)
def test_a_client_that_starts_anew_after_each_error(
    retriable: bool, after_ms: int, count: int
) -> None:
    """The rule recurring_errors reports the error."""
    times = [START + n * SECOND * 2 for n in range(30)]
    links = [
        connection(connection_id=n, first_time=time, last_time=time + after_ms * 10**6)
        for n, time in enumerate(times)
    ]
    requests = [exchange(connection_id=n, request_time=time) for n, time in enumerate(times)]
    errors = [
        error(connection_id=n, time=time, error="GROUP_AUTHORIZATION_FAILED", retriable=retriable)
        for n, time in enumerate(times)
    ]
    tables = made(exchanges=requests, connections=links, errors=errors)
    assert len(findings_of("connection_churn", tables)) == count


@pytest.mark.parametrize(
    ("changed", "link", "count"),
    [
        ({}, {}, 1),
        ({}, {"closed": None}, 0),  # the capture ended
        ({}, {"broker_lost_bytes": 9}, 0),
        ({"kind": "skipped_bytes"}, {}, 0),
        ({"time": START}, {}, 0),  # a request
    ],
)
@pytest.mark.parametrize("responses", [2, 3])
def test_responses_that_never_arrive(
    responses: int, changed: dict[str, Any], link: dict[str, Any], count: int
) -> None:
    row = {"stage": "frames", "kind": "cut_message", "detail": "x", "bytes": 900, "count": 1}
    requests, problems, links = [], [], []
    for n in range(responses):
        time = {"request_time": START, "response_time": START + SECOND}
        requests.append(exchange(connection_id=n, api="Fetch", response_bytes=1000, **time))
        problems.append(row | {"connection_id": n, "time": START + SECOND} | changed)
        links.append(connection(connection_id=n) | link)
    tables = made(exchanges=requests, problems=problems, connections=links)
    findings = findings_of("no_response", tables)
    assert len(findings) == (count if responses == 3 else 0)
    for finding in findings:
        assert "received 10 % of a response with 1.0 kB" in finding.evidence
        assert finding.numbers["missing_bytes"] == 900


@pytest.mark.parametrize(
    ("connections", "seconds", "fires"),
    [(2, 0, False), (3, 0, True), (1, 5, True)],
    ids=["killed", "killed again", "waited in vain"],
)
def test_several_requests_in_flight_on_a_connection_that_is_reset(
    connections: int, seconds: int, fires: bool
) -> None:
    """A producer has five requests in flight (max.in.flight.requests.per.connection)."""
    rows = [
        exchange(api="Produce", connection_id=link, correlation_id=n, status="unanswered")
        for link in range(connections) for n in range(5)
    ]  # fmt: skip
    end = START + seconds * SECOND
    links = [connection(connection_id=n, closed="rst", last_time=end) for n in range(connections)]
    assert len(findings_of("no_response", made(exchanges=rows, connections=links))) == fires


@pytest.mark.parametrize(
    ("api", "waits"), [("Produce", "acks=all"), ("OffsetCommit", "followers"), ("Metadata", "host")]
)
def test_the_broker_or_a_follower_hangs(api: str, waits: str) -> None:
    """A coordinator writes to its topic, and waits for followers, too."""
    rows = [exchange(api=api, correlation_id=n, status="unanswered") for n in range(3)]
    links = [connection(closed="fin", last_time=START + 40 * SECOND)]
    findings = findings_of("no_response", made(exchanges=rows, connections=links))
    assert [waits in each.cause for each in findings] == [True]


@pytest.mark.parametrize("acks", [1, None], ids=["acks=1", "truncated"])
def test_a_truncated_produce_request_may_expect_no_response(acks: int | None) -> None:
    """The snap length cuts the requests of a producer with acks=0 behind their header."""
    rows = [
        exchange(api="Produce", correlation_id=n, acks=acks, status="unanswered") for n in range(5)
    ]
    tables = made(exchanges=rows, connections=[connection(closed="fin")])
    assert len(findings_of("no_response", tables)) == (acks is not None)


@pytest.mark.parametrize(("sent_s", "count"), [(1, 0), (7, 0), (9, 1)])
def test_requests_that_a_throttled_connection_leaves_unread(sent_s: int, count: int) -> None:
    """The broker throttles the last response for 8 s (KIP-219)."""
    unanswered = {"status": "unanswered", "response_time": None, "latency_ms": None}
    at = START + sent_s * SECOND
    rows = [exchange(api="Produce", correlation_id=9, throttle_time_ms=8000)]
    rows += [
        exchange(api="Produce", correlation_id=n, request_time=at, request_end_time=at) | unanswered
        for n in range(5)
    ]
    links = [connection(closed="fin", last_time=START + 20 * SECOND)]
    assert len(findings_of("no_response", made(exchanges=rows, connections=links))) == count


@pytest.mark.parametrize(
    ("clients", "period_ms", "name", "changed", "count"),
    [
        (20, 100, "call-{}", {}, 1),
        (20, 100, "call-{}-550e8400-e29b", {}, 1),
        (19, 100, "call-{}", {}, 0),
        (20, 7000, "call-{}", {}, 0),
        (20, 100, "call-{}", {"closed": None}, 0),
        (20, 100, "call-{}", {"opened": False}, 0),
        (20, 100, "{letter}", {}, 0),
    ],
    ids=["many", "identifiers", "few", "rarely", "open", "earlier", "names"],
)
def test_a_client_for_each_operation_with_another_client_id(
    clients: int, period_ms: int, name: str, changed: dict[str, Any], count: int
) -> None:
    """Each has a connection for 50 ms."""
    starts = [START + n * period_ms * MS for n in range(clients)]
    rows = [
        exchange_at(start, connection_id=n, client_id=name.format(n, letter=chr(97 + n)))
        for n, start in enumerate(starts)
    ]
    links = [
        connection(connection_id=n, first_time=start, last_time=start + 50 * MS, **changed)
        for n, start in enumerate(starts)
    ]
    findings = findings_of("connection_churn", made(exchanges=rows, connections=links))
    assert [each.sentence for each in findings] == [
        "20 clients on 10.0.0.1, each with another client id, opened 20 connections and closed "
        "them within 10 s"
    ] * count
