"""Kafka 4 with a quorum of three controllers, and two brokers."""

from __future__ import annotations

import re
import shutil
import time

from tools.record.kafka.cluster import Node
from tools.record.kafka.scenarios import recorded, scenario

NODES = [Node(n, "controller") for n in (1, 2, 3)] + [Node(n, "broker") for n in (4, 5)]
# Snapshots often, and a log that soon begins after one, so that a newcomer must fetch it.
SNAPSHOTS = {
    "metadata.log.max.snapshot.interval.ms": "3000",
    "metadata.log.max.record.bytes.between.snapshots": "1000",
    "metadata.log.segment.ms": "3000",
    "metadata.max.retention.ms": "4000",
    "offsets.topic.replication.factor": "2",
    "replica.fetch.wait.max.ms": "500",
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "5000",
}


@scenario
def kafka_4_quorum() -> None:
    about = (
        "three controllers, two brokers: Raft, heartbeats, forwarded requests; the leader killed, "
        "back with an empty disk; a broker stopped and started; a controller at a new port"
    )
    with recorded(
        "kafka-4-quorum", about, "orders:2:2", nodes=NODES, settings=SNAPSHOTS
    ) as cluster:
        cluster.java("Produce", "orders", "20", "40")
        leader = int(re.findall(r"leader (\d+)", cluster.java("Quorum"))[-1])
        cluster.kill(leader)
        time.sleep(4)
        cluster.java("Topics", "later:2:2")
        shutil.rmtree(cluster.recording.work / f"node-{leader}" / "data")
        cluster.format(leader)
        cluster.start(leader)
        cluster.stop(5)
        cluster.java("Produce", "orders", "20", "40")
        cluster.start(5)
        moved = next(node.id for node in NODES if node.id != leader)
        cluster.stop(moved)
        cluster.configure(moved, listeners="CONTROLLERS://127.0.0.1:19099")
        cluster.start(moved)
        time.sleep(6)
