"""Produce records with keys, one of them frequent, with two partitioners of librdkafka.

python keyed.py BOOTSTRAP TOPIC
"""

from __future__ import annotations

import sys

from confluent_kafka import Producer

bootstrap, topic = sys.argv[1:]
HOT = 7


def produce(client_id: str, partitioner: str, keys: list[int]) -> None:
    """A record for each key."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "client.id": client_id, "broker.address.family": "v4",
         "topic.partitioner": partitioner, "linger.ms": 50}
    )  # fmt: skip
    for number, key in enumerate(keys):
        producer.produce(topic, f"{number} ".ljust(60, "x"), f"key-{key}")
    assert producer.flush(30) == 0


# Like Java's producer, with one key in two of three records.
produce("hot", "murmur2_random", [HOT if number % 3 else number % 40 for number in range(240)])
# The default of librdkafka: CRC-32.
produce("foreign", "consistent_random", [number % 40 for number in range(80)])
