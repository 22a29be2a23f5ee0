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
