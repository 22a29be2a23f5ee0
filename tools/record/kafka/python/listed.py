"""Reads all records of topics, and prints partition, offset, key, value and timestamp (ms).

python listed.py BOOTSTRAP TOPIC...
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Consumer, TopicPartition

bootstrap, *topics = sys.argv[1:]
consumer = Consumer(
    {"bootstrap.servers": bootstrap, "client.id": "lister", "group.id": "none",
     "broker.address.family": "v4", "enable.auto.commit": False}
)  # fmt: skip
ends = {}
for topic in topics:
    for partition in consumer.list_topics(topic).topics[topic].partitions:
        place = TopicPartition(topic, partition, 0)
        ends[topic, partition] = consumer.get_watermark_offsets(place)[1]
consumer.assign([TopicPartition(*place, 0) for place, end in ends.items() if end])
left = sum(ends.values())
while left:
    message = consumer.poll(10)
    assert message is not None
    assert message.error() is None, message.error()
    left -= 1
    row = {"source": "client", "time": time.time_ns(), "client_id": "lister", "event": "received"}
    place = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
    key, value = (message.key() or b"").decode(), message.value().decode()[:12]
    created = message.timestamp()[1]
    print(json.dumps({**row, **place, "key": key, "value": value, "created": created}))
consumer.close()
