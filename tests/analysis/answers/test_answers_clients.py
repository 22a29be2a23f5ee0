"""Clients and their settings agree with what the clients themselves print."""

from __future__ import annotations

from functools import cache
from typing import Any

import pandas as pd
import pytest

import analysis
from analysis.answers import ANSWERS
from tests.analysis.answering import CAPTURES, capture, made, path_of, printed
from tests.analysis.made_rows import SECOND, START, connection, exchange

NAME = "kafka-4-tuned"
PRODUCERS = ("bulk-writer", "orders-writer", "metrics-writer", "sleepy-writer")
CONSUMERS = ("busy-reader", "tiny-reader", "narrow-reader", "patient-reader")


@cache
def rows(name: str = NAME) -> pd.DataFrame:
    return analysis.clients(capture(name, ANSWERS["clients"].tables)).set_index("client_id")


@cache
def settings(client_id: str) -> dict[str, tuple[str, str]]:
    """Value and evidence of each setting."""
    table = analysis.clients(capture(NAME, ANSWERS["clients"].tables), show="settings")
    mine = table[table["client_id"] == client_id]
    return dict(
        zip(mine["setting"], zip(mine["value"], mine["evidence"], strict=True), strict=True)
    )


def as_configured(setting: str, value: str, configured: str) -> bool:
    """Whether a value that requests contain is that of the configuration."""
    if setting == "acks":
        return value == {"-1": "all"}.get(configured, configured)
    if setting == "partition.assignment.strategy":
        return value.replace("-", "") in configured.lower().replace("assignor", "")
    return value == configured


@pytest.mark.parametrize("client_id", PRODUCERS + CONSUMERS)
def test_seen_settings_are_those_of_the_client(client_id: str) -> None:
    configured = printed(NAME, client_id, "configured", "settings")
    seen = {
        name: value for name, (value, evidence) in settings(client_id).items() if evidence == "seen"
    }
    compared = seen.keys() & configured.keys()
    for setting in compared:
        assert as_configured(setting, seen[setting], configured[setting]), setting
    assert len(compared) >= (3 if client_id in PRODUCERS else 8)


def about(client_id: str, setting: str) -> int:
    value, evidence = settings(client_id)[setting]
    assert evidence == "inferred"
    word, _, number = value.rpartition(" ")
    assert word in ("about", "at least")
    return int(number)


def test_inferred_settings_are_near_those_of_the_client() -> None:
    assert about("orders-writer", "linger.ms") == pytest.approx(200, rel=0.05)
    assert about("metrics-writer", "linger.ms") <= 5
    assert about("busy-reader", "heartbeat.interval.ms") == pytest.approx(500, rel=0.1)
    for client_id in ("bulk-writer", "orders-writer"):
        largest = float(printed(NAME, client_id, "measured", "metrics")["batch-size-max"])
        assert about(client_id, "batch.size") == largest
        assert largest <= int(printed(NAME, client_id, "configured", "settings")["batch.size"])
    assert about("bulk-writer", "max.in.flight.requests.per.connection") == 5  # Java's default


def test_full_batches_do_not_show_linger() -> None:
    assert "linger.ms" not in settings("bulk-writer")


@pytest.mark.parametrize("client_id", PRODUCERS + CONSUMERS)
def test_counts_are_the_metrics_of_the_client(client_id: str) -> None:
    metrics, row = printed(NAME, client_id, "measured", "metrics"), rows().loc[client_id]
    assert row["connections"] == float(metrics["connection-creation-total"])
    # The client prints its metrics before it closes, which takes requests.
    assert 0 <= row["requests"] - float(metrics["request-total"]) <= 2
    assert row["software"] == "apache-kafka-java 4.4.0"


def test_reconnects_after_idle_connections_were_closed() -> None:
    """connections.max.idle.ms is 500, and each of four records is 1.5 s after the previous one."""
    reconnects = rows()["reconnects"]
    assert reconnects["sleepy-writer"] == 3
    assert reconnects.drop("sleepy-writer").sum() == 0


@pytest.mark.parametrize(
    ("name", "security"),
    [
        ("kafka-4-sasl", "SASL_PLAINTEXT SCRAM-SHA-512"),
        ("kafka-4-java", "PLAINTEXT"),
        ("kafka-4-tls", "SSL"),
    ],
)
def test_security(name: str, security: str) -> None:
    tables: Any = capture(name, ANSWERS["clients"].tables)
    if name == "kafka-4-tls":
        path = path_of("kafka-4-tls")
        tables = analysis.load(
            path, ANSWERS["clients"].tables, keylog=CAPTURES / "kafka-4-tls.keys.log"
        )
    assert security in set(analysis.clients(tables)["security"])


