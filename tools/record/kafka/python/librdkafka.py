"""librdkafka: produce with each codec, consume in a group, request an unknown topic.

python librdkafka.py BOOTSTRAP TOPIC GROUP
"""

import sys

from confluent_kafka import Consumer, Producer, TopicPartition

bootstrap, topic, group = sys.argv[1:]
common = {"bootstrap.servers": bootstrap, "debug": "protocol", "broker.address.family": "v4"}

for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    producer = Producer({**common, "client.id": f"producer-{codec}", "compression.type": codec})
    for number in range(20):
        value = f"record {number} " * 4
        producer.produce(topic, value, f"key-{number}", headers={"codec": codec.encode()})
    assert producer.flush(30) == 0

settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
consumer = Consumer({**common, "client.id": "consumer", **settings})
consumer.subscribe([topic])
seen = 0
while seen < 100:
    batch = consumer.consume(100, 20)
    assert batch
    seen += sum(not message.error() for message in batch)
consumer.commit(asynchronous=False)
consumer.close()

reader = Consumer({**common, "client.id": "out-of-range", **settings, "auto.offset.reset": "error"})
reader.assign([TopicPartition(topic, 0, 1_000_000)])
assert reader.consume(1, 20)[0].error()
reader.close()

producer = Producer(
    {
        **common,
        "client.id": "lost",
        "message.timeout.ms": 3000,
        "topic.metadata.propagation.max.ms": 100,
    }
)
failed: list[object] = []
producer.produce("no-such-topic", "value", on_delivery=lambda error, _: failed.append(error))
producer.flush(20)
assert failed[0] is not None
