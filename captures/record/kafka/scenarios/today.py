"""Clients of today against the newest broker: each produces, consumes in a group, errs."""

from __future__ import annotations

from captures.record.kafka import artifacts, clients
from captures.record.kafka.artifacts import KAFKA_4
from captures.record.kafka.cluster import Cluster
from captures.record.kafka.recording import Recording
from captures.record.kafka.scenarios import scenario


@scenario
def kafka_4_java() -> None:
    broker, java = artifacts.broker(KAFKA_4), artifacts.client(KAFKA_4)
    about = f"Java client {KAFKA_4}: each codec, a group of one, an offset out of range"
    with (
        Recording("kafka-4-java", about) as recording,
        Cluster(recording, KAFKA_4, broker) as cluster,
    ):
        clients.java(recording, java, "Topics", cluster.bootstrap, "plain:2:1")
        clients.java(recording, java, "ProduceConsume", cluster.bootstrap, "plain", "readers")


@scenario
def kafka_4_librdkafka() -> None:
    broker, java = artifacts.broker(KAFKA_4), artifacts.client(KAFKA_4)
    about = "librdkafka: each codec, a group of one, an offset out of range, an unknown topic"
    with (
        Recording("kafka-4-librdkafka", about) as recording,
        Cluster(recording, KAFKA_4, broker) as cluster,
    ):
        clients.java(recording, java, "Topics", cluster.bootstrap, "plain:2:1")
        clients.python(recording, "librdkafka", cluster.bootstrap, "plain", "readers")
