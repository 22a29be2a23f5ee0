"""kafka-python 1.3: the protocols of brokers 0.8, 0.9 and 0.10, each codec, a group of one.

    python kafka_python_old.py BOOTSTRAP TOPIC

This version has a variable named `async`, which is a keyword since Python 3.7. The program renames
it when it imports the sources.
"""

import re
import sys
from importlib.machinery import SourceFileLoader

compile_source = SourceFileLoader.source_to_code
SourceFileLoader.source_to_code = lambda self, data, path, **options: compile_source(  # type: ignore
    self, re.sub(rb"\basync\b", b"async_", data) if "/kafka/" in path else data, path, **options
)

from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # noqa: E402

bootstrap, topic = sys.argv[1:]

for version in ((0, 8, 2), (0, 9), (0, 10)):
    name = ".".join(str(part) for part in version)
    common = {"bootstrap_servers": bootstrap, "api_version": version}
    for codec in (None, "gzip", "snappy"):
        producer = KafkaProducer(
            **common, client_id=f"producer-{name}-{codec}", compression_type=codec, linger_ms=30
        )
        for number in range(10):
            last = producer.send(topic, b"record %d " % number * 4, b"key-%d" % number)
        last.get(20)
        producer.close()

    reader = KafkaConsumer(
        **common,
        client_id=f"reader-{name}",
        group_id=None if version < (0, 9) else f"group-{name}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=15_000,
    )
    if version < (0, 9):
        reader.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
    else:
        reader.subscribe([topic])
    for _ in range(30):
        next(reader)
    if version >= (0, 9):
        reader.commit()
    reader.close()
