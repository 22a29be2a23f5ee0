"""librdkafka in roles that `diagnose` reports, or that have a constant load.

python misused.py BOOTSTRAP ROLE NAME SECONDS [PROPERTY=VALUE...]
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator

from confluent_kafka import Consumer, Producer, TopicPartition

bootstrap, role, name, seconds, *given = sys.argv[1:]
common: dict[str, str | int | float | bool] = {
    "bootstrap.servers": bootstrap, "client.id": name, "broker.address.family": "v4",
}  # fmt: skip
common |= dict(pair.split("=", 1) for pair in given)
end = time.monotonic() + float(seconds)
text = random.Random(name)


def counts(pause: float) -> Iterator[int]:
    """Numbers from 0 until the time has passed, with a pause after each."""
    number = 0
    while time.monotonic() < end:
        yield number
        number += 1
        time.sleep(pause)


def consumer(group: str, topic: str) -> Consumer:
    """A member of a group that reads all of a topic."""
    made = Consumer({"group.id": group, "auto.offset.reset": "earliest"} | common)
    made.subscribe([topic])
    return made


def hurried() -> None:
    """Sends each record at once, in its own request, to the partition of its constant key."""
    producer = Producer({"linger.ms": 0, "batch.num.messages": 1} | common)
    for number in counts(0.004):
        producer.produce("orders", f"order {number}", key="everything")
        producer.poll(0)
    producer.flush(10)


def verbose() -> None:
    """Sends long uncompressed texts."""
    producer = Producer({"linger.ms": 50} | common)
    for number in counts(0.02):
        producer.produce("logs", f"{number} WARN retrying the request in a moment; " * 60)
        producer.poll(0)
    producer.flush(10)


def querying() -> None:
    """Requests the end offset of a partition repeatedly, while a Fetch waits on the connection."""
    reader = Consumer({"group.id": name, "fetch.wait.max.ms": 500} | common)
    reader.assign([TopicPartition("quiet", 0)])
    for _ in counts(0.01):
        reader.poll(0)
        reader.get_watermark_offsets(TopicPartition("quiet", 0), timeout=5)
    reader.close()


def impatient() -> None:
    """Reads an idle partition with short waits."""
    reader = Consumer({"group.id": name, "fetch.wait.max.ms": 5} | common)
    reader.assign([TopicPartition("quiet", 0, 0)])
    for _ in counts(0):
        reader.poll(0.1)
    reader.close()


def reconnecting() -> None:
    """A new producer for each record."""
    for number in counts(0.1):
        producer = Producer(common)
        producer.produce("orders", f"order {number}")
        producer.flush(10)


def overworked() -> None:
    """Processes its records for longer than max.poll.interval.ms."""
    settings = {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300}
    common.update(settings | {"max.poll.interval.ms": 2000})
    reader = consumer("workers", "orders")
    for _ in counts(3):
        for _ in range(5):
            reader.poll(0.2)
    reader.close()


def steady() -> None:
    """A member that reads and commits."""
    reader = consumer(common.pop("group", "workers"), common.pop("topic", "orders"))
    while time.monotonic() < end:
        reader.poll(0.1)
    reader.close()


def slow() -> None:
    """A member that is slower than the producer."""
    common.update({"queued.min.messages": 1, "fetch.message.max.bytes": 4000})
    common.update({"enable.auto.offset.store": False, "auto.commit.interval.ms": 500})
    reader = consumer("slow", "logs")
    for _ in counts(0.1):
        if (message := reader.poll(0.1)) is not None:
            reader.store_offsets(message)
    reader.close()


def forgetful() -> None:
    """Never ends its transaction."""
    producer = Producer({"transactional.id": name, "transaction.timeout.ms": 60_000} | common)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("ledger", "a record that no one may read yet")
    producer.flush(10)
    time.sleep(max(end - time.monotonic(), 0))


def regular() -> None:
    """Sends records in small batches, at a constant rate."""
    producer = Producer({"linger.ms": 20} | common)
    for number in counts(0.01):
        producer.produce(
            "orders", f"{number} {text.randbytes(6).hex()} {'x' * 150}", key=str(number)
        )
        producer.poll(0)
    producer.flush(60)


def paced() -> None:
    """Sends a batch, and waits for its acknowledgement, at a constant rate."""
    producer = Producer({"linger.ms": 50} | common)
    start = time.monotonic()
    for number in counts(0):
        for part in range(80):
            producer.produce("orders", f"{number} {part} {'x' * 150}")
        producer.flush(30)
        time.sleep(max(start + (number + 1) * 0.4 - time.monotonic(), 0))


{
    each.__name__: each
    for each in (
        querying, hurried, verbose, impatient, reconnecting, overworked, steady, slow, forgetful,
        regular, paced,
    )
}[role]()  # fmt: skip
