"""Consumers that overwrite each other's commits, on made rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of
from tests.analysis.made_rows import SECOND, START, exchange, partition


def committed(*commits: tuple[int, int], **columns: Any) -> dict[str, Any]:
    """The tables of commits, one in a second: the connection and the offset of each."""
    rows = [
        partition("OffsetCommit", START + n * SECOND, group_id="g", connection_id=link,
                  correlation_id=n, client_id=f"app-{link}", offset=offset) | columns
        for n, (link, offset) in enumerate(commits)
    ]  # fmt: skip
    rows.append(rows[0] | {"time": None, "response_time": None})
    return made(exchanges=[exchange()], partitions=rows)


TWO = [(0, 100), (1, 10), (0, 110), (1, 20), (0, 120), (1, 30), (0, 130)]


@pytest.mark.parametrize(
    ("commits", "fires"),
    [
        (TWO, True),
        (TWO[:-1], False),
        ([(0, offset) for _, offset in TWO], False),
        ([(link, 10 * n) for n, (link, _) in enumerate(TWO)], False),
    ],
    ids=["two", "not again", "one that seeks", "forward"],
)
def test_consumers_of_the_same_partition(commits: list[tuple[int, int]], fires: bool) -> None:
    findings = findings_of("growing_lag", committed(*commits))
    assert len(findings) == fires
    for each in findings:
        assert each.sentence.startswith("Consumers of group `g` overwrite each other's offsets: 2 ")
        assert "went back 3 times when another connection committed, by up to 90" in each.evidence
        assert each.clients == ("app-0", "app-1")


@pytest.mark.parametrize(("restarts", "fires"), [(4, True), (3, False)])
@pytest.mark.parametrize("client_id", [None, 'it\'s a "name"', "n" * 300])
def test_a_consumer_that_seeks_when_it_starts(
    client_id: str | None, restarts: int, fires: bool
) -> None:
    commits = [(link, offset) for link in range(restarts) for offset in (10, 100 + link)]
    findings = findings_of("growing_lag", committed(*commits, client_id=client_id))
    assert len(findings) == fires
    for each in findings:
        assert each.sentence == "Group `g` goes back to earlier offsets again and again"
        assert "went back 3 times when another connection committed, by up to 92" in each.evidence
        assert each.evidence.endswith("The lowest of these offsets of partition 0 is 10.")
        assert each.clients == ((client_id,) if client_id else ())


@pytest.mark.parametrize("client_id", [None, 'it\'s a "name"', "n" * 300])
@pytest.mark.parametrize("topic", ['it\'s a "name"', "n" * 249])
def test_names_of_these_consumers(client_id: str | None, topic: str) -> None:
    tables = committed(*TWO, client_id=client_id, topic=topic)
    (finding,) = findings_of("growing_lag", tables)
    assert finding.clients == ((client_id,) if client_id else ())
    assert finding.numbers["times"] == 3


@pytest.mark.parametrize(
    "columns", [{"group_id": None}, {"error_code": 22}, {"api": "OffsetFetch"}]
)
def test_other_commits(columns: dict[str, Any]) -> None:
    assert findings_of("growing_lag", committed(*TWO, **columns)) == []
