"""Stuck partitions agree with kafka-transactions, kafka-consumer-groups and the clients."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

import analysis
from analysis.answers import ANSWERS
from analysis.sql.stored import stored
from dissector.capture import open_capture
from tests.analysis.answering import CAPTURES, capture, made
from tests.analysis.made_rows import partition
from tools.record.kafka.truth import Row, read

NAME = "kafka-4-stuck"
MS = 1_000_000


def held(name: str = NAME, **options: Any) -> pd.DataFrame:
    return analysis.stuck(capture(name, ANSWERS["stuck"].tables), **options)


def printed(command: str) -> list[dict[str, str]]:
    """The rows of the table that a tool printed."""
    lines = [fact["line"] for fact in read(NAME) if fact.get("command") == command]
    cells = [line.split() for line in lines if "has no active members" not in line]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[1:]]


def event(client_id: str, name: str) -> Row:
    return next(f for f in read(NAME) if f.get("client_id") == client_id and f.get("event") == name)


def test_the_open_transaction_is_the_one_that_kafka_transactions_describes() -> None:
    (described,) = printed("describe")
    (row,) = held().query("is_open").to_dict("records")
    assert row["transactional_id"] == described["TransactionalId"]
    assert (row["producer_id"], row["producer_epoch"]) == (
        int(described["ProducerId"]),
        int(described["ProducerEpoch"]),
    )
    assert row["timeout_ms"] == int(described["TransactionTimeoutMs"])
    assert f"{row['topic']}-{row['partition']}" == described["TopicPartitions"]
    start = row["start_time"].value / MS
    assert start == pytest.approx(int(described["CurrentTransactionStartTimeMs"]), abs=50)
    assert row["readers"] == "strict"


def test_the_offset_is_that_of_describe_producers() -> None:
    described = {
        row["ProducerId"]: row["CurrentTransactionStartOffset"] for row in printed("producers")
    }
    (row,) = held().query("is_open").to_dict("records")
    assert described == {str(row["producer_id"]): str(row["offset"]), "1": "None"}


def test_a_transaction_that_takes_seconds_ends() -> None:
    (row,) = held().query("not is_open").to_dict("records")
    assert (row["transactional_id"], row["partition"], row["client_id"]) == ("late", 1, "late")
    times = [event("late", name)["time"] for name in ("begun", "committed")]
    assert row["end_time"].value == pytest.approx(times[1], abs=100 * MS)
    assert row["duration_ms"] == pytest.approx((times[1] - times[0]) / MS, abs=100)


def test_short_transactions_appear_only_if_asked_for() -> None:
    short = held(min_ms=0).query("duration_ms < 1000")
    assert set(short["transactional_id"].dropna()) <= {"steady"}
    assert held("kafka-4-transactions").empty
    assert held("kafka-4-tuned", min_ms=0).empty


def test_lag_with_both_isolation_levels() -> None:
    rows = held(show="lag").set_index(["group_id", "partition"])
    for group in ("strict", "loose"):
        for described in printed(f"group-{group}"):
            row = rows.loc[group, int(described["PARTITION"])]
            assert row["offset"] == int(described["CURRENT-OFFSET"])
            assert (row["end_offset"], row["lag"]) == (
                int(described["LOG-END-OFFSET"]),
                int(described["LAG"]),
            )
    # The tool lists no lag for a partition without a commit: its reader got nothing.
    stopped = rows.loc["strict", 0]
    assert (stopped["stable_lag"], stopped["lag"]) == (0, rows.loc["loose", 0]["end_offset"])
    assert rows["isolation_level"]["strict"].tolist() == ["read_committed"] * 2
    assert rows["isolation_level"]["loose"].tolist() == ["read_uncommitted"] * 2


def fetched(at: int, stable: int, end: int, **columns: Any) -> dict[str, Any]:
    offsets = {"last_stable_offset": stable, "high_watermark": end}
    return partition("Fetch", (at - 1) * MS, response_time=at * MS) | offsets | columns


def test_an_older_offset_of_a_follower_is_not_a_new_stop() -> None:
    states = [(10, 5, 9), (2000, 5, 9), (2500, 9, 9), (2600, 5, 9), (4000, 9, 12), (4100, 12, 12)]
    partitions = [fetched(*state) for state in states]
    rows = analysis.stuck(made(partitions=partitions)).to_dict("records")
    assert [(r["offset"], r["held"], r["duration_ms"], r["is_open"]) for r in rows] == [
        (5, 4, 2490, False)
    ]


def test_a_topic_that_was_created_again_has_another_log() -> None:
    """A transaction of the new log is open; the old log was longer, and had none."""
    old = [fetched(at, 50, 50, topic_id="old") for at in (10, 20)]
    new = [fetched(at, 5, 9, topic_id="new", offset=3) for at in (1000, 4000)]
    tables = made(partitions=[*old, *new])
    (row,) = analysis.stuck(tables).to_dict("records")
    assert (row["offset"], row["held"], row["duration_ms"], row["is_open"]) == (5, 4, 3000, True)
    (row,) = analysis.stuck(tables, show="lag").to_dict("records")
    assert (row["last_stable_offset"], row["stable_lag"], row["lag"]) == (5, 2, 6)


def test_a_lag_to_an_unknown_offset_is_unknown() -> None:
    """Before Fetch 4, responses have no last stable offset, and a coordinator has no end."""
    old = fetched(10, 5, 9, offset=3, client_id="old") | {"last_stable_offset": None}
    commit = {"api": "OffsetCommit", "topic": "u", "group_id": "g", "high_watermark": None}
    partitions = [old, old | commit]
    rows = analysis.stuck(made(partitions=partitions), show="lag").set_index("topic")
    assert rows["stable_lag"].isna().all()
    assert (rows["lag"]["t"], pd.isna(rows["lag"]["u"])) == (6, True)


def test_readers_with_the_same_lag_are_in_order_of_their_names() -> None:
    clients = [f"r{number}" for number in range(50)]
    rows = [fetched(10, 5, 9, offset=5, client_id=name) for name in clients[::-1]]
    lags = analysis.stuck(made(partitions=rows), show="lag")
    assert lags["client_id"].tolist() == sorted(clients)


EMPTY_FETCH, REMOVAL = (3, 9000, 0), (4, 5000, 1)
"""Correlation id, time in ms, and the number of partitions that the request names."""


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ([EMPTY_FETCH], [(5, 4, 8990, True)]),
        ([EMPTY_FETCH, REMOVAL], [(5, 4, 4989, True)]),
        ([(3, 9000, 1)], []),  # without a session, the partition is not read any more
    ],
)
def test_a_fetch_session_omits_a_partition_that_does_not_change(
    later: list[tuple[int, int, int]], expected: list[tuple[int, int, int, bool]]
) -> None:
    rows = [fetched(10, 5, 9, connection_id=0, correlation_id=1)]
    # The next request of the session names the new position, and the response omits the partition.
    asked = {"last_stable_offset": None, "high_watermark": None, "offset": 9, "correlation_id": 2}
    rows.append(rows[0] | asked | {"time": 19 * MS, "response_time": 20 * MS})
    exchanges = [
        {
            "api": "Fetch", "connection_id": 0, "correlation_id": n, "request_time": (at - 1) * MS,
            "response_time": at * MS, "partition_count": count,
        }
        for n, at, count in ((1, 10, 1), (2, 20, 1), *later)
    ]  # fmt: skip
    stuck = analysis.stuck(made(partitions=rows, exchanges=exchanges)).to_dict("records")
    keys = ("offset", "held", "duration_ms", "is_open")
    assert [tuple(row[key] for key in keys) for row in stuck] == expected


def test_two_producers_at_one_offset_give_the_same_rows_from_memory_and_disk() -> None:
    """Two clusters of recordings have a topic of the same name: the first producer counts."""
    paths = [CAPTURES / f"{name}.pcap.zst" for name in (NAME, "kafka-4-transactions")]
    tables = ANSWERS["stuck"].tables
    expected = analysis.stuck(open_capture(paths).tables(tables), min_ms=5)
    assert len(expected) > 5
    with stored(open_capture(paths).stream(tables), tables) as connection:
        pd.testing.assert_frame_equal(analysis.stuck(connection, min_ms=5), expected)
