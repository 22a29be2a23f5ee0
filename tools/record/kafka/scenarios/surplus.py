"""Clients that append bytes to the last field of a request.

Brokers read the fields and ignore surplus bytes. The broker does not listen on 9092, so the port is
not evidence.
"""

from __future__ import annotations

import time

from tools.record.kafka import artifacts, clients
from tools.record.kafka.artifacts import KAFKA_3
from tools.record.kafka.cluster import Node
from tools.record.kafka.scenarios import each, recorded, scenario

NODES = [Node(2)]


@scenario
def kafka_4_list_topics() -> None:
    """Metadata v12 and v13 of all topics: 3 bytes too many."""
    about = "librdkafka lists all topics in a loop and subscribes to a regex: 3 surplus bytes"
    with recorded("kafka-4-list-topics", about, "plain:2:1", nodes=NODES) as cluster:
        recording = cluster.recording
        command, _ = clients.in_python("list_topics")
        monitor = recording.start("monitor", [*command, cluster.bootstrap, "4", "readers"])
        time.sleep(3)
        midway = "kafka-4-list-topics, started after its connections were open"
        recording.tap("kafka-4-cut-list-topics", midway, select="tcp port 9093", ports=":9093")
        if monitor.wait(60):
            raise RuntimeError(recording.log("monitor"))


WHEELS = {"kafka-3-librdkafka-0-11": "0.11.6", "kafka-3-librdkafka-1-0": "1.0.1"}
FOR_PYTHON_2 = (
    "--no-deps", "--only-binary=:all:", "--python-version=27", "--implementation=cp",
    "--abi=cp27m", "--platform=manylinux1_x86_64",
)  # fmt: skip


def old_librdkafka(name: str) -> None:
    """An old release, which asks for ApiVersions v0 with 4 bytes too many."""
    release = WHEELS[name]
    packages = artifacts.pip(*FOR_PYTHON_2, f"confluent-kafka=={release}")
    about = f"librdkafka {release}: none, gzip, lz4, a group of one; ApiVersions: 4 surplus bytes"
    with recorded(name, about, "old:2:1", version=KAFKA_3, nodes=NODES) as cluster:
        command, _ = clients.in_python("librdkafka_old")
        given = [str(packages), cluster.bootstrap, "old", "g"]
        cluster.recording.run("librdkafka_old", [*command, *given])


each(old_librdkafka, *WHEELS)
