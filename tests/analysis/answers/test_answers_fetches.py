"""Fetches agree with the broker's request log, and with the metrics and settings of consumers."""

from __future__ import annotations

from functools import cache
from typing import Any

import pandas as pd
import pytest

import analysis
from analysis.answers import ANSWERS
from tests.analysis.answering import broker_log, capture, made, printed
from tests.analysis.made_rows import START, exchange

NAME = "kafka-4-tuned"
READERS = ("busy-reader", "tiny-reader", "narrow-reader", "patient-reader")
MS = 1_000_000


@cache
def rows(name: str = NAME) -> pd.DataFrame:
    return analysis.fetches(capture(name, ANSWERS["fetches"].tables)).set_index("client_id")


@pytest.mark.parametrize("client_id", READERS)
def test_counts_and_waits_are_those_of_the_broker(client_id: str) -> None:
    log = broker_log(NAME).query(f"api == 'FETCH' and client_id == '{client_id}'")
    row, size = rows().loc[client_id], log["record_bytes"].fillna(0)
    assert (row["requests"], row["bytes"]) == (len(log), size.sum())
    assert (row["empty"], row["small"]) == ((size == 0).sum(), size.between(1, 1023).sum())
    assert row["bytes_p50"] == size[size > 0].median()
    assert row["wait_p50_ms"] == pytest.approx(log["remote_ms"].median(), abs=10)


@pytest.mark.parametrize("client_id", READERS)
def test_records_are_those_that_the_client_read(client_id: str) -> None:
    metrics = printed(NAME, client_id, "measured", "metrics")
    row = rows().loc[client_id]
    # The client prints its metrics before it closes; a last Fetch may be in flight.
    assert 0 <= row["records"] - float(metrics["records-consumed-total"]) <= 1
    assert 0 <= row["requests"] - float(metrics["fetch-total"]) <= 2


def test_truncated_batches_do_not_reach_the_program() -> None:
    batches = 19
    header = 61  # bytes of a record batch that the client's metric does not count
    read_bytes = float(
        printed(NAME, "narrow-reader", "measured", "metrics")["bytes-consumed-total"]
    )
    row = rows().loc["narrow-reader"]
    assert row["bytes"] - row["cut_bytes"] == read_bytes + batches * header


@pytest.mark.parametrize("client_id", READERS)
def test_settings_are_those_of_the_client(client_id: str) -> None:
    settings, row = printed(NAME, client_id, "configured", "settings"), rows().loc[client_id]
    assert row["min_bytes"] == settings["fetch.min.bytes"]
    assert row["max_wait_ms"] == settings["fetch.max.wait.ms"]
    assert row["partition_max_bytes"] == settings["max.partition.fetch.bytes"]
    assert row["max_bytes"] == settings["fetch.max.bytes"]
    assert row["isolation_level"] == settings["isolation.level"]


def test_findings() -> None:
    findings = rows()["finding"].astype("object").where(rows()["finding"].notna(), None)
    assert findings[[*READERS]].tolist() == ["busy", "small", "limited", None]


@pytest.mark.parametrize("name", ["kafka-4-java", "kafka-4-followed", "kafka-4-librdkafka"])
def test_consumers_with_default_settings_have_no_finding(name: str) -> None:
    assert set(rows(name)["finding"].dropna()) <= {"idle"}


def test_a_short_wait_makes_a_busy_consumer() -> None:
    """The scenario sets fetch.wait.max.ms to 20."""
    readers = rows("chatter-mock")
    assert set(readers["finding"]) == {"busy"}
    assert set(readers["max_wait_ms"]) == {"20"}


def fetch(number: int, **columns: Any) -> dict[str, Any]:
    """A Fetch 20 ms after the previous one."""
    at = START + number * 20 * MS
    times = {"request_time": at, "request_end_time": at, "response_time": at + 5 * MS}
    row = exchange(api="Fetch", api_key=1, correlation_id=number, latency_ms=5.0, **times)
    return row | {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 99_999} | columns


def test_a_session_names_no_topics_when_nothing_changed() -> None:
    partition = {"connection_id": 0, "correlation_id": 0, "time": START, "api": "Fetch"}
    tables = made(
        exchanges=[
            fetch(0, topics=["b", "a"], record_bytes=5000, record_count=9),
            *(fetch(number, topics=None) for number in range(1, 13)),
            fetch(13, topics=None, error_count=1, error_code=70),
        ],
        partitions=[
            partition | {"topic": topic, "partition": 0, "bytes": size, "record_count": count}
            for topic, size, count in (("b", 5000, 9), ("a", None, None))
        ],
    )
    (row,) = analysis.fetches(tables).to_dict("records")
    assert (row["topics"], row["requests"], row["empty"], row["records"]) == ("a, b", 14, 12, 9)
    assert row["finding"] == "busy"
    assert row["per_second"] == 13  # in 0.26 s, taken as a second
    by_topic = analysis.fetches(tables, by="topic").set_index("topic")
    assert by_topic["requests"].to_dict() == {"a": 14, "b": 14}


def test_an_incomplete_response_has_no_overhead() -> None:
    """Its records are unknown, for example with `tcpdump -s 96`."""
    known = fetch(0, record_bytes=750, request_bytes=100, response_bytes=900)
    unknown = fetch(1, error_count=None, record_bytes=None, response_bytes=50_000)
    (row,) = analysis.fetches(made(exchanges=[known, unknown])).to_dict("records")
    assert (row["requests"], row["bytes"], row["overhead_percent"]) == (2, 750, 25)


def test_a_consumer_over_its_quota_gets_no_records_of_a_busy_topic() -> None:
    """KafkaApis.handleFetchRequest returns FetchContext.getThrottledResponse instead of them."""
    throttled = [fetch(number, throttle_time_ms=4000) for number in range(12)]
    filled = [fetch(number, record_bytes=3000, throttle_time_ms=0) for number in range(12, 17)]
    (row,) = analysis.fetches(made(exchanges=throttled + filled)).to_dict("records")
    assert (row["requests"], row["empty"], row["bytes"]) == (17, 0, 15_000)
    assert pd.isna(row["finding"])


@pytest.mark.parametrize(
    ("columns", "finding"),
    [
        ({"record_bytes": 500}, "small"),
        ({"record_bytes": 99_999}, "limited"),
        ({"record_bytes": 2000}, None),
        ({}, "busy"),
    ],
)
def test_a_finding_needs_most_responses(columns: dict[str, Any], finding: str | None) -> None:
    many = [fetch(number, **columns) for number in range(12)]
    few = [fetch(number, record_bytes=3000) for number in range(12, 20)]
    (row,) = analysis.fetches(made(exchanges=many + few)).to_dict("records")
    assert row["finding"] == finding or (finding is None and pd.isna(row["finding"]))
