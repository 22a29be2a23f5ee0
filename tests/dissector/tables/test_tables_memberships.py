"""Rows of `memberships` agree with the configuration of the recorded clients."""

from __future__ import annotations

import pytest

from dissector.capture import open_capture
from tests.captures.truth import CAPTURES


@pytest.mark.parametrize(
    ("name", "api"),
    [
        ("kafka-4-group-consumer", "ConsumerGroupHeartbeat"),
        ("kafka-4-group-streams", "StreamsGroupHeartbeat"),
    ],
)
def test_a_heartbeat_without_a_rebalance_timeout_has_none(name: str, api: str) -> None:
    """The first heartbeat of a member has max.poll.interval.ms, later ones have -1 (KIP-848)."""
    table = open_capture(CAPTURES / f"{name}.pcap.zst").tables(["memberships"])["memberships"]
    rows = [row for row in table.to_pylist() if row["api"] == api]
    assert {row["rebalance_timeout_ms"] for row in rows} == {300_000, None}
