"""A consumer that reads too slowly, a slow link, and a broker that leads all partitions."""

from __future__ import annotations

from pathlib import Path

from tools.record.kafka import artifacts, clients
from tools.record.kafka.artifacts import KAFKA_4
from tools.record.kafka.cluster import Cluster, Node
from tools.record.kafka.network import ip
from tools.record.kafka.recording import Recording
from tools.record.kafka.scenarios import scenario

ZERO_WINDOWS = "TCPToZeroWindowAdv"
"""Linux counts how often a host of the namespace closed its window."""


@scenario
def kafka_4_slow_reader() -> None:
    """A consumer that works between polls, while its responses arrive."""
    broker, java = artifacts.broker(KAFKA_4), artifacts.client(KAFKA_4)
    about = (
        "a consumer with a receive buffer of 16 kB that works for 500 ms between polls without a "
        "timeout, so responses wait in the buffer; the kernel counts closed windows"
    )
    with Recording("kafka-4-slow-reader", about) as recording:
        ip("link", "set", "lo", "mtu", "1500")  # segments are smaller than the buffer, as elsewhere
        with Cluster(recording, KAFKA_4, broker) as cluster:
            clients.java(recording, java, "Topics", cluster.bootstrap, "images:1:1")
            clients.java(recording, java, "Produce", cluster.bootstrap, "images", "40", "20000")
            given = ("40", "500", "receive.buffer.bytes=16384")
            clients.java(recording, java, "SlowReader", cluster.bootstrap, "images", *given)
            recording.note("counted", **{ZERO_WINDOWS: closed_windows()})


@scenario
def kafka_4_slow_link() -> None:
    """A response that takes longer than the client waits."""
    broker, java = artifacts.broker(KAFKA_4), artifacts.client(KAFKA_4)
    about = (
        "a link of 100 kbit/s (tc tbf) and a consumer with a timeout of 3 s, which is too short "
        "for its responses of 100 kB"
    )
    batch = ("batch.size=200000", "linger.ms=1000", "client.id=writer")
    limits = ("request.timeout.ms=3000", "default.api.timeout.ms=6000", "client.id=reader")
    command, _ = clients.in_java(java, "Member")
    with Recording("kafka-4-slow-link", about) as recording:
        ip("link", "set", "lo", "mtu", "1500")
        with Cluster(recording, KAFKA_4, broker) as cluster:
            clients.java(recording, java, "Topics", cluster.bootstrap, "images:1:1")
            given = [cluster.bootstrap, "images"]
            clients.java(recording, java, "Produce", *given, "10", "10000", *batch)
            link = ["tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "100kbit"]
            artifacts.run([*link, "burst", "3kb", "latency", "20s"])
            recording.run("reader", [*command, *given, "readers", "25", *limits])


@scenario
def kafka_4_unbalanced() -> None:
    """Two of three brokers restart, and their leaders do not move back."""
    broker, java = artifacts.broker(KAFKA_4), artifacts.client(KAFKA_4)
    about = (
        "three brokers without automatic leader balancing; two restart, so that the first leads "
        "all partitions; an admin client prints the leaders"
    )
    nodes = (Node(1), Node(2, "broker"), Node(3, "broker"))
    settings = {"auto.leader.rebalance.enable": "false"}
    with (
        Recording("kafka-4-unbalanced", about) as recording,
        Cluster(recording, KAFKA_4, broker, nodes, settings) as cluster,
    ):
        clients.java(recording, java, "Topics", cluster.bootstrap, "orders:12:3")
        for number in (2, 3):
            cluster.stop(number)
        for number in (2, 3):
            cluster.start(number)
        clients.java(
            recording, java, "Produce", cluster.bootstrap, "orders", "40", "100", "pause=50"
        )
        clients.java(recording, java, "Leaders", cluster.bootstrap, "orders")


def closed_windows() -> int:
    """The kernel's counter of closed windows in this network namespace."""
    lines = Path("/proc/net/netstat").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith("TcpExt:"))
    return int(dict(zip(names, values, strict=True))[ZERO_WINDOWS])