def test_a_setting_that_changes_has_two_values() -> None:
    produce = {"api": "Produce", "api_key": 0}
    tables = made(
        exchanges=[exchange(**produce, acks=-1), *[exchange(**produce, acks=1)] * 2],
        connections=[connection()],
    )
    table = analysis.clients(tables, show="settings").set_index("setting")
    assert table.loc["acks", "value"] == "1, all"


@pytest.mark.parametrize(
    ("software", "codecs", "expected"),
    [
        ("apache-kafka-java", ["none"], [("none", "seen")]),
        ("apache-kafka-java", ["none", "lz4", "lz4"], [("lz4, none", "seen")]),
        ("confluent-kafka-python", ["none"], [("none", "inferred")]),
        ("confluent-kafka-python", ["none", "none", "lz4"], [("lz4", "seen")]),
        (None, ["none"], [("none", "inferred")]),
    ],
)
def test_a_batch_without_a_codec_is_certain_only_in_java(
    software: str | None, codecs: list[str], expected: list[tuple[str, str]]
) -> None:
    """librdkafka, franz-go and kafka-python send a batch uncompressed if it does not shrink."""
    batch = {"connection_id": 0, "client_id": "app", "api": "Produce", "time": START, "bytes": 90}
    tables = made(
        exchanges=[exchange(api="Produce", api_key=0)],
        connections=[connection(software_name=software)],
        batches=[batch | {"codec": codec, "record_count": 1} for codec in codecs],
    )
    table = analysis.clients(tables, show="settings").query("setting == 'compression.type'")
    assert [*zip(table["value"], table["evidence"], strict=True)] == expected


@pytest.mark.parametrize(
    ("age_ms", "expected"),
    [(25, ["about 25"]), (-3, ["about 0"]), (-7_200_000, []), (3_600_025, [])],
)
def test_a_difference_of_clocks_is_not_linger(age_ms: int, expected: list[str]) -> None:
    """A batch that is older than delivery.timeout.ms, 120 s by default, is not sent (KIP-91)."""
    batch = {
        "connection_id": 0, "client_id": "app", "api": "Produce", "time": START, "bytes": 90,
        "record_count": 1, "base_timestamp": START - age_ms * 10**6,
        "timestamp_type": "create_time",
    }  # fmt: skip
    tables = made(
        exchanges=[exchange(api="Produce", api_key=0)], connections=[connection()], batches=[batch]
    )
    table = analysis.clients(tables, show="settings").query("setting == 'linger.ms'")
    assert table["value"].tolist() == expected


@pytest.mark.parametrize(
    ("software", "protocol", "expected"),
    [
        ("apache-kafka-java", "range", {"max.poll.interval.ms", "partition.assignment.strategy"}),
        ("librdkafka", "range", {"max.poll.interval.ms", "partition.assignment.strategy"}),
        ("kgo", "range", {"rebalance.timeout.ms", "partition.assignment.strategy"}),
        (None, "range", {"rebalance.timeout.ms", "partition.assignment.strategy"}),
        ("apache-kafka-java", "sessioned", {"rebalance.timeout.ms", "connect.protocol"}),
    ],
)
def test_the_rebalance_timeout_is_not_always_that_of_poll(
    software: str | None, protocol: str, expected: set[str]
) -> None:
    """A worker of Kafka Connect does not poll; aiokafka and franz-go have a setting of their own.
    The first JoinGroup, which gets a member id (KIP-394), has no protocol."""
    row = {
        "connection_id": 0, "client_id": "app", "api": "JoinGroup", "group_type": "classic",
        "group_id": "g", "rebalance_timeout_ms": 60_000,
    }  # fmt: skip
    tables = made(
        exchanges=[exchange(api="JoinGroup", api_key=11)],
        connections=[connection(software_name=software)],
        memberships=[row, row | {"protocol": protocol}],
    )
    table = analysis.clients(tables, show="settings").set_index("setting")
    names = {"max.poll.interval.ms", "rebalance.timeout.ms", "connect.protocol"}
    names |= {"partition.assignment.strategy"}
    assert names & {*table.index} == expected
    assert {"60000", protocol} <= {*table["value"]}


