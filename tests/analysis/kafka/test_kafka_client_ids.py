"""Client ids of brokers."""

from __future__ import annotations

import pytest

from analysis.kafka.client_ids import is_broker
from dissector.capture import open_capture
from tests.captures.recorded import CAPTURES


@pytest.mark.parametrize("name", ["kafka-0-8", "kafka-0-10", "kafka-1-1", "kafka-2-8"])
def test_followers_are_those_with_a_replica_id(name: str) -> None:
    rows = open_capture(CAPTURES / f"{name}.pcap.zst").tables(["partitions", "exchanges"])
    followers = {
        row["connection_id"]
        for row in rows["partitions"].to_pylist()
        if row["api"] == "Fetch" and (row["replica_id"] or -1) >= 0
    }
    fetches = [row for row in rows["exchanges"].to_pylist() if row["api"] == "Fetch"]
    assert followers
    for row in fetches:
        assert is_broker(row["client_id"]) == (row["connection_id"] in followers), row["client_id"]


def test_coordinators_and_members_of_a_quorum() -> None:
    assert is_broker("broker-2-txn-marker-sender")
    assert is_broker("raft-client-3")
    for name in (None, "", "1", "broker-1", "my-broker-1-fetcher-0", "ReplicaFetcherThread"):
        assert not is_broker(name)
