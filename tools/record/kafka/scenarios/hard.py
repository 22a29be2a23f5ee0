"""Captures that are hard to read: lossy networks, tunnels, cut packets, late starts."""

from __future__ import annotations

import time

from tools.record.kafka import artifacts, clients
from tools.record.kafka.artifacts import KAFKA_4
from tools.record.kafka.cluster import Cluster
from tools.record.kafka.network import Weather, Wire
from tools.record.kafka.recording import Recording
from tools.record.kafka.scenarios import each, scenario

WEATHER = {
    "kafka-4-net-loss": ("3 % of the packets lost each way", Weather(loss=0.03, delay_ms=5)),
    "kafka-4-net-disorder": (
        "8 % of the packets late, 5 % twice, 2 % lost",
        Weather(loss=0.02, twice=0.05, late=0.08, delay_ms=10),
    ),
    "kafka-4-net-delay": ("80 ms each way", Weather(delay_ms=80)),
    "kafka-4-net-vxlan": (
        "VXLAN encapsulation; 1 % of the packets lost, 4 % late",
        Weather(loss=0.01, late=0.04, delay_ms=3),
    ),
}


def weather(name: str) -> None:
    """A producer and a consumer on another host, behind a lossy network."""
    broker, java = artifacts.broker(KAFKA_4), artifacts.client(KAFKA_4)
    about, given = WEATHER[name]
    vxlan = name.endswith("vxlan")
    select = "udp port 4789" if vxlan else "tcp"
    with (
        Recording(name, f"{about}; captured at the broker") as recording,
        Wire(recording, given, vxlan=vxlan) as wire,
    ):
        recording.tap(interface="near", select=select, clients=f"{wire.far}:")
        with Cluster(recording, KAFKA_4, broker, host=wire.near) as cluster:
            cluster.java("Topics", "far:2:1")
            produce, _ = clients.in_java(java, "Produce")
            member, _ = clients.in_java(java, "Member")
            produced = [cluster.bootstrap, "far", "150", "2000", "pause=20", "linger.ms=5"]
            reader = recording.start(
                "member", [*wire.there, *member, cluster.bootstrap, "far", "readers", "12"]
            )
            time.sleep(1)
            recording.run("produce", [*wire.there, *produce, *produced])
            reader.wait(60)


each(weather, *WEATHER)


@scenario
def kafka_4_cut() -> None:
    """The same work in incomplete captures: a late start, truncated packets, one direction."""
    broker = artifacts.broker(KAFKA_4)
    artifacts.client(KAFKA_4)
    about = "a producer and a group member; the captures kafka-4-cut-* are parts of it"
    with Recording("kafka-4-cut", about) as recording:
        port = ":9092"
        both, asks, answers = "tcp port 9092", "tcp dst port 9092", "tcp src port 9092"
        recording.tap(select=both, ports=port)
        short, to_broker, from_broker = (
            f"kafka-4-cut-{suffix}" for suffix in ("snaplen", "requests", "responses")
        )
        recording.tap(short, "96 bytes of each packet", snaplen=96, select=both, ports=port)
        recording.tap(to_broker, "only packets to the broker", select=asks, ports=port)
        recording.tap(from_broker, "only packets from the broker", select=answers, ports=port)
        with Cluster(recording, KAFKA_4, broker) as cluster:
            cluster.java("Topics", "work:2:1")
            reader = cluster.start_java("member", "Member", "work", "readers", "12")
            produced = ("work", "150", "2000", "pause=50", "linger.ms=5")
            producer = cluster.start_java("produce", "Produce", *produced)
            time.sleep(6)
            midway = "started after all connections were open"
            recording.tap("kafka-4-cut-midway", midway, select=both, ports=port)
            producer.wait(60)
            reader.wait(60)
