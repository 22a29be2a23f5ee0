"""kafka-python: produce with each codec, consume in a group, request an unknown topic.

python kafka_python.py BOOTSTRAP TOPIC GROUP
"""

import sys

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

bootstrap, topic, group = sys.argv[1:]

for codec in (None, "gzip", "snappy", "lz4", "zstd"):
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, client_id=f"producer-{codec}", compression_type=codec
    )
    for number in range(20):
        value, key = b"record %d " % number * 4, b"key-%d" % number
        producer.send(topic, value, key, headers=[("codec", str(codec).encode())])
    producer.flush(20)
    producer.close()

consumer = KafkaConsumer(
    topic,
    bootstrap_servers=bootstrap,
    client_id="consumer",
    group_id=group,
    auto_offset_reset="earliest",
    enable_auto_commit=False,
    consumer_timeout_ms=20_000,
)
for _ in range(100):
    next(consumer)
consumer.commit()
consumer.close()

producer = KafkaProducer(bootstrap_servers=bootstrap, client_id="lost", max_block_ms=2000)
try:
    producer.send("no-such-topic", b"value").get(5)
except KafkaError as error:
    print(error)
else:
    raise AssertionError("there is such a topic")
producer.close()
