"""aiokafka over TLS 1.3 and 1.2: produce and read, with the secrets in a key log file.

python tls.py BOOTSTRAP TOPIC AUTHORITY KEYLOG
"""

import asyncio
import ssl
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

bootstrap, topic, authority, keylog = sys.argv[1:]
CIPHERS = {
    "1.3": (ssl.TLSVersion.TLSv1_3, None),
    "1.2-gcm": (ssl.TLSVersion.TLSv1_2, "ECDHE-RSA-AES256-GCM-SHA384"),
    "1.2-chacha": (ssl.TLSVersion.TLSv1_2, "ECDHE-RSA-CHACHA20-POLY1305"),
    "1.2-cbc": (ssl.TLSVersion.TLSv1_2, "ECDHE-RSA-AES128-SHA256"),
}


async def talk(name: str, context: ssl.SSLContext) -> None:
    common = {"bootstrap_servers": bootstrap, "security_protocol": "SSL", "ssl_context": context}
    producer = AIOKafkaProducer(client_id=f"producer-{name}", **common)
    await producer.start()
    for number in range(10):
        await producer.send(topic, b"record %d " % number * 4, b"key-%d" % number)
    await producer.stop()
    consumer = AIOKafkaConsumer(
        topic, client_id=f"consumer-{name}", auto_offset_reset="earliest", **common
    )
    await consumer.start()
    for _ in range(10):
        await asyncio.wait_for(consumer.getone(), 20)
    await consumer.stop()


async def main() -> None:
    for name, (version, ciphers) in CIPHERS.items():
        context = ssl.create_default_context(cafile=authority)
        context.minimum_version = context.maximum_version = version
        if ciphers:
            context.set_ciphers(ciphers)
        context.keylog_filename = keylog
        await talk(name, context)


asyncio.run(main())
