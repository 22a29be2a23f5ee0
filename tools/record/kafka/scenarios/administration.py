"""All requests of administrators, and the telemetry of clients."""

from __future__ import annotations

import time

from tools.record.kafka import artifacts
from tools.record.kafka.cluster import Node
from tools.record.kafka.scenarios import recorded, scenario

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "delegation.token.secret.key": "made-for-the-recording",
    "metric.reporters": "Telemetry",
}


@scenario
def kafka_4_admin() -> None:
    streams = artifacts.streams()
    about = "all calls of the Java Admin, including rejected ones"
    nodes = [Node(1), Node(2, "broker", disks=2)]
    with recorded(
        "kafka-4-admin", about, "orders:1:1", "counted:1:1", plugin="Telemetry", nodes=nodes,
        settings=AUTHORIZED,
    ) as cluster:  # fmt: skip
        cluster.java("Produce", "orders", "10", "40")
        for protocol in ("classic", "consumer"):
            cluster.java("Member", "orders", protocol, "3", f"group.protocol={protocol}")
        cluster.java("ShareMember", "orders", "sharers", "4", "sharer")
        state = str(cluster.recording.work / "counter")
        cluster.java("WordCount", "orders", "counter", "6", state, classpath=streams)
        cluster.java("Administer")
        time.sleep(1)


@scenario
def kafka_4_telemetry() -> None:
    about = "client telemetry (KIP-714): a subscription, and metrics of a producer and a consumer"
    reporter = {"metric.reporters": "Telemetry"}
    with recorded(
        "kafka-4-telemetry", about, "orders:1:1", plugin="Telemetry", settings=reporter
    ) as cluster:
        wanted = ["CLIENT_METRICS", "all", "interval.ms=1000", "metrics=org.apache.kafka."]
        cluster.java("SetConfig", *wanted)
        cluster.java("Produce", "orders", "10", "40")
        cluster.java("Member", "orders", "readers", "6", "client.id=reader")
        cluster.python("librdkafka", "orders", "rdkafka")
