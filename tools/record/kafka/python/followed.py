"""librdkafka as a producer, a member, a transactional producer or an auditor that logs its work.

    python followed.py BOOTSTRAP produce NAME TOPIC COUNT EVERY_MS
    python followed.py BOOTSTRAP member NAME TOPIC GROUP SECONDS PAUSE_AFTER
        [PROPERTY=VALUE...]
    python followed.py BOOTSTRAP transact NAME TOPIC
    python followed.py BOOTSTRAP audit NAME TOPIC GROUP...

Each line of output is a JSON object; tools/record/kafka/truth.py describes its fields.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

bootstrap, role, name, topic, *given = sys.argv[1:]
common = {"bootstrap.servers": bootstrap, "client.id": name, "broker.address.family": "v4"}


def report(event: str, **facts: str | int | bool | None) -> None:
    """Print an event with its time."""
    row = {"source": "client", "time": time.time_ns(), "client_id": name, "event": event, **facts}
    print(json.dumps(row), flush=True)


def note(event: str, message: Message) -> None:
    """Print a record, and when its producer created it."""
    where = {"partition": message.partition(), "offset": message.offset()}
    report(event, topic=topic, **where, created=message.timestamp()[1] * 1_000_000)


def delivered(error: object, message: Message) -> None:
    """Print what the broker acknowledged."""
    assert error is None, error
    note("produced", message)


def produce(count: int, every_ms: int) -> None:
    """Produce records, one by one, to all partitions in turn."""
    producer = Producer({**common, "enable.idempotence": True, "linger.ms": 0})
    for number in range(count):
        producer.produce(topic, f"record {number}", partition=number % 3, on_delivery=delivered)
        producer.poll(0)
        time.sleep(every_ms / 1000)
    assert producer.flush(30) == 0


def member(group: str, seconds: float, pause: float, *settings: str) -> None:
    """Reads, commits each second, stops reading after `pause`, and leaves after `seconds`."""
    options = dict(pair.split("=", 1) for pair in settings)
    consumer = Consumer(
        {**common, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
         "fetch.wait.max.ms": 250, **options}
    )  # fmt: skip

    def log_partitions(event: str, partitions: list[TopicPartition]) -> None:
        which = ",".join(str(each.partition) for each in sorted(partitions))
        report(event, group_id=group, member_id=consumer.memberid(), partitions=which)

    consumer.subscribe(
        [topic],
        on_assign=lambda _, partitions: log_partitions("assigned", partitions),
        on_revoke=lambda _, partitions: log_partitions("revoked", partitions),
    )
    begun = committed = time.monotonic()
    paused = fresh = False
    while (now := time.monotonic()) < begun + seconds:
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            note("received", message)
            fresh = True
        if not paused and now > begun + pause:
            consumer.pause(consumer.assignment())
            paused = True
        if fresh and now > committed + 1:
            commit(consumer, group)
            committed, fresh = now, False
    consumer.close()
    report("left", group_id=group)


def commit(consumer: Consumer, group: str) -> None:
    """Commit the current position, unless the group rebalances."""
    try:
        for each in consumer.commit(asynchronous=False):
            report("committed", group_id=group, partition=each.partition, offset=each.offset)
    except KafkaException as error:
        report("commit failed", group_id=group, error=error.args[0].name())


def transact() -> None:
    """One transaction that commits, one that aborts, one that times out."""
    options = {"transactional.id": name, "transaction.timeout.ms": 2000, "linger.ms": 0}
    producer = Producer({**common, **options})
    producer.init_transactions(30)
    for outcome in ("committed", "aborted", "timed out"):
        producer.begin_transaction()
        report("begun", transactional_id=name)
        for number in range(4):
            producer.produce(topic, f"{outcome} {number}", partition=0, on_delivery=delivered)
        producer.flush(10)
        time.sleep(0.5)
        if outcome == "committed":
            producer.commit_transaction(10)
        elif outcome == "aborted":
            producer.abort_transaction(10)
        else:
            time.sleep(5)
            try:
                producer.commit_transaction(10)
                raise AssertionError("in time")
            except KafkaException as error:
                print(error)
        report(outcome, transactional_id=name)


def audit(*groups: str) -> None:
    """Print the committed offsets of the groups, and the end offsets of the partitions."""
    admin = AdminClient(common)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    asked = admin.list_offsets({each: OffsetSpec.latest() for each in partitions})
    ends = {each.partition: future.result().offset for each, future in asked.items()}
    for group in groups:
        wanted = [ConsumerGroupTopicPartitions(group, partitions)]
        offsets = admin.list_consumer_group_offsets(wanted)[group].result()
        for each in offsets.topic_partitions:
            facts = {"partition": each.partition, "committed": each.offset}
            report("lag", group_id=group, topic=topic, **facts, end=ends[each.partition])


match role:
    case "produce":
        produce(int(given[0]), int(given[1]))
    case "member":
        member(given[0], float(given[1]), float(given[2]), *given[3:])
    case "transact":
        transact()
    case "audit":
        audit(*given)
