"""The recordings that `make bench` repeats, with other ports and times, until they are large.

Wireshark 4.0 can decode all versions in them, so that it does the same work.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from tools.record import clients
from tools.record.kafka.recording import end, wait_for
from tools.record.mock import MockCluster
from tools.record.recording import Recording, Tool
from tools.record.scenarios import kafka_python, librdkafka, scenario
from tools.record.scenarios.librdkafka import orders, settings
from tools.record.tansu import Tansu

READABLE = {0: 7, 1: 11, 2: 5, 3: 8, 8: 7, 9: 6, 10: 2, 11: 5, 12: 3, 13: 2, 14: 3}
"""By API key: the highest version that the mock offers here."""
TELEMETRY = 71
ROUNDS = 560


@scenario(
    "chatter: records produced one by one, read and committed one by one by a group of two, "
    "offsets and metadata asked for in between",
    Tool(packing=".zst"),
)
def chatter_mock(recording: Recording) -> None:
    with MockCluster(1) as cluster:
        cluster.create_topic("orders", 2, 1)
        cluster.rebalance_after(300)
        cluster.offer(TELEMETRY, -1, -1)
        for api_key, highest in READABLE.items():
            cluster.offer(api_key, 0, highest)
        with recording.capture(), recording.librdkafka():
            chat(cluster.bootstrap)
    recording.keep(cluster.software, librdkafka.SOFTWARE)


def chat(bootstrap: str) -> None:
    lively = {"heartbeat.interval.ms": 20, "fetch.wait.max.ms": 20}
    members = [
        librdkafka.consumer(bootstrap, f"member-{number}", "group", lively) for number in (1, 2)
    ]
    for member in members:
        member.subscribe(["orders"])
    while not all(member.assignment() for member in members):
        librdkafka.poll_for(0.1, *members)
    producer = Producer(settings(bootstrap, "writer", {"linger.ms": 0}))
    for number, (key, value) in enumerate(orders(ROUNDS, "chatter")):
        producer.produce("orders", value, key, partition=number % 2)
        producer.flush(10)
        for member in members:
            look_around(member, ask=number % 4 == 0)
    for member in members:
        member.close()


def look_around(member: Consumer, *, ask: bool) -> None:
    """Read and commit, and send the requests of an administrator."""
    message = member.poll(0.005)
    if message is not None and message.error() is None:
        member.commit(message=message, asynchronous=False)
    if ask:
        partition: TopicPartition = member.assignment()[0]
        member.get_watermark_offsets(partition, 5)
        member.committed([partition], 5)
        member.list_topics("orders", 5)


CLIENT, SERVER = "198.51.100.1", "198.51.100.2"


@scenario(
    "bulk: batches of some 64 KB produced and read back, in segments of 1,448 bytes",
    Tool(interface="client", packing=".zst"),
)
def bulk_tansu(recording: Recording) -> None:
    with (
        wire() as enter,
        Tansu(f"{SERVER}:9092", recording.work / "tansu.txt", through=enter) as broker,
        recording.capture(),
        kafka_python.log(recording),
    ):
        haul(broker.bootstrap)
    recording.keep(broker.software, kafka_python.SOFTWARE)


@contextmanager
def wire() -> Iterator[list[str]]:
    """A second host behind an Ethernet of 1,500 bytes, without segmentation offload.

    Yields the prefix of commands that run on that host. Loopback would carry 64 KB in one packet.
    """
    host = subprocess.Popen(["unshare", "--net", "sleep", "600"])
    enter = ["nsenter", "--target", str(host.pid), "--net"]
    ours, theirs = Path("/proc/self/ns/net"), Path(f"/proc/{host.pid}/ns/net")
    try:
        wait_for(lambda: ours.readlink() != theirs.readlink(), "the host has a network", 10)
        link = ["ip", "link", "add", "client", "mtu", "1500", "type", "veth"]
        run(*link, "peer", "name", "server", "mtu", "1500", "netns", str(host.pid))
        for prefix, name, address in (([], "client", CLIENT), (enter, "server", SERVER)):
            run(*prefix, "ip", "address", "add", f"{address}/30", "dev", name)
            run(*prefix, "ip", "link", "set", name, "up", "gso_max_segs", "1")
        yield enter
    finally:
        end(host)


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def haul(bootstrap: str) -> None:
    old: dict[str, Any] = {"bootstrap_servers": bootstrap, "api_version": (2, 1)}
    clients.CLIENT.set("admin")
    admin = KafkaAdminClient(client_id="admin", **old)
    admin.create_topics([NewTopic("freight", 1, 1)])
    admin.close()
    for name in ("hauler-1", "hauler-2"):
        clients.CLIENT.set(name)
        producer = KafkaProducer(
            client_id=name,
            batch_size=65_536,
            linger_ms=50,
            acks=1,
            max_in_flight_requests_per_connection=1,
            enable_idempotence=False,
            **old,
        )
        lines = b"\n".join(value for _, value in orders(8_000, name))
        cargo = [
            producer.send("freight", lines[start : start + 8_000], partition=0)
            for start in range(0, len(lines), 8_000)
        ]
        for delivery in cargo:
            delivery.get(20)
        producer.close(5)
    clients.CLIENT.set("reader")
    reader = KafkaConsumer(
        client_id="reader", max_partition_fetch_bytes=65_536, fetch_max_bytes=65_536, **old
    )
    freight = kafka.TopicPartition("freight", 0)
    reader.assign([freight])
    reader.seek_to_beginning(freight)
    last = reader.end_offsets([freight])[freight]
    while reader.position(freight) < last:
        reader.poll(1000)
    reader.close()
