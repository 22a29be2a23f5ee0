"""The records that each client moves are those of the broker's log, at both ends of a topic."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import analysis
from analysis.answers import ANSWERS
from tests.analysis.answering import broker_log, capture, made
from tests.analysis.made_rows import START, connection, exchange, partition

TABLES = ("partitions", "exchanges", "connections", "batches")
ACTIONS = {0: "produces", 1: "consumes"}


@pytest.mark.parametrize(
    "name", ["kafka-4-java", "kafka-4-group-eager", "kafka-4-kafka-go", "kafka-3-pykafka"]
)
def test_bytes_of_each_client_are_those_of_the_brokers_log(name: str) -> None:
    log = broker_log(name)
    log = log[log["api_key"].isin(ACTIONS) & (log["record_bytes"].fillna(0) > 0)]
    expected = log.groupby([log["client_id"], log["api_key"].map(ACTIONS)])["record_bytes"].sum()
    flows = analysis.topology(capture(name, TABLES))
    flows = flows[(flows["bytes"] > 0) & flows["topic"].ne("__cluster_metadata")]
    mine = flows.groupby(["client_id", "action"])["bytes"].sum()
    assert mine.to_dict() == expected.to_dict()


@pytest.mark.parametrize(
    ("name", "group", "members"),
    [
        ("kafka-4-group-eager", "group", {"m1", "m2", "m3"}),
        ("kafka-4-group-consumer", "group", {"m1", "m2", "m3"}),
        ("kafka-4-group-share", "sharers", {"s1", "s2"}),
    ],
)
def test_consumers_have_the_group_that_the_broker_knows_them_in(
    name: str, group: str, members: set[str]
) -> None:
    log = broker_log(name)
    of_log = {
        (client, group)
        for client, group in log[["client_id", "group_id"]].dropna().itertuples(index=False)
    }
    flows = analysis.topology(capture(name, TABLES))
    consumers = flows[flows["action"] == "consumes"]
    pairs = set(zip(consumers["client_id"], consumers["groups"], strict=True))
    assert {client for client, _ in pairs} == members
    assert {each for _, each in pairs} == {group}
    assert pairs <= of_log


@pytest.mark.parametrize(
    ("columns", "records"),
    [
        ({"error_code": 0}, 0),  # an empty response
        ({}, None),  # no response in the capture
        ({"error_code": 0, "bytes": 90}, None),  # a compressed message of Kafka 0.x has no count
        ({"error_code": 0, "bytes": 90, "record_count": 3}, 3),
    ],
)
def test_records_are_null_only_if_their_number_is_unknown(
    columns: dict[str, int], records: int | None
) -> None:
    status = "answered" if columns else "unanswered"
    fetch = exchange(api="Fetch", record_bytes=columns.get("bytes", 0)) | {"status": status}
    row = partition("Fetch", error_code=None) | columns
    tables = made(connections=[connection()], exchanges=[fetch], partitions=[row])
    for answer in (analysis.topology, analysis.fetches)[: 2 if columns else 1]:
        (actual,) = answer(tables)["records"]
        assert (None if pd.isna(actual) else actual) == records


def test_software_is_that_of_the_brokers_log() -> None:
    log = broker_log("kafka-4-group-eager").dropna(subset=["software"])
    expected = set(zip(log["client_id"], log["software"], strict=True))
    flows = analysis.topology(capture("kafka-4-group-eager", TABLES))
    assert set(zip(flows["client_id"], flows["software"], strict=True)) <= expected


def test_followers_are_no_consumers() -> None:
    flows = analysis.topology(capture("kafka-4-errors", TABLES))
    replicating = set(flows["client_id"][flows["action"] == "replicates"])
    assert replicating == {"raft-client-2", "broker-1-fetcher-0", "broker-2-fetcher-0"}
    assert not replicating & set(flows["client_id"][flows["action"] != "replicates"])


@pytest.mark.parametrize("name", ["kafka-4-java", "kafka-4-sarama", "kafka-4-franz-go"])
def test_offsets_read_from_the_start_are_those_written(name: str) -> None:
    """Offsets of writers are those of the broker's responses; of the reader, those of batches."""
    audit = analysis.audit(capture(name, TABLES))
    for _, rows in audit.groupby(["topic", "partition"]):
        written = rows[(rows["action"] == "produces") & rows["first_offset"].notna()]
        read = rows[(rows["action"] == "consumes") & (rows["first_offset"] == 0)]
        assert written["first_offset"].min() == 0
        assert read["last_offset"].max() == written["last_offset"].max()
        assert (written["last_offset"] - written["first_offset"] + 1).tolist() == written[
            "records"
        ].tolist()


def produced(offset: int | None, count: int, **columns: Any) -> dict[str, Any]:
    last = None if offset is None else offset + count - 1
    row = partition("Produce", client_id="p", offset=offset, last_offset=last, record_count=count)
    return row | {"bytes": 10 * count, "error_code": None if offset is None else 0} | columns


