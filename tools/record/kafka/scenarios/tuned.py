"""Clients with various configurations, which they print: tests compare the inferred settings."""

from __future__ import annotations

from tools.record.kafka import artifacts, clients
from tools.record.kafka.artifacts import KAFKA_4
from tools.record.kafka.cluster import Cluster
from tools.record.kafka.recording import Recording
from tools.record.kafka.scenarios import scenario


@scenario
def kafka_4_tuned() -> None:
    """Producers and consumers, each with its configuration and metrics in the truth."""
    broker, java = artifacts.broker(KAFKA_4), artifacts.client(KAFKA_4)
    about = (
        "clients that print their configuration and metrics: batches with linger.ms, acks 0, 1 and "
        "all, reconnects; consumers with fetch.min.bytes=0, with tiny, late and limited responses"
    )
    soon = {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "500",
        "group.consumer.min.heartbeat.interval.ms": "100",
    }
    with (
        Recording("kafka-4-tuned", about) as recording,
        Cluster(recording, KAFKA_4, broker, settings=soon) as cluster,
    ):
        topics = ("orders:2:1", "metrics:1:1", "bulk:1:1")
        clients.java(recording, java, "Topics", cluster.bootstrap, *topics)
        clients.java(recording, java, "Tuned", cluster.bootstrap)
