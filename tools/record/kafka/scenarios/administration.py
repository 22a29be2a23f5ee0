"""All requests of administrators, and the telemetry of clients."""

from __future__ import annotations

import time

from tools.record.kafka import artifacts, clients
from tools.record.kafka.artifacts import KAFKA_4
from tools.record.kafka.cluster import Cluster, Node
from tools.record.kafka.recording import Recording
from tools.record.kafka.scenarios import scenario

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "delegation.token.secret.key": "made-for-the-recording",
    "metric.reporters": "Telemetry",
}


@scenario
def kafka_4_admin() -> None:
    """Empty groups of each type, and an administrator that sends every request."""
    broker = artifacts.plugin(artifacts.broker(KAFKA_4), "Telemetry")
    java, streams = artifacts.client(KAFKA_4), artifacts.streams()
    about = "all calls of the Java Admin, including rejected ones"
    nodes = [Node(1), Node(2, "broker", disks=2)]
    with (
        Recording("kafka-4-admin", about) as recording,
        Cluster(recording, KAFKA_4, broker, nodes, AUTHORIZED) as cluster,
    ):
        given = [cluster.bootstrap, "orders"]
        topics = ["orders:1:1", "counted:1:1"]
        clients.java(recording, java, "Topics", cluster.bootstrap, *topics)
        clients.java(recording, java, "Produce", *given, "10", "40")
        for protocol in ("classic", "consumer"):
            named = f"group.protocol={protocol}"
            clients.java(recording, java, "Member", *given, protocol, "3", named)
        clients.java(recording, java, "ShareMember", *given, "sharers", "4", "sharer")
        state = str(recording.work / "counter")
        clients.java(recording, streams, "WordCount", *given, "counter", "6", state)
        clients.java(recording, java, "Administer", cluster.bootstrap)
        time.sleep(1)


@scenario
def kafka_4_telemetry() -> None:
    """A broker that requests the metrics of its clients."""
    broker = artifacts.plugin(artifacts.broker(KAFKA_4), "Telemetry")
    java = artifacts.client(KAFKA_4)
    about = "client telemetry (KIP-714): a subscription, and metrics of a producer and a consumer"
    reporter = {"metric.reporters": "Telemetry"}
    with (
        Recording("kafka-4-telemetry", about) as recording,
        Cluster(recording, KAFKA_4, broker, settings=reporter) as cluster,
    ):
        clients.java(recording, java, "Topics", cluster.bootstrap, "orders:1:1")
        wanted = ["CLIENT_METRICS", "all", "interval.ms=1000", "metrics=org.apache.kafka."]
        clients.java(recording, java, "SetConfig", cluster.bootstrap, *wanted)
        given = [cluster.bootstrap, "orders"]
        clients.java(recording, java, "Produce", *given, "10", "40")
        clients.java(recording, java, "Member", *given, "readers", "6", "client.id=reader")
        clients.python(recording, "librdkafka", cluster.bootstrap, "orders", "rdkafka")
