"""aiokafka: produce with each codec, consume in a group, request an unknown topic.

python aiokafka_client.py BOOTSTRAP TOPIC GROUP
"""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

bootstrap, topic, group = sys.argv[1:]


async def main() -> None:
    for codec in (None, "gzip", "snappy", "lz4", "zstd"):
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, client_id=f"producer-{codec}", compression_type=codec
        )
        await producer.start()
        for number in range(20):
            value, key = b"record %d " % number * 4, b"key-%d" % number
            await producer.send(topic, value, key, headers=[("codec", str(codec).encode())])
        await producer.stop()

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        client_id="consumer",
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    for _ in range(100):
        await asyncio.wait_for(consumer.getone(), 20)
    await consumer.commit()
    await consumer.stop()

    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, client_id="lost", request_timeout_ms=2000
    )
    await producer.start()
    try:
        await producer.send_and_wait("no-such-topic", b"value")
    except KafkaError as error:
        print(error)
    else:
        raise AssertionError("there is such a topic")
    await producer.stop()


asyncio.run(main())
