"""Consumers that commit often, as made rows."""

from __future__ import annotations

from itertools import cycle

import pytest

from analysis.diagnosis.rule import Finding
from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of
from tests.analysis.made_rows import START, exchange_at

MS = 1_000_000
COMMITS = 200


def findings_about(
    gap_ms: float, latency_ms: float, step: int = 1, members: int = 1
) -> list[Finding]:
    """The findings about members that commit in turn, each behind `step` more records."""
    exchanges, partitions = [], []
    for nth, member in zip(range(COMMITS), cycle(range(members))):
        names = {"connection_id": member, "correlation_id": nth, "api": "OffsetCommit"}
        start = START + int(nth * gap_ms * MS)
        end = start + int(latency_ms * MS)
        exchanges.append(exchange_at(start, end, latency_ms=latency_ms, api_key=8, **names))
        partitions.append(
            {"time": start, "response_time": end, "client_id": "app", "group_id": "g"}
            | {"topic": "t", "partition": member, "offset": nth // members * step, **names}
        )
    return findings_of("frequent_commits", made(exchanges=exchanges, partitions=partitions))


@pytest.mark.parametrize(
    ("gap_ms", "latency_ms", "step", "severity", "pace"),
    [
        (5, 4, 1, "warning", "200 times a second, after each record"),
        (5, 2, 1, "note", "200 times a second, after each record"),
        (5, 4, 4, "warning", "200 times a second, after 4 records"),
        (5, 4, 0, "warning", "200 times a second, without new records"),
        (19, 15, 1, "warning", "53 times a second, after each record"),
    ],
)
def test_a_consumer_that_commits_often(
    gap_ms: float, latency_ms: float, step: int, severity: str, pace: str
) -> None:
    (finding,) = findings_about(gap_ms, latency_ms, step)
    assert (finding.severity, finding.clients) == (severity, ("app",))
    assert finding.sentence == f"Client `app` commits its offsets {pace}"
    assert finding.requests == COMMITS


@pytest.mark.parametrize(
    ("gap_ms", "step", "members"),
    [
        (21, 1, 1),  # 48 commits a second
        (5, 10, 1),  # 10 records in a commit
        (5, 1, 5),  # members with one client id, 40 commits a second each
    ],
)
def test_a_consumer_that_does_not(gap_ms: float, step: int, members: int) -> None:
    assert findings_about(gap_ms, 4, step, members) == []


@pytest.mark.parametrize("name", [None, 'it\'s a "name"', "n" * 300])
@pytest.mark.parametrize(
    ("gap_ms", "latency_ms", "severities"), [(5, 4, ["warning"]), (5, 2, ["note"]), (21, 1, [])]
)
@pytest.mark.parametrize("api", ["ListOffsets", "OffsetFetch"])
def test_a_consumer_that_looks_up_offsets_often(
    api: str, gap_ms: float, latency_ms: float, severities: list[str], name: str | None
) -> None:
    exchanges = []
    for nth in range(COMMITS):
        start = START + int(nth * gap_ms * MS)
        end = start + int(latency_ms * MS)
        row = exchange_at(start, end, latency_ms=latency_ms, api=api, client_id=name)
        exchanges.append(row | {"correlation_id": nth})
    exchanges.append(exchanges[0] | {"request_time": None, "correlation_id": COMMITS})
    findings = findings_of("frequent_commits", made(exchanges=exchanges))
    assert [each.severity for each in findings] == severities
    for each in findings:
        assert each.sentence.endswith(" looks up offsets 200 times a second")
        assert each.clients == ((name,) if name else ())


def test_a_follower_that_looks_up_offsets_often() -> None:
    """Of partitions whose log it truncates (KIP-320)."""
    exchanges = [
        exchange_at(START + n * MS, START + n * MS, api="ListOffsets", correlation_id=n)
        for n in range(COMMITS)
    ]
    fetch = exchanges[0] | {"topic": "t", "partition": 0, "replica_id": 2, "api": "Fetch"}
    follower = {"client_id": exchanges[0]["client_id"], "time": START}
    tables = made(exchanges=exchanges, partitions=[fetch | follower])
    assert findings_of("frequent_commits", tables) == []
