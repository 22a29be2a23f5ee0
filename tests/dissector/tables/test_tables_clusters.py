"""Cluster ids are those with which the disks of the brokers were formatted."""

from __future__ import annotations

import pytest

from dissector.capture import open_capture
from tests.captures.truth import CAPTURES
from tools.record.kafka.cluster import CLUSTER_ID

Ids = set[tuple[str, str, int, str]]


def ids(name: str) -> Ids:
    """API, address and port of the broker, and cluster id of each message with one."""
    tables = open_capture(CAPTURES / f"{name}.pcap.zst").tables(["clusters"])
    columns = ("api", "broker_ip", "broker_port", "cluster_id")
    return {tuple(row[column] for column in columns) for row in tables["clusters"].to_pylist()}


@pytest.mark.parametrize("name", ["kafka-3-java-2-0", "kafka-3-admin", "kafka-4-quorum"])
def test_every_message_has_the_id_of_its_cluster(name: str) -> None:
    assert {row[-1] for row in ids(name)} == {CLUSTER_ID}


def test_requests_and_responses() -> None:
    apis = {row[0] for row in ids("kafka-4-quorum")} | {row[0] for row in ids("kafka-4-admin")}
    assert apis >= {
        "Metadata", "DescribeCluster", "BrokerRegistration", "Fetch", "Vote", "BeginQuorumEpoch",
    }  # fmt: skip


def test_two_clusters() -> None:
    """The brokers and controllers of tools/record/kafka/scenarios/findings.py."""
    first, second = CLUSTER_ID, "cmVjb3JkZXIta2Fma2EtMg"
    assert {row[1:] for row in ids("kafka-4-two-clusters")} == {
        ("127.0.0.1", 9092, first), ("127.0.0.1", 19092, first),
        ("127.0.0.2", 9093, second), ("127.0.0.2", 19093, second),
    }  # fmt: skip


def test_responses_without_an_id() -> None:
    """Metadata before version 2."""
    assert {row[0] for row in ids("kafka-3-java-0-9")} == {"Metadata", "BrokerRegistration"}
    (row,) = {row for row in ids("kafka-3-java-0-9") if row[0] == "Metadata"}
    assert row[2] == 9092
