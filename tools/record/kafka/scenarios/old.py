"""Kafka 3.9, the last release that supports ZooKeeper and clients from ten years ago."""

from __future__ import annotations

import time

from tools.record.kafka import artifacts, clients
from tools.record.kafka.artifacts import KAFKA_3
from tools.record.kafka.cluster import Cluster, Node, ZooKeeper
from tools.record.kafka.recording import Recording
from tools.record.kafka.scenarios import AUTHORIZER, each, recorded, scenario

REPLICATED = {
    "offsets.topic.replication.factor": "2",
    "controlled.shutdown.retry.backoff.ms": "300",
}


@scenario
def kafka_3_zookeeper() -> None:
    """Two brokers, one of them the controller; the other one stops and restarts."""
    broker = artifacts.broker(KAFKA_3)
    artifacts.client(KAFKA_3)
    about = (
        "two brokers that register with ZooKeeper: the controller's commands, replica fetches, a "
        "broker stopped and started, a topic deleted"
    )
    nodes = [Node(1, ""), Node(2, "")]
    with Recording("kafka-3-zookeeper", about) as recording:
        recording.tap(select="tcp and not port 2181")
        with (
            ZooKeeper(recording, broker),
            Cluster(recording, KAFKA_3, broker, nodes, REPLICATED) as cluster,
        ):
            cluster.java("Topics", "orders:4:2", "gone:2:2")
            cluster.java("OldProducer", "orders", "none", "lz4")
            cluster.java("OldConsumer", "orders", "one", "44")
            cluster.stop(2)
            cluster.java("OldConsumer", "orders", "two", "44")
            cluster.start(2)
            time.sleep(2)
            cluster.java("DeleteTopics", "gone")
            time.sleep(2)


FIRST = ("none", "gzip", "snappy", "lz4")
RELEASES = {
    "kafka-3-java-0-8": ("0.8.2.2", FIRST),
    "kafka-3-java-0-9": ("0.9.0.1", FIRST),
    "kafka-3-java-0-10-0": ("0.10.0.1", FIRST),
    "kafka-3-java-0-10": ("0.10.2.2", FIRST),
    "kafka-3-java-0-11": ("0.11.0.3", FIRST),
    "kafka-3-java-1-1": ("1.1.1", FIRST),
    "kafka-3-java-2-0": ("2.0.1", FIRST),
    "kafka-3-java-2-4": ("2.4.1", (*FIRST, "zstd")),
    "kafka-3-java-2-8": ("2.8.2", (*FIRST, "zstd")),
    "kafka-3-java-3-1": ("3.1.2", (*FIRST, "zstd")),
    "kafka-3-java-3-5": ("3.5.2", (*FIRST, "zstd")),
}


def old_java(name: str) -> None:
    """An old release of the Java client."""
    release, codecs = RELEASES[name]
    consumes = release != "0.8.2.2"
    java = artifacts.client(release)
    group = ", a group of one" if consumes else "; this release has no consumer"
    about = f"Java client {release}: {', '.join(codecs)}, each with acks 0, 1 and all{group}"
    with recorded(name, about, "old:2:1", version=KAFKA_3) as cluster:
        cluster.java("OldProducer", "old", *codecs, classpath=java)
        if consumes:
            # Records sent with acks=0 may still be on their way: only the others are certain.
            certain = str(22 * len(codecs))
            cluster.java("OldConsumer", "old", "g", certain, classpath=java)


each(old_java, *RELEASES)


ADMINISTRATORS = ("0.11.0.3", "1.1.1", "2.0.1", "2.4.1", "2.8.2", "3.5.2")


@scenario
def kafka_3_admin() -> None:
    releases = {release: artifacts.client(release) for release in ADMINISTRATORS}
    about = f"administrators: the Java clients {', '.join(ADMINISTRATORS)}"
    with recorded("kafka-3-admin", about, version=KAFKA_3, settings=AUTHORIZER) as cluster:
        for release, java in releases.items():
            cluster.java("OldAdmin", release, classpath=java)


def old_python(name: str, package: str, program: str, about: str) -> None:
    """One old Python client."""
    packages = artifacts.pip(package)
    with recorded(name, about, "old:2:1", version=KAFKA_3) as cluster:
        cluster.python(program, "old", packages=packages)


@scenario
def kafka_3_kafka_python() -> None:
    about = "kafka-python 1.3.5 as to brokers 0.8.2, 0.9 and 0.10: message sets v0 and v1, groups"
    old_python("kafka-3-kafka-python", "kafka-python==1.3.5", "kafka_python_old", about)


@scenario
def kafka_3_pykafka() -> None:
    about = "pykafka 2.8.0: three codecs, a simple and a balanced consumer"
    old_python("kafka-3-pykafka", "pykafka==2.8.0", "pykafka_old", about)


@scenario
def kafka_3_node() -> None:
    packages = artifacts.npm("kafka-node@5.0.0", "no-kafka@3.4.4")
    command, env = clients.in_node(packages, "old")
    about = (
        "kafka-node 5.0.0 and no-kafka 3.4.4: message sets without a codec and with gzip, groups "
        "of one; kafka-node leaves the timestamps of compressed messages at 0"
    )
    with recorded("kafka-3-node", about, "old:2:1", version=KAFKA_3) as cluster:
        cluster.recording.run("old", [*command, cluster.bootstrap, "old"], env)
