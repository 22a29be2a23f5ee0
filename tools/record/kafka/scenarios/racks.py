"""Brokers in two racks, and clients in both, not all of which read from the closest replica."""

from __future__ import annotations

from tools.record.kafka import artifacts, clients
from tools.record.kafka.artifacts import KAFKA_4
from tools.record.kafka.cluster import Cluster, Node
from tools.record.kafka.network import Subnet
from tools.record.kafka.recording import Recording
from tools.record.kafka.scenarios import scenario

SELECTOR = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


@scenario
def kafka_4_racks() -> None:
    broker, java = artifacts.broker(KAFKA_4), artifacts.client(KAFKA_4)
    about = (
        "brokers in two racks and subnets, only the first with a replica selector; consumers with "
        "client.rack, without it, and with an unknown rack; all print their metrics"
    )
    consume, _ = clients.in_java(java, "Racks")
    produce, _ = clients.in_java(java, "Produce")
    with Recording("kafka-4-racks", about) as recording:
        near, far = (Subnet(recording, f"zone-{n}", f"10.{n}.0.") for n in (1, 2))
        nodes = (
            Node(1, host=near.near, settings={"broker.rack": "rack-1", **SELECTOR}),
            Node(2, "broker", host=far.near, settings={"broker.rack": "rack-2"}),
        )
        recording.tap(interface="any")
        with Cluster(recording, KAFKA_4, broker, nodes) as cluster:
            topics = ("orders:1:1/2", "audit:1:2/1", "notes:1:1")
            cluster.java("Topics", *topics)
            readers = [
                recording.start(
                    name,
                    [*there, *consume, cluster.bootstrap, topic, "14", f"client.id={name}",
                     f"group.id={name}s", *rack],
                )
                for name, there, topic, rack in (
                    ("close-reader", far.there, "orders", ["client.rack=rack-2"]),
                    ("plain-reader", far.there, "orders", []),
                    ("wrong-reader", far.there, "orders", ["client.rack=rack-9"]),
                    ("early-reader", near.there, "audit", ["client.rack=rack-1"]),
                    ("notes-reader", far.there, "notes", ["client.rack=rack-2"]),
                )
            ]  # fmt: skip
            writers = {"orders": near.there, "audit": far.there, "notes": far.there}
            for topic, there in writers.items():
                given = (cluster.bootstrap, topic, "40", "500", "pause=100", "linger.ms=200")
                command = [*there, *produce, *given, f"client.id={topic}-writer"]
                readers.append(recording.start(f"{topic}-writer", command))
            for process in readers:
                process.wait(60)
