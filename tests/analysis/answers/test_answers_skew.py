"""Skew agrees with the records that a reader of all partitions printed.

Two topics have as many partitions. The Java client alone wrote `even`, so its partition of a
key is that of the default partitioner.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pandas as pd
import pytest

import analysis
from analysis.answers import ANSWERS
from tests.analysis.answering import capture, made
from tests.analysis.made_rows import connection, exchange, partition
from tools.record.kafka.truth import read

NAME = "kafka-4-skewed"


def rows(**options: Any) -> pd.DataFrame:
    return analysis.skew(capture(NAME, ANSWERS["skew"].tables_for(options)), **options)


@cache
def log() -> pd.DataFrame:
    facts = read(NAME)
    return pd.DataFrame([fact for fact in facts if fact.get("event") == "received"])


def test_records_of_each_partition() -> None:
    expected = log().groupby(["topic", "partition"]).size()
    table = rows().set_index(["topic", "partition"])
    assert table["produced_records"].to_dict() == expected.to_dict()
    assert set(table["partition_count"]) == {6}
    assert table["share_percent"].groupby("topic").sum().tolist() == pytest.approx([100, 100])


def test_the_partition_of_the_hot_key_is_hot() -> None:
    keyed = log()[log()["topic"] == "keyed"]
    busiest = int(keyed["partition"].mode()[0])
    assert rows().query("hot")[["topic", "partition"]].to_numpy().tolist() == [["keyed", busiest]]
    (hot,) = rows(show="keys", top=1).query("topic == 'keyed'").to_dict("records")
    mine = keyed[keyed["key"] == "key-7"]
    assert (hot["key"], hot["records"]) == ("key-7", len(mine))
    assert hot["share_percent"] == pytest.approx(100 * len(mine) / len(keyed))
    assert hot["partitions"] == ", ".join(map(str, sorted(set(mine["partition"]))))


def test_default_partitions_are_those_of_the_java_client() -> None:
    java = log()[log()["topic"] == "even"].set_index("key")["partition"]
    keys = rows(show="keys", top=0).set_index(["topic", "key"])
    for topic in ("even", "keyed"):
        assert keys.loc[topic]["default_partition"].to_dict() == java.to_dict()


def test_only_the_client_with_another_partitioner_misplaces_records() -> None:
    java = log()[log()["topic"] == "even"].set_index("key")["partition"]
    misplaced = (log()["partition"] != log()["key"].map(java)).sum()
    table = rows(show="partitioners").set_index(["topic", "client_id"])["misplaced"]
    assert table["keyed", "foreign"] == misplaced
    assert table.drop(("keyed", "foreign")).sum() == 0


def test_a_partition_that_metadata_does_not_list_counts() -> None:
    produced = partition("Produce", partition=5, bytes=100)
    topics = [{"topic": "t", "partition": 0}]
    tables = made(partitions=[produced], topics=topics, connections=[connection()])
    (row,) = analysis.skew(tables).to_dict("records")
    assert row["partition_count"] == 6


def test_without_metadata_only_partitions_with_requests_have_a_known_load() -> None:
    partitions = [partition("Produce", partition=number, bytes=100) for number in (2, 5)]
    rows = analysis.skew(made(partitions=partitions, connections=[connection()]))
    assert rows["ratio"].tolist() == [1, 1]
    assert set(rows["partition_count"]) == {6}


@pytest.mark.parametrize("others", [False, True])
def test_partitions_of_brokers_that_are_not_in_the_capture_have_no_known_load(others: bool) -> None:
    """Broker 0 leads partitions 0, 3, 6 and 9, of which the last one is idle. The capture was taken
    there, or also has an empty Fetch from each other broker."""
    topics = [{"topic": "t", "partition": n, "leader": n % 3, "time": 1} for n in range(12)]
    partitions = [
        partition("Produce", partition=number, bytes=bytes)
        for number, bytes in ((0, 200), (3, 100), (6, 100))
    ]
    partitions += [partition("Fetch", partition=number) for number in (1, 2) if others]
    tables = made(partitions=partitions, topics=topics, connections=[connection()])
    hottest = analysis.skew(tables).iloc[0]
    assert (hottest["partition"], hottest["share_percent"], hottest["partition_count"]) == (
        0, 50, 12,
    )  # fmt: skip
    assert hottest["ratio"] == (6 if others else 2)


def test_followers_do_not_count() -> None:
    partitions = [
        partition("Produce", bytes=100),
        partition("Fetch", bytes=100, replica_id=2),
        partition("Fetch", bytes=20, partition=2),
        partition("Produce", bytes=100, partition=2, error_code=6),
    ]
    topics = [{"topic": "t", "partition": n, "leader": 1, "time": 1} for n in range(3)]
    tables = made(partitions=partitions, connections=[connection()], topics=topics)
    first, second = analysis.skew(tables).to_dict("records")
    assert (first["partition"], first["produced_bytes"], first["fetched_bytes"]) == (0, 100, 0)
    assert (first["partition_count"], first["ratio"], first["hot"]) == (3, 2.5, True)
    assert (second["ratio"], second["brokers"]) == (0.5, "10.0.0.9:9092")
    (broker,) = analysis.skew(tables, show="brokers").to_dict("records")
    assert (broker["ratio"], broker["partitions"], broker["hot"]) == (1, 2, False)


def test_fetched_records_count_once_if_no_producer_is_in_the_capture() -> None:
    record = {"connection_id": 0, "api": "Fetch", "topic": "t", "partition": 1, "key": b"abc"}
    records = [record | {"offset": offset} for offset in (4, 5, 4)]
    topics = [{"topic": "t", "partition": number} for number in (0, 1)]
    tables = made(records=records, topics=topics, exchanges=[exchange()])
    (key,) = analysis.skew(tables, show="keys").to_dict("records")
    # murmur2 of abc is 479470107, as in UtilsTest of Kafka.
    assert (key["key"], key["records"], key["default_partition"]) == ("abc", 2, 479470107 % 2)


def test_records_without_a_key_are_records_of_the_topic() -> None:
    keys = [b"a", None, None, b"a", b"b"]
    records = [{"api": "Produce", "topic": "t", "partition": 0, "key": key} for key in keys]
    partitions = [{"api": "Produce", "topic": "t", "partition": 0}]
    tables = made(records=records, partitions=partitions)
    shares = analysis.skew(tables, show="keys").set_index("key")["share_percent"]
    assert shares.to_dict() == pytest.approx({"a": 40, "b": 20})
    (row,) = analysis.skew(tables, show="partitioners").to_dict("records")
    assert (row["records"], row["keys"]) == (3, 2)
