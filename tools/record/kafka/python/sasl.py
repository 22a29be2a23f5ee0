"""librdkafka with each SASL mechanism, and once with a wrong password.

python sasl.py BOOTSTRAP TOPIC
"""

import sys

from confluent_kafka import Producer

bootstrap, topic = sys.argv[1:]
ALICE = {"sasl.username": "alice", "sasl.password": "alice-secret"}
WAYS = {
    "PLAIN": ALICE,
    "SCRAM-SHA-256": ALICE,
    "SCRAM-SHA-512": ALICE,
    "OAUTHBEARER": {
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": "principal=alice",
    },
    "wrong": {"sasl.mechanism": "PLAIN", **ALICE, "sasl.password": "not-the-secret"},
}

for mechanism, given in WAYS.items():
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": f"rdkafka-{mechanism}",
            "debug": "protocol",
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": mechanism,
            "message.timeout.ms": 5000 if mechanism != "wrong" else 1000,
            **given,
        }
    )
    for number in range(5):
        producer.produce(topic, f"record {number}", f"key-{number}")
    left = producer.flush(10)
    print(mechanism, left)
