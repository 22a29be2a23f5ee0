"""States of partitions in Metadata responses, and in requests of a controller."""

from __future__ import annotations

import struct
from pathlib import Path

from dissector.capture import open_capture
from tests.dissector.streams.dialogue import Dialogue, request, response
from tests.kafka_bytes import text


def test_a_partition_without_replicas(tmp_path: Path) -> None:
    """Its row does not depend on other partitions of the block."""
    partition = struct.pack(">hiiii", 5, 3, -1, 0, 0)  # LEADER_NOT_AVAILABLE, empty arrays
    topic = struct.pack(">h", 0) + text("orders") + b"\0" + struct.pack(">i", 1) + partition
    dialogue, connection = Dialogue.connected()
    connection.client(request(3, 1, 1, struct.pack(">i", -1)))
    connection.broker(response(1, struct.pack(">iii", 0, 7, 1) + topic))
    path = dialogue.written(tmp_path / "topics.pcap")
    (row,) = open_capture(path).tables(["topics"])["topics"].to_pylist()
    assert (row["topic"], row["partition"], row["leader"]) == ("orders", 3, -1)
    assert (row["replicas"], row["isr"]) == ([], [])


def test_a_controller_with_zookeeper_sends_leaders(tmp_path: Path) -> None:
    """LeaderAndIsr 0 and UpdateMetadata 0; a leader -2 stands for a topic that is being deleted."""

    def state(name: str, leader: int, epoch: int, isr: tuple[int, ...]) -> bytes:
        """The state of partition 3, with controller and ZooKeeper versions."""
        lists = [struct.pack(f">i{len(ids)}i", len(ids), *ids) for ids in (isr, (1, 2))]
        start = text(name) + struct.pack(">iiii", 3, 1, leader, epoch)
        return start + lists[0] + struct.pack(">i", 0) + lists[1]

    def sent(*states: bytes) -> bytes:
        """The body of both requests: controller, its epoch, states, no brokers."""
        return struct.pack(">iii", 1, 1, len(states)) + b"".join(states) + struct.pack(">i", 0)

    dialogue, connection = Dialogue.connected()
    connection.client(request(4, 0, 1, sent(state("orders", 2, 0, (1, 2)))))
    connection.broker(response(1, struct.pack(">hi", 0, 0)))
    connection.client(
        request(6, 0, 2, sent(state("orders", 2, 0, (1, 2)), state("gone", -2, 0, ())))
    )
    connection.client(request(6, 0, 3, sent(state("orders", 1, 1, (1,)))))
    path = dialogue.written(tmp_path / "topics.pcap")
    tables = open_capture(path).tables(["topics", "exchanges"])
    times = tables["exchanges"]["request_time"].to_pylist()
    columns = ("topic", "partition", "leader", "leader_epoch", "replicas", "isr", "time")
    assert [tuple(row[c] for c in columns) for row in tables["topics"].to_pylist()] == [
        ("orders", 3, 2, 0, [1, 2], [1, 2], times[0]),
        ("orders", 3, 1, 1, [1, 2], [1], times[2]),
    ]
