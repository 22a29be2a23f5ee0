"""Clients of a broker with users and ACLs: allowed, denied, and with a wrong password.

python guarded.py BOOTSTRAP acls     the super user denies alice the topic and the group `closed`
python guarded.py BOOTSTRAP work     alice (PLAIN), bob (SCRAM), mallory (a wrong password)
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

bootstrap, role = sys.argv[1:]


def login(user: str, password: str, mechanism: str = "PLAIN") -> dict[str, object]:
    """The configuration of a client; its client id is its user."""
    return {
        "bootstrap.servers": bootstrap, "broker.address.family": "v4", "client.id": user,
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism,
        "sasl.username": user, "sasl.password": password,
    }  # fmt: skip


def acls() -> None:
    """Create topics, and the ACLs that deny alice."""
    admin = AdminClient(login("broker", "broker-secret"))
    for made in admin.create_topics([NewTopic("open", 1, 1), NewTopic("closed", 1, 1)]).values():
        made.result()
    for kind in (ResourceType.TOPIC, ResourceType.GROUP):
        denied = AclBinding(
            kind, "closed", ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.ALL,
            AclPermissionType.DENY,
        )  # fmt: skip
        for made in admin.create_acls([denied]).values():
            made.result()


def produce(config: dict[str, object], topic: str, count: int) -> None:
    """Produce records, and print what is denied."""
    producer = Producer({**config, "message.timeout.ms": 3000})
    for number in range(count):
        try:
            producer.produce(topic, f"record {number}", on_delivery=lambda error, _: print(error))
        except KafkaException as error:
            print(error)
        producer.flush(4)


def consume(config: dict[str, object], topic: str, group: str) -> None:
    """Poll once in a group."""
    consumer = Consumer({**config, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        for _ in range(20):
            message = consumer.poll(0.2)
            if message is not None:
                print(message.error())
    except KafkaException as error:
        print(error)
    consumer.close()


def work() -> None:
    """Run all clients, one after the other."""
    alice = login("alice", "alice-secret")
    produce(alice, "open", 3)
    produce(alice, "closed", 2)
    consume(alice, "open", "readers")
    consume(alice, "open", "closed")
    produce(login("bob", "bob-secret", "SCRAM-SHA-256"), "open", 3)
    mallory = {**login("mallory", "guessed"), "reconnect.backoff.ms": 1000}
    produce(mallory, "open", 1)


{"acls": acls, "work": work}[role]()