def audited(*rows: dict[str, Any]) -> pd.DataFrame:
    return analysis.audit(made(partitions=rows, connections=[connection()]))


def test_a_refused_batch_was_not_written() -> None:
    assert not len(audited(produced(0, 5, error_code=7)))


@pytest.mark.parametrize("logs", [("old", "new"), (None, None)])
def test_a_topic_that_was_created_again_has_another_log(logs: tuple[str | None, ...]) -> None:
    """Its offsets are other records, which are not joined to those of the old topic."""
    rows = [produced(offset, 2, topic_id=log) for log in logs for offset in (0, 2)]
    times = [{"time": START + at, "response_time": START + at} for at in range(len(rows))]
    ranges = audited(*(row | time for row, time in zip(rows, times, strict=True)))
    assert ranges[["first_offset", "last_offset", "records"]].to_numpy().tolist() == [[0, 3, 4]] * 2


def test_unanswered_records_have_no_offsets() -> None:
    ranges = audited(produced(None, 5), produced(0, 3), produced(None, 4))
    assert ranges["first_offset"].tolist() == [0, pd.NA]
    assert ranges["records"].tolist() == [3, 9]


@pytest.mark.slow
@settings(max_examples=12)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8)), min_size=1, max_size=20))
def test_ranges_are_the_offsets_that_moved(rows: list[tuple[int, int]]) -> None:
    ranges = audited(*(produced(offset, count) for offset, count in rows))
    moved = {each for offset, count in rows for each in range(offset, offset + count)}
    offsets = [
        range(first, last + 1)
        for first, last in zip(ranges["first_offset"], ranges["last_offset"], strict=True)
    ]
    assert {each for part in offsets for each in part} == moved
    assert sum(map(len, offsets)) == len(moved)
    gaps = [after.start - before.stop for before, after in pairwise(offsets)]
    assert all(gap > 0 for gap in gaps)
    assert ranges["records"].sum() == sum(count for _, count in rows)


def test_the_group_of_a_topic_is_taken_from_its_fetches() -> None:
    fetch = {"api": "Fetch", "client_id": "app"}
    exchanges = [
        exchange(api="OffsetCommit", group_id="g1", topics=["t"]),
        exchange(api="OffsetCommit", group_id="g2", topics=["u"]),
        exchange(api="Heartbeat", group_id="g1"),
        exchange(api="Heartbeat", group_id="g2"),
        exchange(api="Heartbeat", group_id="g3", client_ip="10.0.0.7"),
        exchange(api="DescribeGroups", group_id="g4"),  # of another client
    ]
    tables = made(
        partitions=[produced(0, 1, topic=topic, **fetch) for topic in ("t", "v")],
        exchanges=exchanges,
        connections=[connection()],
    )
    groups = analysis.topology(tables).fillna({"groups": "-"}).set_index("topic")["groups"]
    assert groups.to_dict() == {"t": "g1", "v": "-"}


def test_an_answer_needs_no_more_tables_than_it_names() -> None:
    for name in ("topology", "audit"):
        answer = ANSWERS[name]
        tables = capture("kafka-4-java", TABLES)
        assert len(answer.function({each: tables[each] for each in answer.tables}))


def test_a_group_is_not_credited_with_the_reads_of_other_connections() -> None:
    """Three connections of one host, all of the client id "rdkafka", as librdkafka has it."""
    read = {"api": "Fetch", "client_id": "rdkafka", "error_code": 0}
    commit = {"api": "OffsetCommit", "client_id": "rdkafka", "group_id": "g", "bytes": None}
    tables = made(
        partitions=[
            produced(0, 5, connection_id=1, partition=0, **read),
            produced(0, 5, connection_id=2, partition=1, **read),
            produced(5, 0, connection_id=3, partition=1, **commit),
        ],
        exchanges=[
            exchange(connection_id=1, api="Fetch", client_id="rdkafka"),
            exchange(connection_id=2, api="Fetch", client_id="rdkafka"),
            exchange(
                connection_id=3, api="OffsetCommit", client_id="rdkafka", group_id="g", topics=["t"]
            ),
        ],
        connections=[connection(connection_id=number) for number in (1, 2, 3)],
    )
    records = analysis.topology(tables).set_index("groups")["records"]
    assert records[records.index.isna()].tolist() == [5]
    assert records["g"] == 5


def test_a_connection_that_was_open_at_another_time_reads_for_no_group() -> None:
    fetch = {"api": "Fetch", "client_id": "app"}
    late = START + 60 * 10**9
    tables = made(
        partitions=[produced(0, 5, connection_id=1, **fetch)],
        exchanges=[
            exchange(connection_id=1, api="Fetch"),
            exchange(
                connection_id=2, api="Heartbeat", group_id="g", request_time=late,
                request_end_time=late, response_time=late + 1,
            ),
        ],
        connections=[connection(connection_id=number) for number in (1, 2)],
    )  # fmt: skip
    assert analysis.topology(tables)["groups"].isna().all()
