"""Batches are counted as the broker logged their requests, and as their clients were set up."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

import analysis
from analysis.answers import ANSWERS
from tests.analysis import made_rows
from tests.analysis.answering import broker_log, capture, made
from tests.analysis.made_rows import START, connection, exchange

MS = 1_000_000
TABLES = ANSWERS["batching"].tables


@pytest.mark.parametrize(
    "name", ["kafka-3-java-2-4", "kafka-3-java-0-9", "kafka-3-node", "kafka-4-java"]
)
def test_acks_and_bytes_are_those_of_the_brokers_log(name: str) -> None:
    log = broker_log(name)
    log = log[log["api_key"] == 0].groupby("client_id")
    clients = analysis.batching(capture(name, TABLES), by=["client_id"]).set_index("client_id")
    assert clients["bytes"].to_dict() == log["record_bytes"].sum().to_dict()
    assert clients["requests"].to_dict() == log.size().to_dict()
    acks = {client: f"{acks:.0f}" for client, acks in log["acks"].first().items()}
    assert clients["acks"].to_dict() == acks


def test_codecs_are_those_that_the_clients_are_named_after() -> None:
    clients = analysis.batching(capture("kafka-4-java", TABLES), by=["client_id"])
    named = [client.removeprefix("producer-") for client in clients["client_id"]]
    assert clients["codecs"].tolist() == named


def batch(**columns: Any) -> dict[str, Any]:
    row = made_rows.batch(
        "Produce", base_timestamp=START - 5 * MS, timestamp_type="create_time", record_count=4,
        bytes=100, codec="none", uncompressed_bytes=100,
    )  # fmt: skip
    return row | columns


def asked(*rows: dict[str, Any]) -> dict[str, Any]:
    tables = made(
        decompressed_batches=rows, exchanges=[exchange(acks=1)], connections=[connection()]
    )
    (row,) = analysis.batching(tables, by=["topic", "broker"]).to_dict("records")
    return {str(name): value for name, value in row.items()}


def test_batches_add_up() -> None:
    rows = [
        batch(),
        batch(codec="zstd", bytes=50, uncompressed_bytes=200),
        batch(codec="zstd", bytes=70, uncompressed_bytes=None, base_timestamp=START - 25 * MS),
        batch(api="Fetch", bytes=9999),
    ]
    assert asked(*rows) == {
        "topic": "t", "broker": "10.0.0.9:9092", "batches": 3, "requests": 1, "records": 12,
        "records_p50": 4, "bytes": 220, "bytes_p50": 70, "bytes_max": 100, "codecs": "zstd, none",
        "ratio": 2, "acks": "1", "age_p50_ms": 5, "age_max_ms": 25,
    }  # fmt: skip


def test_the_messages_of_a_request_for_a_partition_are_one_batch() -> None:
    """Before Kafka 0.11, the messages of a set have headers of their own."""
    old: dict[str, Any] = {"magic": 1, "record_count": 1}
    row = asked(
        *(batch(**old, base_timestamp=START - number * MS) for number in range(1, 8)),
        batch(**old, partition=1, bytes=30, uncompressed_bytes=30),
        batch(magic=2),
        batch(magic=2),
    )
    assert [row[name] for name in ("batches", "requests", "records")] == [4, 1, 16]
    assert [row[name] for name in ("records_p50", "bytes", "bytes_p50")] == [4, 930, 100]
    assert [row[name] for name in ("bytes_max", "age_max_ms", "ratio")] == [700, 7, 1]


def test_requests_are_counted_if_a_client_repeats_its_ids() -> None:
    """A client may always send 0 as its correlation id."""
    times = [START + n * MS for n in range(4)]
    exchanges = [
        exchange(correlation_id=0, request_time=time, acks=None if n == 0 else n)
        for n, time in enumerate(times)
    ]
    batches = [batch(correlation_id=0, time=time) for time in times[1:]]
    tables = made(decompressed_batches=batches, exchanges=exchanges, connections=[connection()])
    rows = analysis.batching(tables, by=["acks"]).to_dict("records")
    assert [(row["acks"], row["requests"], row["batches"]) for row in rows] == [
        (1, 1, 1), (2, 1, 1), (3, 1, 1),
    ]  # fmt: skip
    assert analysis.batching(tables, by=["topic"])["requests"].tolist() == [3]


def test_batches_with_the_time_of_the_log_have_no_age() -> None:
    row = asked(batch(timestamp_type="log_append_time"))
    assert row["age_p50_ms"] != row["age_p50_ms"]


def test_batches_of_a_clock_that_is_ahead_have_no_age() -> None:
    slightly, far = (asked(batch(base_timestamp=START + n * MS)) for n in (3, 7_200_000))
    assert slightly["age_p50_ms"] == 0
    assert pd.isna(far["age_p50_ms"])


def test_a_better_codec_has_a_higher_ratio() -> None:
    """The clients of this recording wrote the same records, except for the name of the codec."""
    codecs = analysis.batching(capture("kafka-4-java", TABLES)).set_index("codecs")
    before = codecs["ratio"] * codecs["bytes"] / codecs["records"]
    assert before.to_dict() == pytest.approx(dict.fromkeys(before.index, before["none"]), abs=4)
    assert codecs["ratio"]["none"] == 1
    assert (codecs["ratio"].drop("none") > 2).all()
