"""Clients that stop at an error: `analysis.diagnosis.causes.stopped_clients`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of, rules
from tests.analysis.made_rows import SECOND, START, connection, error, exchange, exchange_at


@pytest.mark.parametrize(
    ("changed", "later", "end", "fires"),
    [
        ({}, {}, "fin", True),
        ({}, {"api": "PushTelemetry"}, "fin", True),
        ({}, {"api": "Metadata"}, "fin", False),
        ({}, {"api": "Fetch"}, "fin", False),
        ({}, {"api": "Fetch", "request_time": START + 5 * SECOND}, "fin", True),
        ({}, {}, None, False),
        ({"retriable": True}, {}, "fin", False),
        ({"error": "NOT_COORDINATOR"}, {}, "fin", False),
        ({"api": "JoinGroup", "error": "UNKNOWN_MEMBER_ID"}, {}, "fin", False),
        ({"api": "CreateTopics", "error": "TOPIC_ALREADY_EXISTS"}, {}, "fin", False),
        ({"api": "Heartbeat", "error": "FENCED_INSTANCE_ID"}, {}, "fin", True),
        ({"api": "Heartbeat", "error": "GROUP_AUTHORIZATION_FAILED"}, {}, "fin", False),
        ({"api": "CreateTopics", "error": "TOPIC_AUTHORIZATION_FAILED"}, {}, "fin", True),
        ({"api": "Metadata", "error": "TOPIC_AUTHORIZATION_FAILED"}, {}, "fin", True),
        ({}, {"api": "SaslAuthenticate"}, "fin", True),
    ],
    ids=["fatal", "last metrics", "it goes on", "it reads on", "end of the fetch session", "open",
         "retriable", "normal", "joins again", "admin client", "another instance", "heartbeat",
         "no permission", "no permission in Metadata", "another connection"],
)  # fmt: skip
def test_a_client_that_stops_at_an_error(
    changed: dict[str, Any], later: dict[str, Any], end: str | None, fires: bool
) -> None:
    row = error(
        time=START + SECOND, error_code=50, error="INVALID_TRANSACTION_TIMEOUT", retriable=False,
        api="InitProducerId",
    ) | changed  # fmt: skip
    rows = [exchange(api=row["api"], response_time=row["time"])]
    if later:
        rows.append(exchange(**{"request_time": START + 2 * SECOND, "correlation_id": 8} | later))
    tables = made(exchanges=rows, errors=[row], connections=[connection(closed=end)])
    findings = findings_of("recurring_errors", tables)
    assert len(findings) == fires
    ending = "the first is packet 5. The client stopped after it."
    assert all(each.evidence.endswith(ending) for each in findings)


@pytest.mark.parametrize(
    ("client", "seconds", "fires"), [("other", 10, True), ("other", 10, False), ("app", 11, False)]
)
def test_a_client_that_keeps_its_connection_and_is_silent_stopped(
    client: str, seconds: int, fires: bool
) -> None:
    """The capture continues for this time after the error, with requests of this client."""
    time = START + SECOND
    failed = error(
        time=time, error_code=53, error="TRANSACTIONAL_ID_AUTHORIZATION_FAILED", retriable=False,
        api="InitProducerId",
    )  # fmt: skip
    last = time + seconds * SECOND - (not fires)
    rows = [
        exchange(api="InitProducerId", response_time=time, response_end_time=time),
        exchange(client_id=client, connection_id=1, request_time=last, response_time=last,
                 response_end_time=last),
    ]  # fmt: skip
    connections = [connection(connection_id=n, closed=None) for n in (0, 1)]
    names = rules("recurring_errors", exchanges=rows, errors=[failed], connections=connections)
    assert names == ["recurring_errors"] * fires


def test_a_client_without_captured_requests_has_no_end() -> None:
    failed = error(
        time=START, error_code=50, error="INVALID_TRANSACTION_TIMEOUT", retriable=False,
        api="InitProducerId",
    )  # fmt: skip
    rows = [exchange(api="InitProducerId", request_time=None, request_end_time=None)]
    tables = made(exchanges=rows, errors=[failed], connections=[connection(closed="fin")])
    assert findings_of("recurring_errors", tables) == []


@pytest.mark.parametrize(
    ("count", "last", "stopped"),
    [(1, 30, "it."), (5, 30, "the last one."), (5, 9, "")],
    ids=["at once", "after retries", "the next one may follow"],
)
def test_a_client_that_stops_after_an_error(count: int, last: int, stopped: str) -> None:
    errors = [
        error(time=START + 2 * n * SECOND, api="JoinGroup", error="INCONSISTENT_GROUP_PROTOCOL",
              client_id="app", retriable=False, correlation_id=n)
        for n in range(count)
    ]  # fmt: skip
    tables = made(
        exchanges=[exchange(client_id="app"), exchange_at(START + last * SECOND, client_id="b")],
        errors=errors, connections=[connection(closed="fin")],
    )  # fmt: skip
    (finding,) = findings_of("recurring_errors", tables)
    assert finding.evidence.partition("stopped after ")[2] == stopped
