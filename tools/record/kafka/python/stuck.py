"""Transactions that commit, that take long, and that never end; readers of both isolation levels.

python stuck.py BOOTSTRAP hang TOPIC    writes to partition 0 in a transaction, until killed
python stuck.py BOOTSTRAP work TOPIC    two transactional producers and two readers
"""

from __future__ import annotations

import json
import sys
import time
from threading import Thread

from confluent_kafka import Consumer, Message, Producer, TopicPartition

bootstrap, role, topic = sys.argv[1:]
common = {"bootstrap.servers": bootstrap, "broker.address.family": "v4"}
SECONDS = 9


def report(client_id: str, event: str, **facts: str | int) -> None:
    """Print an event with its time."""
    row = {"source": "client", "time": time.time_ns(), "client_id": client_id, "event": event}
    print(json.dumps(row | facts), flush=True)


def producer(name: str) -> Producer:
    """A producer whose transactional id is its client id."""
    config = {"client.id": name, "transactional.id": name, "transaction.timeout.ms": 600_000}
    made = Producer({**common, **config, "linger.ms": 0})
    made.init_transactions(30)
    return made


def write(made: Producer, name: str, partition: int, count: int) -> None:
    """Write records of a transaction, and print the offset of each."""

    def delivered(error: object, message: Message) -> None:
        assert error is None, error
        report(name, "produced", topic=topic, partition=partition, offset=message.offset() or 0)

    for number in range(count):
        made.produce(topic, f"{name} {number}", partition=partition, on_delivery=delivered)
    assert made.flush(30) == 0


def hang() -> None:
    """Begin a transaction, and never end it."""
    made = producer("hanging")
    made.begin_transaction()
    write(made, "hanging", 0, 5)
    report("hanging", "begun", transactional_id="hanging")
    time.sleep(600)


def steady() -> None:
    """Commits each transaction at once."""
    made = producer("steady")
    for _ in range(15):
        made.begin_transaction()
        for partition in (0, 1):
            write(made, "steady", partition, 2)
        made.commit_transaction(30)
        time.sleep(0.5)


def late() -> None:
    """One transaction that takes three seconds."""
    time.sleep(2)
    made = producer("late")
    made.begin_transaction()
    write(made, "late", 1, 3)
    report("late", "begun", transactional_id="late")
    time.sleep(3)
    made.commit_transaction(30)
    report("late", "committed", transactional_id="late")


def read(name: str, isolation: str) -> None:
    """Reads, and commits each second."""
    config = {"client.id": name, "group.id": name, "isolation.level": isolation}
    reads = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.wait.max.ms": 200}
    consumer = Consumer({**common, **config, **reads})
    consumer.subscribe([topic])
    begun = committed = time.monotonic()
    fresh = False
    while (now := time.monotonic()) < begun + SECONDS:
        fresh |= consumer.poll(0.1) is not None
        if fresh and now > committed + 1:
            consumer.commit(asynchronous=False)
            committed, fresh = now, False
    for each in consumer.committed([TopicPartition(topic, number) for number in (0, 1)], 10):
        report(name, "position", partition=each.partition, offset=each.offset)
    consumer.close()


def work() -> None:
    """Run all clients at once."""
    readers = (("strict", "read_committed"), ("loose", "read_uncommitted"))
    threads = [Thread(target=each) for each in (steady, late)]
    threads += [Thread(target=read, args=each) for each in readers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


{"hang": hang, "work": work}[role]()
