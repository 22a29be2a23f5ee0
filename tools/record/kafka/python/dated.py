"""Producers with correct and wrong timestamps, in a topic that accepts all of them.

python dated.py BOOTSTRAP TOPIC
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap, topic = sys.argv[1:]
common = {"bootstrap.servers": bootstrap, "broker.address.family": "v4"}
DAY = 24 * 3600 * 1000
accepted = {"message.timestamp.after.max.ms": str(10 * 365 * DAY)}
admin = AdminClient({**common, "client.id": "admin"})
admin.create_topics([NewTopic(topic, 1, 1, config=accepted)])[topic].result()


def now() -> int:
    """The time in ms since 1970, the unit of timestamps."""
    return time.time_ns() // 1_000_000


times = {"right": now, "seconds": lambda: now() // 1000, "ahead": lambda: now() + 2 * DAY}
for client_id, timestamp in times.items():
    producer = Producer({**common, "client.id": client_id})
    for number in range(20):
        producer.produce(topic, f"{client_id} {number}", timestamp=timestamp())
        if number % 4 == 3:
            assert producer.flush(30) == 0
