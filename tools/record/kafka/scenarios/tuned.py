"""Clients with various configurations, which they print: tests compare the inferred settings."""

from __future__ import annotations

from tools.record.kafka.scenarios import recorded, scenario


@scenario
def kafka_4_tuned() -> None:
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
    topics = ("orders:2:1", "metrics:1:1", "bulk:1:1")
    with recorded("kafka-4-tuned", about, *topics, settings=soon) as cluster:
        cluster.java("Tuned")
