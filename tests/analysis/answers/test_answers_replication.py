"""Replication agrees with the leader's request log, its log of in-sync replicas, and the pauses."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pandas as pd
import pytest

import analysis
from analysis.answers import ANSWERS
from tests.analysis.answering import broker_log, capture, made
from tests.analysis.made_rows import connection, partition
from tools.record.kafka.truth import read

NAME = "kafka-4-replicated"
MS = 1_000_000


def rows(name: str = NAME, **options: Any) -> pd.DataFrame:
    return analysis.replication(capture(name, ANSWERS["replication"].tables), **options)


def test_producers_wait_for_followers_as_long_as_the_leader_logs() -> None:
    log = broker_log(NAME).query("api == 'PRODUCE' and client_id == 'writer'")
    # Out of sync, the follower is not waited for; nor does the answer count these.
    waited = log[log["remote_ms"] > 0]
    (row,) = rows(show="producers").to_dict("records")
    assert (row["client_id"], row["topic"]) == ("writer", "orders")
    assert abs(row["requests"] - len(waited)) <= 3
    # One request waited for two seconds, until the follower was out of sync.
    waited = waited[waited["remote_ms"] < 2000]
    # The answer includes the write of the leader and the queue of its threads, but not its work on
    # the Fetch that confirms the records.
    parts = waited["remote_ms"] + waited["local_ms"]
    assert row["follower_p50_ms"] == pytest.approx(parts.median(), abs=2)
    assert row["follower_p99_ms"] == pytest.approx(parts.quantile(0.99), abs=10)
    # The latency in the capture includes the sockets, but not the wait for earlier requests.
    assert row["latency_p50_ms"] == pytest.approx(waited["total_ms"].median(), abs=1)
    share = parts.sum() / waited["total_ms"].sum()
    assert row["follower_percent"] == pytest.approx(100 * share, abs=8)


def test_the_follower_is_out_of_sync_when_the_leader_logs_it() -> None:
    (shrink,) = [fact for fact in read(NAME) if fact["source"] == "isr"]
    (row,) = rows().query("topic == 'orders'").to_dict("records")
    assert (row["replica_id"], row["leaders"]) == (2, "127.0.0.1:9092")
    assert "from 2,1 to 1" in shrink["message"]
    assert row["without"] > 0
    assert row["first_without"].value == pytest.approx(shrink["time"], abs=200 * MS)
    resumed = [fact["time"] for fact in read(NAME) if fact.get("event") == "resumed"]
    (end,) = [time for time in resumed if 0 < time - shrink["time"] < 5000 * MS]
    assert row["last_without"].value == pytest.approx(end, abs=200 * MS)


def test_the_longest_pause_is_that_of_the_process() -> None:
    events = [fact for fact in read(NAME) if fact.get("event") in ("paused", "resumed")]
    pauses = [b["time"] - a["time"] for a, b in zip(events[::2], events[1::2], strict=True)]
    (row,) = rows().query("topic == 'orders'").to_dict("records")
    assert row["pause_max_ms"] == pytest.approx(max(pauses) / MS, abs=100)
    assert row["delay_max_ms"] == pytest.approx(max(pauses) / MS, abs=200)


def test_no_followers() -> None:
    assert rows("kafka-4-java").empty
    assert rows("kafka-4-java", show="producers").empty


def row(api: str, at: int, **columns: Any) -> dict[str, Any]:
    return partition(api, at * MS, correlation_id=at, client_id=None) | columns


def produce(at: int, latency_ms: float, **columns: Any) -> dict[str, Any]:
    """An exchange: a Produce with acks=all."""
    return {
        "connection_id": 0, "correlation_id": at, "api": "Produce", "acks": -1,
        "request_time": at * MS, "request_end_time": at * MS, "latency_ms": latency_ms,
    } | columns  # fmt: skip


def replicated(
    partitions: list[dict[str, Any]], exchanges: list[dict[str, Any]]
) -> tuple[dict[Hashable, Any], dict[Hashable, Any]]:
    """The only follower, and the only wait of a producer."""
    tables = made(partitions=partitions, exchanges=exchanges, connections=[connection()])
    (follower,) = analysis.replication(tables).to_dict("records")
    (wait,) = analysis.replication(tables, show="producers").to_dict("records")
    return follower, wait


def test_a_produce_before_the_first_fetch_does_not_count() -> None:
    """The follower may have been the leader."""
    partitions = [
        row("Produce", 10, last_offset=0, response_time=12 * MS),
        row("Fetch", 50, offset=0, replica_id=2),
        row("Produce", 60, last_offset=1, response_time=80 * MS),
        row("Fetch", 75, offset=2, replica_id=2),
    ]
    follower, wait = replicated(partitions, [produce(10, 20.0), produce(60, 20.0)])
    assert (follower["confirmed"], follower["delay_max_ms"], follower["lag_max"]) == (1, 15, 2)
    assert (wait["requests"], wait["follower_p50_ms"], wait["follower_percent"]) == (1, 15, 75)


@pytest.mark.parametrize(
    ("connection_id", "response", "delay_ms"),
    [(0, 70, 5), (0, 80, 0), (1, 70, 15)],
    ids=["the broker was busy", "until after the Fetch", "another connection"],
)
def test_a_request_behind_another_one_does_not_wait_for_the_follower(
    connection_id: int, response: int, delay_ms: int
) -> None:
    """The broker reads the Produce of 60 ms only when it has responded to the request before."""
    partitions = [
        row("Fetch", 50, offset=0, replica_id=2),
        row("Produce", 60, last_offset=1, response_time=80 * MS),
        row("Fetch", 75, offset=2, replica_id=2),
    ]
    exchanges = [
        produce(40, 20.0, connection_id=connection_id, response_time=response * MS),
        produce(60, 20.0, response_time=80 * MS),
    ]
    follower, wait = replicated(partitions, exchanges)
    assert (follower["confirmed"], follower["delay_max_ms"]) == (1, delay_ms)
    latency_ms = 80 - (60 if connection_id else response)
    assert (wait["latency_p50_ms"], wait["follower_p50_ms"]) == (latency_ms, delay_ms)


def test_a_topic_that_was_created_again_has_another_log() -> None:
    """A Fetch of the new log confirms its record, which has the same offset as the old one."""
    partitions = [
        each
        for log, since in (("old", 0), ("new", 100))
        for each in (
            row("Fetch", since + 5, offset=0, replica_id=2, topic_id=log),
            row("Produce", since + 10, last_offset=0, response_time=(since + 40) * MS,
                topic_id=log),
            row("Fetch", since + 25, offset=1, replica_id=2, topic_id=log),
        )
    ]  # fmt: skip
    follower, wait = replicated(partitions, [produce(10, 30.0), produce(110, 30.0)])
    assert (follower["confirmed"], follower["without"], follower["lag_max"]) == (2, 0, 1)
    assert (follower["delay_p50_ms"], follower["delay_max_ms"]) == (15, 15)
    assert (wait["requests"], wait["follower_percent"]) == (2, 50)


def test_a_leader_does_not_follow_itself() -> None:
    """Broker 2 followed broker 1 until it became the leader."""
    partitions = [
        row("Fetch", 5, offset=0, replica_id=2),
        row("Produce", 10, last_offset=0, response_time=20 * MS),
        row("Fetch", 15, offset=1, replica_id=2),
        row("Produce", 60, last_offset=1, response_time=62 * MS, connection_id=1),
    ]
    exchanges = [
        produce(at, 2.0, connection_id=n, broker_ip="10.0.0.9", broker_port=9092 + n)
        for n, at in enumerate((10, 60))
    ]
    brokers = [{"broker_id": 1 + n, "host": "10.0.0.9", "port": 9092 + n} for n in range(2)]
    connections = [connection(), connection(connection_id=1, broker_port=9093)]
    tables = made(
        partitions=partitions, exchanges=exchanges, connections=connections, brokers=brokers
    )
    (follower,) = analysis.replication(tables).to_dict("records")
    assert (follower["replica_id"], follower["confirmed"], follower["without"]) == (2, 1, 0)


def test_a_leader_that_failed_is_out_of_sync_until_it_follows() -> None:
    """With acks=all, a leader responds without the others if Metadata has it as the only replica in
    sync."""
    name = "kafka-2-4"
    tables = capture(name, ("topics", "partitions", "exchanges"))
    alone = tables["topics"].query("topic == 'orders' and partition == 1 and leader == 1")
    (shrunk,) = alone.to_dict("records")
    assert (*shrunk["replicas"], *shrunk["isr"]) == (2, 1, 1)
    produced = tables["partitions"].merge(
        tables["exchanges"].query("api == 'Produce' and acks == -1"),
        on=["connection_id", "correlation_id"],
    )
    (produced,) = produced[
        (produced["topic"] == "orders") & (produced["partition"] == 1)
        & (produced["time"] > shrunk["time"])
    ].to_dict("records")  # fmt: skip
    (row,) = (
        rows(name)
        .query("topic == 'orders' and partition == 1 and replica_id == 2")
        .to_dict("records")
    )
    assert (row["without"], row["first_without"]) == (1, produced["response_time_x"])
    assert row["delay_max_ms"] > 0


@pytest.mark.parametrize("seen", [30, 90], ids=["in time", "late"])
def test_a_reassignment_leaves_no_follower_out_of_sync(seen: int) -> None:
    """It moves the partition from broker 2, whose last Fetch is at 20, to broker 3. Metadata shows
    this before or after the next Produce."""
    partitions = [
        row("Fetch", 5, offset=0, high_watermark=0, replica_id=2),
        row("Fetch", 8, offset=-1, high_watermark=0, replica_id=3),
        row("Produce", 10, last_offset=0, response_time=15 * MS),
        row("Fetch", 12, offset=1, high_watermark=1, replica_id=2),
        row("Fetch", 20, offset=1, high_watermark=1, replica_id=2),
        row("Fetch", 21, offset=1, high_watermark=1, replica_id=3),
        row("Produce", 60, last_offset=1, response_time=70 * MS),
        row("Fetch", 65, offset=2, high_watermark=2, replica_id=3),
    ]
    exchanges = [produce(10, 5.0), produce(60, 5.0)]
    topics = [
        {"topic": "t", "partition": 0, "replicas": replicas, "time": at * MS}
        for at, replicas in ((1, [1, 2]), (seen, [1, 3]))
    ]
    tables = made(
        partitions=partitions, exchanges=exchanges, connections=[connection()], topics=topics
    )
    followers = analysis.replication(tables).set_index("replica_id")
    assert followers["without"].to_dict() == {2: 0, 3: 0}
    assert followers["confirmed"].to_dict() == {2: 1, 3: 1}


def test_a_request_with_several_partitions_counts_once() -> None:
    """It waits for the last of its partitions."""
    partitions = [
        row("Fetch", 5, partition=0, offset=0, replica_id=2),
        row("Fetch", 5, partition=1, offset=0, replica_id=2),
        row("Produce", 10, partition=0, last_offset=0, response_time=30 * MS),
        row("Produce", 10, partition=1, last_offset=0, response_time=30 * MS),
        row("Fetch", 15, partition=0, offset=1, replica_id=2),
        row("Fetch", 25, partition=1, offset=1, replica_id=2),
    ]
    tables = made(partitions=partitions, exchanges=[produce(10, 20.0)], connections=[connection()])
    (wait,) = analysis.replication(tables, show="producers").to_dict("records")
    assert (wait["requests"], wait["follower_p50_ms"], wait["follower_percent"]) == (1, 15, 75)


@pytest.mark.parametrize(
    ("lost", "correlation_id", "status", "without"),
    [
        (90, 3, "answered", 0),
        (90, 2, "answered", 1),
        (90, 2, "undecoded", 0),
        (0, 3, "answered", 1),
    ],
    ids=["a lost Fetch", "another lost packet", "a damaged Fetch", "another client"],
)
def test_a_fetch_that_the_capture_lost_may_have_confirmed_records(
    lost: int, correlation_id: int, status: str, without: int
) -> None:
    """The follower sends Fetch 1 before the Produce, and the next Fetch after its response."""
    partitions = [
        row("Fetch", 5, offset=0, replica_id=2, correlation_id=1),
        row("Produce", 10, last_offset=0, response_time=30 * MS, connection_id=1),
        row("Fetch", 40, offset=1, replica_id=2, correlation_id=3),
    ]
    fetches = [(1, 5, "answered"), (correlation_id, 20 if status == "undecoded" else 40, status)]
    exchanges = [
        {"connection_id": 0, "correlation_id": number, "api": "Fetch", "request_time": at * MS,
         "status": state}
        for number, at, state in dict.fromkeys([*fetches, (3, 40, "answered")])
    ]  # fmt: skip
    exchanges.append(produce(10, 20.0, connection_id=1))
    connections = [connection(client_lost_bytes=lost), connection(connection_id=1)]
    tables = made(partitions=partitions, exchanges=exchanges, connections=connections)
    (follower,) = analysis.replication(tables).to_dict("records")
    assert (follower["confirmed"], follower["without"]) == (1, without)