@pytest.mark.parametrize(
    ("apis", "is_in_group"),
    [
        (["OffsetFetch", "OffsetCommit"], True),  # a consumer that assigns its partitions
        (["ConsumerGroupDescribe", "OffsetFetch"], False),  # kafka-consumer-groups.sh
        (["DescribeGroups", "OffsetCommit"], False),
        (["ShareGroupHeartbeat"], True),
        (["DescribeGroups", "JoinGroup"], True),
    ],
)
def test_groups_that_an_administrator_reads_are_no_setting(
    apis: list[str], is_in_group: bool
) -> None:
    exchanges = [exchange(api=api, group_id="g") for api in apis]
    tables = made(exchanges=exchanges, connections=[connection()])
    table = analysis.clients(tables, show="settings")
    assert ("group.id" in {*table["setting"]}) == is_in_group


def test_batches_that_are_sent_with_the_oldest_do_not_lower_linger() -> None:
    """When linger.ms has expired for a batch, the batches of the other partitions are sent, too."""
    batches = [
        {
            "connection_id": 0, "client_id": "app", "api": "Produce", "correlation_id": request,
            "time": START + request * SECOND, "partition": partition, "bytes": 90,
            "record_count": 1, "timestamp_type": "create_time",
            "base_timestamp": START + request * SECOND - age_ms * 10**6,
        }
        for request in range(4)
        for partition, age_ms in enumerate((40, 11, 3))
    ]  # fmt: skip
    tables = made(
        exchanges=[exchange(api="Produce", api_key=0)], connections=[connection()], batches=batches
    )
    table = analysis.clients(tables, show="settings").query("setting == 'linger.ms'")
    assert [*table["value"]] == ["about 40"]


def test_only_a_connection_after_the_end_of_another_is_a_reconnect() -> None:
    spans = [(0, 5, "fin"), (3, 9, "fin"), (6, 7, None)]
    links = [
        connection(
            connection_id=number, closed=closed,
            first_time=START + first * SECOND, last_time=START + last * SECOND,
        )
        for number, (first, last, closed) in enumerate(spans)
    ]  # fmt: skip
    exchanges = [exchange(connection_id=number) for number in range(3)]
    (row,) = analysis.clients(made(exchanges=exchanges, connections=links)).to_dict("records")
    assert (row["connections"], row["reconnects"]) == (3, 1)


def test_errors_of_normal_operation_do_not_count() -> None:
    normal, failed = "REBALANCE_IN_PROGRESS", "TOPIC_AUTHORIZATION_FAILED"
    of_responses: list[list[str | None]] = [
        [normal], [normal, failed, failed], ["UNSUPPORTED_VERSION"], [failed], [None],
    ]  # fmt: skip
    exchanges = [exchange(correlation_id=n) for n in range(6)]
    errors = [
        {"connection_id": 0, "correlation_id": n, "api": "Metadata", "error": error,
         "time": exchanges[n]["response_time"]}
        for n, names in enumerate(of_responses) for error in names
    ]  # fmt: skip
    (row,) = analysis.clients(made(exchanges=exchanges, errors=errors)).to_dict("records")
    assert (row["requests"], row["errors"]) == (6, 4)


def test_a_burst_of_requests_is_not_a_rate() -> None:
    # 3 requests within 2 ms, 1 s, and 4 s.
    for gap_ms, expected in ((1, 2), (500, 2), (2000, 0.5)):
        times = [START + n * gap_ms * 10**6 for n in range(3)]
        exchanges = [exchange(correlation_id=n, request_time=t) for n, t in enumerate(times)]
        (row,) = analysis.clients(made(exchanges=exchanges)).to_dict("records")
        assert row["per_second"] == expected


def test_versions_and_software_are_in_the_order_of_their_numbers() -> None:
    rows = [exchange(connection_id=n % 2, api_version=version) for n, version in enumerate((10, 9))]
    links = [
        connection(connection_id=n, software_version=version)
        for n, version in enumerate(("3.10.0", "3.9.1"))
    ]
    (row,) = analysis.clients(made(exchanges=rows, connections=links)).to_dict("records")
    assert row["versions"] == "Metadata 9, Metadata 10"
    assert row["software"] == "apache-kafka-java 3.9.1, apache-kafka-java 3.10.0"
