"""Groups of Kafka 4: classic, consumer (KIP-848), share (KIP-932), streams (KIP-1071)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tools.record.kafka import artifacts, clients
from tools.record.kafka.artifacts import KAFKA_4
from tools.record.kafka.cluster import Cluster
from tools.record.kafka.scenarios import each, recorded, scenario

# A member that is killed shall be missed within seconds.
SOON = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.share.session.timeout.ms": "3000",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.streams.session.timeout.ms": "3000",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.initial.rebalance.delay.ms": "500",
}
CLASSIC = ("group.protocol=classic", "session.timeout.ms=3000", "heartbeat.interval.ms=500")
ASSIGNORS = "partition.assignment.strategy=org.apache.kafka.clients.consumer."
KINDS = {
    "kafka-4-group-eager": (
        "a classic group, eager: members join, one is killed, the others leave",
        (*CLASSIC, f"{ASSIGNORS}RangeAssignor"),
    ),
    "kafka-4-group-cooperative": (
        "a classic group, cooperative: members join, one is killed, the others leave",
        (*CLASSIC, f"{ASSIGNORS}CooperativeStickyAssignor"),
    ),
    "kafka-4-group-consumer": (
        "a consumer group (KIP-848): members join, one is killed, the others leave",
        ("group.protocol=consumer",),
    ),
}


@contextmanager
def orders(
    name: str, about: str, topics: str = "orders:6:1", plugin: str = ""
) -> Iterator[Cluster]:
    """A recording of a cluster of one node, and a topic with records.

    `plugin`: a class of the broker that stores topologies.
    """
    stores = {"group.streams.topology.description.plugin.class": plugin} if plugin else {}
    with recorded(name, about, *topics.split(), plugin=plugin, settings=SOON | stores) as cluster:
        cluster.java("Produce", "orders", "60", "40")
        yield cluster


def members(name: str) -> None:
    """Start three members, one after the other, and kill the second."""
    about, settings = KINDS[name]
    with orders(name, about) as cluster:
        started = []
        for number, seconds in ((1, 14), (2, 60), (3, 10)):
            given = ("orders", "group", str(seconds), *settings, f"client.id=m{number}")
            started.append(cluster.start_java(f"m{number}", "Member", *given))
            time.sleep(2.5)
        cluster.recording.kill(started[1])
        time.sleep(10)


each(members, *KINDS)


@scenario
def kafka_4_group_static() -> None:
    about = "static members (group.instance.id): one returns, one is fenced"
    with orders("kafka-4-group-static", about) as cluster:
        for protocol in ("classic", "consumer"):
            waits = CLASSIC[1:] if protocol == "classic" else ()
            same = (f"group.protocol={protocol}", *waits, "group.instance.id=counter")
            given = ("Member", "orders", protocol)
            first = cluster.start_java("first", *given, "60", *same, "client.id=first")
            time.sleep(4)
            cluster.recording.kill(first)
            second = cluster.start_java("again", *given, "60", *same, "client.id=again")
            time.sleep(4)
            # The name is taken: in a classic group the newcomer wins, in a consumer group it fails.
            cluster.start_java("twin", *given, "3", *same, "client.id=twin").wait(30)
            cluster.recording.kill(second)


@scenario
def kafka_4_group_share() -> None:
    artifacts.tools()
    about = (
        "a share group (KIP-932): records accepted, released and rejected; a member killed; "
        "unread records; an administrator asks for its lag"
    )
    describe = ("consumer.group.ShareGroupCommand", "--describe", "--group", "sharers")
    with orders("kafka-4-group-share", about, "orders:2:1") as cluster:
        earliest = "share.auto.offset.reset=earliest"
        cluster.java("SetConfig", "GROUP", "sharers", earliest)
        first = cluster.start_java("s1", "ShareMember", "orders", "sharers", "20", "s1")
        second = cluster.start_java("s2", "ShareMember", "orders", "sharers", "60", "s2")
        time.sleep(8)
        cluster.java("Produce", "orders", "60", "40")
        cluster.recording.kill(second)
        cluster.tool("share-groups-1", *describe)
        first.wait(60)
        cluster.java("Produce", "orders", "50", "40")
        cluster.tool("share-groups-2", *describe)


@scenario
def kafka_4_group_poison() -> None:
    about = (
        "a share group (KIP-932) whose member releases some records each time, until the broker "
        "archives them after five deliveries; it prints each of them"
    )
    with orders("kafka-4-group-poison", about, "orders:1:1") as cluster:
        member = cluster.start_java("member", "Poison", "orders", "sharers", "14", "s1")
        time.sleep(6)  # a new share group starts at the end of the log
        cluster.java("Produce", "orders", "60", "40", "pause=60", "linger.ms=0", "client.id=writer")
        member.wait(60)
        for line in cluster.recording.log("member").splitlines():
            released, offset, delivery = line.split()
            cluster.recording.note(released, offset=int(offset), delivery=int(delivery))


@scenario
def kafka_4_group_streams() -> None:
    command, _ = clients.in_java(artifacts.streams(), "WordCount")
    about = (
        f"a streams group (KIP-1071) of Kafka Streams {KAFKA_4}: a member killed; the broker asks "
        "for the topology"
    )
    topics = "orders:2:1 counted:1:1"
    with orders("kafka-4-group-streams", about, topics, "Topologies") as cluster:
        recording = cluster.recording
        given = [*command, cluster.bootstrap, "orders", "counter"]
        recording.start("w1", [*given, "16", str(recording.work / "w1")])
        time.sleep(4)
        second = recording.start("w2", [*given, "60", str(recording.work / "w2")])
        time.sleep(5)
        recording.kill(second)
        time.sleep(9)


@scenario
def kafka_4_group_busy() -> None:
    about = "a classic group: a member joins while the other one processes records for 16 s"
    with orders("kafka-4-group-busy", about) as cluster:
        started = []
        for name, *given in (("busy", "22", "work=16000"), ("waiting", "20")):
            ends = ("orders", "workers", *given, f"client.id={name}")
            started.append(cluster.start_java(name, "Member", *ends))
            time.sleep(4)
        for process in started:
            process.wait(60)
