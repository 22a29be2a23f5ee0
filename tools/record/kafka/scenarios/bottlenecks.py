"""A consumer that reads too slowly, a slow link, and a broker that leads all partitions."""

from __future__ import annotations

from pathlib import Path

from tools.record.kafka import artifacts
from tools.record.kafka.cluster import Node
from tools.record.kafka.network import ip
from tools.record.kafka.recording import Recording
from tools.record.kafka.scenarios import recorded, scenario

ZERO_WINDOWS = "TCPToZeroWindowAdv"
"""Linux counts how often a host of the namespace closed its window."""


@scenario
def kafka_4_slow_reader() -> None:
    about = (
        "a consumer with a receive buffer of 16 kB that works for 500 ms between polls without a "
        "timeout, so responses wait in the buffer; the kernel counts closed windows"
    )
    # Segments are smaller than the buffer, as elsewhere.
    with recorded("kafka-4-slow-reader", about, "images:1:1", prepare=limit_packets) as cluster:
        cluster.java("Produce", "images", "40", "20000")
        cluster.java("SlowReader", "images", "40", "500", "receive.buffer.bytes=16384")
        cluster.recording.note("counted", **{ZERO_WINDOWS: closed_windows()})


@scenario
def kafka_4_slow_link() -> None:
    about = (
        "a link of 100 kbit/s (tc tbf) and a consumer with a timeout of 3 s, which is too short "
        "for its responses of 100 kB"
    )
    batch = ("batch.size=200000", "linger.ms=1000", "client.id=writer")
    limits = ("request.timeout.ms=3000", "default.api.timeout.ms=6000", "client.id=reader")
    with recorded("kafka-4-slow-link", about, "images:1:1", prepare=limit_packets) as cluster:
        cluster.java("Produce", "images", "10", "10000", *batch)
        link = ["tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "100kbit"]
        artifacts.run([*link, "burst", "3kb", "latency", "20s"])
        cluster.java("Member", "images", "readers", "25", *limits, name="reader")


@scenario
def kafka_4_unbalanced() -> None:
    about = (
        "three brokers without automatic leader balancing; two restart, so that the first leads "
        "all partitions; an admin client prints the leaders"
    )
    nodes = (Node(1), Node(2, "broker"), Node(3, "broker"))
    settings = {"auto.leader.rebalance.enable": "false"}
    with recorded(
        "kafka-4-unbalanced", about, "orders:12:3", nodes=nodes, settings=settings
    ) as cluster:
        for number in (2, 3):
            cluster.stop(number)
        for number in (2, 3):
            cluster.start(number)
        cluster.java("Produce", "orders", "40", "100", "pause=50")
        cluster.java("Leaders", "orders")


def limit_packets(_: Recording) -> None:
    """Let loopback carry packets of 1,500 bytes."""
    ip("link", "set", "lo", "mtu", "1500")


def closed_windows() -> int:
    """The kernel's counter of closed windows in this network namespace."""
    lines = Path("/proc/net/netstat").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith("TcpExt:"))
    return int(dict(zip(names, values, strict=True))[ZERO_WINDOWS])
