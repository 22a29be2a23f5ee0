"""States of partitions in Metadata responses."""

from __future__ import annotations

import struct
from pathlib import Path

from dissector.capture import open_capture
from tests.dissector.streams.dialogue import Dialogue, pcap, request, response
from tests.kafka_bytes import text


def test_a_partition_without_replicas(tmp_path: Path) -> None:
    """Its row does not depend on other partitions of the block."""
    partition = struct.pack(">hiiii", 5, 3, -1, 0, 0)  # LEADER_NOT_AVAILABLE, empty arrays
    topic = struct.pack(">h", 0) + text("orders") + b"\0" + struct.pack(">i", 1) + partition
    dialogue, connection = Dialogue.connected()
    connection.client(request(3, 1, 1, struct.pack(">i", -1)))
    connection.broker(response(1, struct.pack(">iii", 0, 7, 1) + topic))
    path = tmp_path / "topics.pcap"
    path.write_bytes(pcap(dialogue.packets))
    (row,) = open_capture(path).tables(["topics"])["topics"].to_pylist()
    assert (row["topic"], row["partition"], row["leader"]) == ("orders", 3, -1)
    assert (row["replicas"], row["isr"]) == ([], [])
