"""Brokers of old releases, with clients and tools of their time, and a newer client.

A broker of each release does the same work, as far as it can: see `old_brokers`.
"""

from __future__ import annotations

import time

from tools.record.kafka import artifacts
from tools.record.kafka.artifacts import KAFKA_4
from tools.record.kafka.clients import JVM
from tools.record.kafka.cluster import Cluster, Node, ZooKeeper
from tools.record.kafka.recording import Recording
from tools.record.kafka.scenarios import each

RELEASES: dict[str, tuple[str, str, str]] = {
    "kafka-0-8": ("0.8.2.2", "0.9.0.1", ""),
    "kafka-0-9": ("0.9.0.1", "0.10.2.2", ""),
    "kafka-0-10": ("0.10.2.2", KAFKA_4, "0.10.0"),
    "kafka-0-11": ("0.11.0.3", "2.0.1", ""),
    "kafka-1-0": ("1.0.2", "3.1.2", "0.11.0"),
    "kafka-1-1": ("1.1.1", "2.8.2", ""),
    "kafka-2-0": ("2.0.1", "2.4.1", ""),
    "kafka-2-3": ("2.3.1", KAFKA_4, ""),
    "kafka-2-4": ("2.4.1", KAFKA_4, "2.4-IV0"),
    "kafka-2-8": ("2.8.2", KAFKA_4, ""),
    "kafka-3-4": ("3.4.1", KAFKA_4, "3.3"),
}
"""The release of the brokers, that of a newer client, and inter.broker.protocol.version of the
second broker, as in the middle of an upgrade."""
SCALA = "0.8.2.2"
"""The release of the clients in Scala if that of the brokers has none."""
SETTINGS = {
    "offsets.topic.replication.factor": "2",
    "controlled.shutdown.retry.backoff.ms": "300",
    "delete.topic.enable": "true",
    "replica.fetch.wait.max.ms": "1000",
    "zookeeper.connection.timeout.ms": "30000",
    "allow.everyone.if.no.acl.found": "true",
}
AUTHORIZERS = {
    (3,): "kafka.security.authorizer.AclAuthorizer",
    (0, 11): "kafka.security.auth.SimpleAclAuthorizer",
}
"""By the first release that has it, and an administrator that uses it."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ZOOKEEPER = ("--zookeeper", "127.0.0.1:2181")
TOPIC = ("--partitions", "2", "--replication-factor", "2", "--create", "--topic")


def administer(cluster: Cluster, name: str, command: str, *arguments: str) -> None:
    """Run an administration tool of the brokers' release; its output is in NAME.log."""
    program = [*JVM, "-cp", cluster.classpath, f"kafka.admin.{command}"]
    cluster.recording.run(name, [*program, *arguments])


def old_brokers(name: str) -> None:
    """Two brokers: records, groups, transactions, an administrator; one broker stops."""
    release, newer, protocol = RELEASES[name]
    numbers = artifacts.numbers(release)
    broker = artifacts.broker(release)
    artifacts.broker(SCALA)
    for version in (release, newer):
        artifacts.client(version)
    about = (
        "two brokers with ZooKeeper: clients in Java and Scala with each codec and acks, groups "
        f"with offsets in ZooKeeper and Kafka, {'transactions, ' * (numbers >= (0, 11))}"
        f"a newer client ({newer}), a broker stopped and started, a topic deleted"
    )
    if protocol:
        about += f"; the second broker has inter.broker.protocol.version={protocol}"
    settings = dict(SETTINGS)
    if authorizer := next((each for since, each in AUTHORIZERS.items() if numbers >= since), ""):
        settings["authorizer.class.name"] = authorizer
    versions = ("inter.broker.protocol.version", "log.message.format.version")
    second = dict.fromkeys(versions, protocol) if protocol else {}
    nodes = [Node(1, ""), Node(2, "", second)]
    with Recording(name, about) as recording:
        recording.tap(select="tcp and not port 2181")
        with (
            ZooKeeper(recording, broker),
            Cluster(recording, release, broker, nodes, settings) as cluster,
        ):
            create_topics(cluster, numbers)
            time.sleep(1)
            write_and_read(cluster, numbers)
            cluster.java("Newer", "orders", classpath=artifacts.client(newer))
            cluster.stop(2)
            cluster.java("OldProducer", "orders", "none")
            cluster.start(2)
            time.sleep(2)
            delete_topic(cluster, numbers)
            time.sleep(2)


def create_topics(cluster: Cluster, release: tuple[int, ...]) -> None:
    """Create two topics; before 3.0 in ZooKeeper."""
    if release >= (3,):
        cluster.java("Topics", "orders:2:2", "gone:2:2")
        return
    for topic in ("orders", "gone"):
        administer(cluster, "topics", "TopicCommand", *ZOOKEEPER, *TOPIC, topic)


def delete_topic(cluster: Cluster, release: tuple[int, ...]) -> None:
    """Let the preferred leaders lead, and delete a topic; before 3.0 in ZooKeeper."""
    if release >= (3,):
        cluster.java("DeleteTopics", "gone")
        return
    administer(cluster, "leaders", "PreferredReplicaLeaderElectionCommand", *ZOOKEEPER)
    administer(cluster, "topics", "TopicCommand", *ZOOKEEPER, "--delete", "--topic", "gone")


def write_and_read(cluster: Cluster, release: tuple[int, ...]) -> None:
    """The work of clients, as far as a release has them."""
    simple = artifacts.broker(SCALA)
    scala = cluster.classpath if release < (2,) else simple
    # Records sent with acks=0 may still be on their way: consumers read fewer than all.
    cluster.java("ScalaProducer", "orders", *CODECS[:3], classpath=scala)
    cluster.java("OldProducer", "orders", *CODECS[: 5 if release >= (2, 1) else 4])
    cluster.java("ScalaConsumer", "orders", "in-zookeeper", "zookeeper", "80", classpath=scala)
    cluster.java("ScalaConsumer", "orders", "in-kafka", "kafka", "80", classpath=scala)
    cluster.java("SimpleClient", "orders", classpath=simple)
    if release >= (0, 9):
        cluster.java("OldConsumer", "orders", "java", "80")
        groups = ["ConsumerGroupCommand", "--bootstrap-server", cluster.bootstrap]
        old = ["--new-consumer"] if release < (0, 11) else []
        administer(cluster, "tool-groups", *groups, *old, "--list")
        administer(cluster, "tool-group", *groups, *old, "--describe", "--group", "java")
    if release >= (0, 11):
        cluster.java("OldTransactions", "orders")
        cluster.java("OldAdmin", cluster.version)


each(old_brokers, *RELEASES)
