"""Clients and brokers that `diagnose` reports, and a constant load for `compare`."""

from __future__ import annotations

import signal
import time

from tools.record.kafka import artifacts, clients
from tools.record.kafka.artifacts import KAFKA_4
from tools.record.kafka.cluster import Cluster, Node
from tools.record.kafka.disk import Disk
from tools.record.kafka.recording import Recording
from tools.record.kafka.scenarios import recorded, scenario

SETTINGS = {"group.min.session.timeout.ms": "1000", "quota.window.num": "4"}


def run(cluster: Cluster, *roles: str) -> None:
    """Start a client for each ``ROLE NAME SECONDS PROPERTY=VALUE...``, and wait for all of them."""
    recording = cluster.recording
    command, _ = clients.in_python("misused")
    processes = [
        recording.start(role.split()[1], [*command, cluster.bootstrap, *role.split()])
        for role in roles
    ]
    for role, process in zip(roles, processes, strict=True):
        if code := process.wait(120):
            raise RuntimeError(f"{role} ended with {code}:\n{recording.log(role.split()[1])}")


@scenario
def kafka_4_queued() -> None:
    about = "a consumer that asks for offsets on the connection on which its Fetch waits"
    with recorded("kafka-4-queued", about, "quiet:1:1", settings=SETTINGS) as cluster:
        run(cluster, "querying querying 32")


@scenario
def kafka_4_misused() -> None:
    about = (
        "clients with one fault each: one record per request and all in one partition, no "
        "compression, empty fetches, a connection per record, max.poll.interval.ms exceeded, too "
        "slow for its topic, a transaction that never ends"
    )
    topics = ("orders:4:1", "logs:1:1", "quiet:1:1", "ledger:1:1")
    with recorded("kafka-4-misused", about, *topics, settings=SETTINGS) as cluster:
        run(
            cluster, "hurried hurried 5", "verbose verbose 14", "impatient impatient 4",
            "reconnecting reconnecting 5", "overworked overworked 20", "steady steady 20",
            "slow slow 15", "forgetful forgetful 18",
        )  # fmt: skip


@scenario
def kafka_4_paused() -> None:
    about = (
        "two brokers; the second is stopped (SIGSTOP) for 150 ms of each 200 ms, and once for 6 s "
        "while a producer with a timeout of 1 s waits"
    )
    nodes = (Node(1), Node(2, "broker"))
    with recorded("kafka-4-paused", about, "orders:4:1", nodes=nodes, settings=SETTINGS) as cluster:
        recording = cluster.recording
        command, _ = clients.in_python("misused")
        given = [cluster.bootstrap, "regular"]
        patient = recording.start("patient", [*command, *given, "patient", "12"])
        time.sleep(1)
        stopped = cluster.process(2)
        for _ in range(50):
            stopped.send_signal(signal.SIGSTOP)
            time.sleep(0.15)
            stopped.send_signal(signal.SIGCONT)
            time.sleep(0.05)
        patient.wait(60)
        limits = ("socket.timeout.ms=1000", "message.timeout.ms=30000", "request.timeout.ms=1000")
        hasty = recording.start("hasty", [*command, *given, "hasty", "9", *limits])
        time.sleep(2)
        stopped.send_signal(signal.SIGSTOP)
        time.sleep(6)
        stopped.send_signal(signal.SIGCONT)
        hasty.wait(60)


def steadily(name: str, about: str, quota: str = "") -> None:
    """A producer and a group of two, at a constant rate."""
    with recorded(name, about, "orders:4:1", settings=SETTINGS) as cluster:
        if quota:
            cluster.java("SetQuota", "shop", quota)
        readers = [f"steady reader-{n} 26 group=readers" for n in (1, 2)]
        run(cluster, "regular shop 22", *readers)


@scenario
def kafka_4_steady() -> None:
    """A constant load."""
    steadily("kafka-4-steady", "a producer and a group of two, at a constant rate, for 22 s")


@scenario
def kafka_4_steady_quota() -> None:
    about = "kafka-4-steady with a quota of 10 kB/s for the producer"
    steadily("kafka-4-steady-quota", about, "10000")


def on_disk(name: str, about: str, bytes_per_s: int) -> None:
    """A producer and a consumer of a topic that the broker flushes to its own disk."""
    broker = artifacts.broker(KAFKA_4)
    artifacts.client(KAFKA_4)
    with Recording(name, about) as recording, Disk(recording.work) as disk:
        node = Node(1, settings={"log.flush.interval.messages": "1"}, data=disk.mount)
        with Cluster(recording, KAFKA_4, broker, (node,), SETTINGS) as cluster:
            cluster.java("Topics", "orders:1:1")
            disk.limit(cluster.process(1).pid, bytes_per_s)
            run(cluster, "paced shop 46", "steady reader 46 group=readers")


@scenario
def kafka_4_disk() -> None:
    """Each batch is written to the disk before it is acknowledged."""
    on_disk("kafka-4-disk", "a producer whose batches are flushed to the broker's disk", 0)


@scenario
def kafka_4_disk_slow() -> None:
    """The same with a slower disk."""
    on_disk("kafka-4-disk-slow", "kafka-4-disk with a disk that writes 100 kB/s", 100_000)
