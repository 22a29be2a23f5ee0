"""pykafka 2.8: its own codecs and message sets, a simple and a balanced consumer.

python pykafka_old.py BOOTSTRAP TOPIC
"""

import sys
import warnings

warnings.simplefilter("ignore")
from pykafka import KafkaClient  # noqa: E402
from pykafka.common import CompressionType, OffsetType  # noqa: E402

bootstrap, name = sys.argv[1:]

for version in ("0.8.2", "0.10.0"):
    client = KafkaClient(hosts=bootstrap, broker_version=version)
    topic = client.topics[name.encode()]
    for codec in (CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY):
        with topic.get_sync_producer(compression=codec, required_acks=1) as producer:
            for number in range(5):
                producer.produce(b"record %d " % number * 4, partition_key=b"key-%d" % number)

earliest = {"auto_offset_reset": OffsetType.EARLIEST, "reset_offset_on_start": True}
simple = topic.get_simple_consumer(consumer_group=b"simple", consumer_timeout_ms=5000, **earliest)
for _ in range(30):
    assert simple.consume() is not None
simple.commit_offsets()
simple.stop()

balanced = topic.get_balanced_consumer(
    consumer_group=b"balanced", managed=True, consumer_timeout_ms=15_000, **earliest
)
for _ in range(30):
    assert balanced.consume() is not None
balanced.commit_offsets()
balanced.stop()
