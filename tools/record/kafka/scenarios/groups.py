"""Groups of Kafka 4: classic, consumer (KIP-848), share (KIP-932), streams (KIP-1071)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tools.record.kafka import artifacts, clients
from tools.record.kafka.artifacts import KAFKA_4
from tools.record.kafka.cluster import Cluster
from tools.record.kafka.recording import Recording
from tools.record.kafka.scenarios import each, scenario

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
TOOLS = "org.apache.kafka.tools.consumer"
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
    recording: Recording, java: str, topics: str = "orders:6:1", plugin: str | None = None
) -> Iterator[Cluster]:
    """A cluster of one node, and a topic of six partitions with records.

    `plugin`: class path of the broker, if it stores topologies.
    """
    broker, settings = artifacts.broker(KAFKA_4), SOON
    if plugin is not None:
        broker = artifacts.plugin(broker, plugin)
        settings = SOON | {"group.streams.topology.description.plugin.class": plugin}
    with Cluster(recording, KAFKA_4, broker, settings=settings) as cluster:
        clients.java(recording, java, "Topics", cluster.bootstrap, *topics.split())
        clients.java(recording, java, "Produce", cluster.bootstrap, "orders", "60", "40")
        yield cluster


def members(name: str) -> None:
    """Start three members, one after the other, and kill the second."""
    about, settings = KINDS[name]
    java = artifacts.client(KAFKA_4)
    artifacts.broker(KAFKA_4)
    command, _ = clients.in_java(java, "Member")
    with Recording(name, about) as recording, orders(recording, java) as cluster:
        for number, seconds in ((1, 14), (2, 60), (3, 10)):
            given = [cluster.bootstrap, "orders", "group", str(seconds), *settings]
            member = recording.start(f"m{number}", [*command, *given, f"client.id=m{number}"])
            if number == 2:
                killed = member
            time.sleep(2.5)
        recording.kill(killed)
        time.sleep(10)


each(members, *KINDS)


@scenario
def kafka_4_group_static() -> None:
    """A member that rejoins with its instance id, and one that uses the instance id of another."""
    about = "static members (group.instance.id): one returns, one is fenced"
    java = artifacts.client(KAFKA_4)
    artifacts.broker(KAFKA_4)
    command, _ = clients.in_java(java, "Member")
    with (
        Recording("kafka-4-group-static", about) as recording,
        orders(recording, java) as cluster,
    ):
        for protocol in ("classic", "consumer"):
            waits = CLASSIC[1:] if protocol == "classic" else ()
            given = [cluster.bootstrap, "orders", protocol]
            same = [f"group.protocol={protocol}", *waits, "group.instance.id=counter"]
            first = recording.start("first", [*command, *given, "60", *same, "client.id=first"])
            time.sleep(4)
            recording.kill(first)
            again = [*command, *given, "60", *same, "client.id=again"]
            second = recording.start("again", again)
            time.sleep(4)
            # The name is taken: in a classic group the newcomer wins, in a consumer group it fails.
            third = recording.start("twin", [*command, *given, "3", *same, "client.id=twin"])
            third.wait(30)
            recording.kill(second)


@scenario
def kafka_4_group_share() -> None:
    """Members that share partitions and release some of the records that they read."""
    about = (
        "a share group (KIP-932): records accepted, released and rejected; a member killed; "
        "unread records; an administrator asks for its lag"
    )
    java, tools = artifacts.client(KAFKA_4), artifacts.tools()
    artifacts.broker(KAFKA_4)
    command, _ = clients.in_java(java, "ShareMember")
    describe = [*clients.JVM, "-cp", tools, f"{TOOLS}.group.ShareGroupCommand", "--describe"]
    with (
        Recording("kafka-4-group-share", about) as recording,
        orders(recording, java, "orders:2:1") as cluster,
    ):
        asked = ["--bootstrap-server", cluster.bootstrap, "--group", "sharers"]
        earliest = ("GROUP", "sharers", "share.auto.offset.reset=earliest")
        clients.java(recording, java, "SetConfig", cluster.bootstrap, *earliest)
        given = [*command, cluster.bootstrap, "orders", "sharers"]
        first = recording.start("s1", [*given, "20", "s1"])
        second = recording.start("s2", [*given, "60", "s2"])
        time.sleep(8)
        clients.java(recording, java, "Produce", cluster.bootstrap, "orders", "60", "40")
        recording.kill(second)
        recording.run("share-groups-1", [*describe, *asked])
        first.wait(60)
        clients.java(recording, java, "Produce", cluster.bootstrap, "orders", "50", "40")
        recording.run("share-groups-2", [*describe, *asked])


@scenario
def kafka_4_group_poison() -> None:
    """Records that a share group cannot process, until the broker archives them."""
    about = (
        "a share group (KIP-932) whose member releases some records each time, until the broker "
        "archives them after five deliveries; it prints each of them"
    )
    java = artifacts.client(KAFKA_4)
    artifacts.broker(KAFKA_4)
    command, _ = clients.in_java(java, "Poison")
    with (
        Recording("kafka-4-group-poison", about) as recording,
        orders(recording, java, "orders:1:1") as cluster,
    ):
        given = [*command, cluster.bootstrap, "orders", "sharers", "14", "s1"]
        member = recording.start("member", given)
        time.sleep(6)  # a new share group starts at the end of the log
        single = ("60", "40", "pause=60", "linger.ms=0", "client.id=writer")
        clients.java(recording, java, "Produce", cluster.bootstrap, "orders", *single)
        member.wait(60)
        for line in recording.log("member").splitlines():
            released, offset, delivery = line.split()
            recording.note(released, offset=int(offset), delivery=int(delivery))


@scenario
def kafka_4_group_streams() -> None:
    """An application of two processes, one of which is killed."""
    streams = artifacts.streams()
    java = artifacts.client(KAFKA_4)
    artifacts.broker(KAFKA_4)
    about = (
        f"a streams group (KIP-1071) of Kafka Streams {KAFKA_4}: a member killed; the broker asks "
        "for the topology"
    )
    command, _ = clients.in_java(streams, "WordCount")
    with (
        Recording("kafka-4-group-streams", about) as recording,
        orders(recording, java, "orders:2:1 counted:1:1", "Topologies") as cluster,
    ):
        given = [*command, cluster.bootstrap, "orders", "counter"]
        recording.start("w1", [*given, "16", str(recording.work / "w1")])
        time.sleep(4)
        second = recording.start("w2", [*given, "60", str(recording.work / "w2")])
        time.sleep(5)
        recording.kill(second)
        time.sleep(9)


@scenario
def kafka_4_group_busy() -> None:
    """A member that processes records for longer than others want to wait."""
    about = "a classic group: a member joins while the other one processes records for 16 s"
    java = artifacts.client(KAFKA_4)
    artifacts.broker(KAFKA_4)
    command, _ = clients.in_java(java, "Member")
    with Recording("kafka-4-group-busy", about) as recording, orders(recording, java) as cluster:
        started = []
        for name, *given in (("busy", "22", "work=16000"), ("waiting", "20")):
            ends = [cluster.bootstrap, "orders", "workers", *given, f"client.id={name}"]
            started.append(recording.start(name, [*command, *ends]))
            time.sleep(4)
        for process in started:
            process.wait(60)
