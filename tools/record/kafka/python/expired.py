"""A consumer whose next records are deleted while it is away, as by retention.

    python expired.py BOOTSTRAP TOPIC GROUP

It prints the offset of each record that it reads; tools/record/kafka/truth.py describes the fields.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

COUNT, READ, START = 100, 20, 60
"""Records of the topic, those that the consumer reads first, and the first one that stays."""

bootstrap, topic, group = sys.argv[1:]
common = {"bootstrap.servers": bootstrap, "broker.address.family": "v4"}


def read(until: int) -> None:
    """Read and commit up to an offset."""
    consumer = Consumer(
        {
            **common, "client.id": "reader", "group.id": group, "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "fetch.message.max.bytes": 2_000,
        }
    )  # fmt: skip
    consumer.subscribe([topic])
    offset = -1
    while offset + 1 < until:
        message = consumer.poll(10)
        assert message
        assert message.error() is None
        offset = message.offset()
        row = {
            "source": "client", "time": time.time_ns(), "client_id": "reader", "event": "received",
            "topic": topic, "partition": message.partition(), "offset": offset,
            "created": message.timestamp()[1] * 1_000_000,
        }  # fmt: skip
        print(json.dumps(row), flush=True)
    consumer.commit(offsets=[TopicPartition(topic, 0, until)], asynchronous=False)
    consumer.close()


admin = AdminClient({**common, "client.id": "admin"})
admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
producer = Producer({**common, "client.id": "writer"})
for number in range(COUNT):
    producer.produce(topic, f"record {number}")
assert producer.flush(30) == 0
read(READ)
(deleted,) = admin.delete_records([TopicPartition(topic, 0, START)]).values()
assert deleted.result().low_watermark == START
read(COUNT)
