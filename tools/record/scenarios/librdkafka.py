"""The work of librdkafka clients in a scenario, the same for any broker."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

import confluent_kafka
from confluent_kafka import Consumer, Message, Producer, TopicPartition

SOFTWARE = f"librdkafka {confluent_kafka.libversion()[0]}"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Setting = str | int | float | bool
Settings = Mapping[str, Setting]


def settings(bootstrap: str, client_id: str, extra: Settings | None = None) -> dict[str, Setting]:
    """Settings of every client: its log, and a name that distinguishes its requests."""
    debug = {"debug": "broker,protocol", "client.id": client_id}
    return {"bootstrap.servers": bootstrap, **debug, **(extra or {})}


def orders(count: int, about: str) -> Iterable[tuple[bytes, bytes]]:
    """Keys and values of records: JSON with similar fields, like the records of one topic."""
    for number in range(count):
        value = f'{{"order":{number},"item":"{about}","quantity":{number % 7},"state":"new"}}'
        yield f"customer-{number % 5}".encode(), value.encode()


def produce(
    bootstrap: str, client_id: str, topic: str, count: int = 5, extra: Settings | None = None
) -> None:
    """Produce `count` records with headers, and wait until the broker has them."""
    producer = Producer(settings(bootstrap, client_id, extra))
    for key, value in orders(count, client_id):
        producer.produce(topic, value, key, headers={"source": client_id, "trace": None})
    if left := producer.flush(20):
        raise RuntimeError(f"{client_id}: {left} records were not delivered")
    if extra and extra.get("acks") == "0":
        producer.poll(0.3)  # closed at once, with an answer unread, the connection would be reset


def read(consumer: Consumer, count: int, seconds: float = 20) -> list[Message]:
    """Wait for `count` records; the scenario handles errors."""
    records: list[Message] = []
    last = time.monotonic() + seconds
    while len(records) < count and time.monotonic() < last:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            records.append(message)
    if len(records) < count:
        raise RuntimeError(f"{len(records)} of {count} records were read")
    return records


def poll_for(seconds: float, *consumers: Consumer) -> None:
    """Poll all consumers for a while."""
    last = time.monotonic() + seconds
    while time.monotonic() < last:
        for consumer in consumers:
            consumer.poll(0.01)


def consumer(bootstrap: str, client_id: str, group: str, extra: Settings | None = None) -> Consumer:
    """A consumer that starts at the beginning and commits on demand."""
    common: Settings = {
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    return Consumer(settings(bootstrap, client_id, {**common, **(extra or {})}))


def beginning(topic: str, partitions: Sequence[int]) -> list[TopicPartition]:
    """Partitions of a topic, from the first record."""
    return [TopicPartition(topic, partition, 0) for partition in partitions]
