"""Requests that a broker does not know: only repeated ones are a finding."""

from __future__ import annotations

import pytest

from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of
from tests.analysis.made_rows import SECOND, START, connection, exchange, exchange_at


@pytest.mark.parametrize("apart", [1, 0], ids=["one after the other", "the broker is killed"])
def test_connections_that_end_at_a_request(apart: int) -> None:
    rows, links = [], []
    for number in range(3):
        time = START + number * apart * SECOND
        refused = exchange_at(time, api="JoinGroup", connection_id=number, status="unanswered")
        rows += [exchange(api="Metadata", connection_id=number), refused]
        links.append(connection(connection_id=number, closed="rst", last_time=time + SECOND // 100))
    findings = findings_of("no_response", made(exchanges=rows, connections=links))
    closes = [each for each in findings if "closes the connection at JoinGroup" in each.sentence]
    assert len(closes) == apart
    assert all("Kafka 4" not in each.cause for each in closes)  # which accepts JoinGroup 0


@pytest.mark.parametrize("known", [("Metadata", 0), ("Metadata", 1), ("ApiVersions", 0)])
def test_a_broker_newer_than_0_9_has_removed_the_oldest_versions(known: tuple[str, int]) -> None:
    api, version = known
    rows, links = [], []
    for number in range(3):
        time = START + number * SECOND
        common = {"connection_id": number, "client_id": "old"}
        refused = {"api": "ListOffsets", "api_version": 0, "status": "unanswered"}
        rows.append(exchange(api=api, api_version=version, **common))
        rows.append(exchange_at(time, **common, **refused))
        links.append(connection(connection_id=number, closed="rst", last_time=time + SECOND // 100))
    tables = made(exchanges=rows, connections=links)
    refusals = [
        each for each in findings_of("no_response", tables)
        if "closes the connection at ListOffsets 0" in each.sentence
    ]  # fmt: skip
    assert len(refusals) == (known == ("Metadata", 0))
    assert all("Kafka 4" in each.cause for each in refusals)
    assert len(findings_of("removed_versions", tables)) == 1
