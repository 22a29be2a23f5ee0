"""Consumers that get batches with a wrong checksum, on made rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of, rules
from tests.analysis.made_rows import SECOND, START, batch, connection, exchange_at, partition

Rows = dict[str, list[dict[str, Any]]]


def fetches(*checksums: bool | None, api: str = "Fetch") -> Rows:
    """Tables with a connection, a response and the batch at offset 173 for each checksum."""
    times = [START + n * SECOND for n in range(len(checksums))]
    links = [
        connection(connection_id=n, first_time=time, last_time=time + SECOND // 10, closed="fin")
        for n, time in enumerate(times)
    ]
    rows = [
        exchange_at(time, api=api, connection_id=n, correlation_id=n)
        for n, time in enumerate(times)
    ]
    batches = [
        batch(api, row["response_time"], crc_ok=is_right, base_offset=173)
        | {"connection_id": row["connection_id"], "correlation_id": row["correlation_id"]}
        for row, is_right in zip(rows, checksums, strict=True)
    ]
    return {"connections": links, "exchanges": rows, "batches": batches}


@pytest.mark.parametrize(
    ("checksums", "api", "fires"),
    [
        ([False, False], "Fetch", True),
        ([False], "ShareFetch", True),
        ([True, False], "Fetch", False),
        ([None, False], "Fetch", True),
        ([None], "Fetch", False),
        ([False], "Produce", False),
    ],
    ids=["stored", "share group", "damaged on its way", "truncated", "unknown", "refused"],
)
def test_a_batch_that_the_broker_stored_is_damaged(
    checksums: list[bool | None], api: str, fires: bool
) -> None:
    findings = findings_of("recurring_errors", made(**fetches(*checksums, api=api)))
    assert [each.sentence for each in findings] == [
        "Client `app` cannot read past offset 173 of partition 0 of topic `t`: the batch has a "
        "wrong checksum"
    ] * fires
    assert all(each.severity == "critical" for each in findings)


@pytest.mark.parametrize(("offset", "fires"), [(173, True), (174, False)])
def test_a_consumer_that_does_not_compare_checksums_continues(offset: int, fires: bool) -> None:
    later = partition("Fetch", START + 5 * SECOND, offset=offset)
    tables = made(**fetches(False), partitions=[later])
    assert len(findings_of("recurring_errors", tables)) == fires


@pytest.mark.parametrize("is_right", [True, False])
def test_a_consumer_that_restarts_at_a_damaged_batch(is_right: bool) -> None:
    names = ("recurring_errors", "connection_churn")
    assert rules(*names, **fetches(*[is_right] * 30)) == [names[is_right]]
