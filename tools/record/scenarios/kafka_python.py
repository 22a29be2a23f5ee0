"""The work of kafka-python clients in a scenario, the same for any broker."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import kafka
from kafka import KafkaConsumer, KafkaProducer

from tools.record.clients import CLIENT
from tools.record.recording import Recording
from tools.record.scenarios.librdkafka import orders

SOFTWARE = f"kafka-python {kafka.__version__}"


def log(recording: Recording) -> AbstractContextManager[None]:
    """Keep the clients' log lines about requests and bytes."""
    return recording.python("kafka-python", "kafka.net.connection", "kafka.net.transport")


def produce(bootstrap: str, client_id: str, topic: str, count: int, **options: Any) -> None:
    """Produce `count` records with headers, and wait until the broker has them."""
    CLIENT.set(client_id)
    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id=client_id, **options)
    try:
        for key, value in orders(count, client_id):
            producer.send(topic, value, key, headers=[("source", client_id.encode())]).get(10)
    finally:
        producer.close(5)


def read(
    bootstrap: str, client_id: str, topic: str, count: int, group: str | None = None, **options: Any
) -> None:
    """Read `count` records from the beginning, in a group, and commit, or without one."""
    CLIENT.set(client_id)
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        client_id=client_id,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        max_poll_interval_ms=6000,
        consumer_timeout_ms=15_000,
        **options,
    )
    seen = sum(1 for _, _ in zip(range(count), consumer, strict=False))
    if group is not None:
        consumer.commit()
    consumer.close()
    if seen < count:
        raise RuntimeError(f"{seen} of {count} records were read")
