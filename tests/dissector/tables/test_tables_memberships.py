"""Rows of `memberships` agree with the configuration of the recorded clients."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from dissector.capture import open_capture
from tests.captures.truth import CAPTURES
from tests.dissector.streams.dialogue import Dialogue, request, response


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


def test_the_protocol_of_a_sync_group_is_the_chosen_one(tmp_path: Path) -> None:
    """A member may leave it out; the response of version 5 has it (KIP-559)."""
    connection = (dialogue := Dialogue()).connect()
    connection.client(request(14, 5, 1, b"\0\2g" + struct.pack(">i", 3) + b"\2m\0\0\0\1\0"))
    connection.broker(response(1, b"\0" + struct.pack(">ih", 0, 0) + b"\x09consumer\6range\1\0"))
    path = dialogue.written(tmp_path / "sync.pcap")
    (row,) = open_capture(path).tables(["memberships"])["memberships"].to_pylist()
    assert (row["api"], row["protocol"], row["error"]) == ("SyncGroup", "range", "NONE")
