"""Current clients with the newest broker: each produces, consumes, and causes errors."""

from __future__ import annotations

from collections.abc import Callable

from tools.record.kafka import artifacts, clients
from tools.record.kafka.artifacts import KAFKA_4
from tools.record.kafka.scenarios import each, recorded, scenario

KAFKAJS, PLATFORMATIC = "kafkajs@2.2.4", "@platformatic/kafka@2.12.1"
ABOUT = {
    "kafka-4-java": f"Java client {KAFKA_4}: each codec, a group of one, an offset out of range",
    "kafka-4-librdkafka": "librdkafka: each codec, a group of one, an offset out of range, an "
    "unknown topic",
    "kafka-4-kafka-python": "kafka-python: each codec, a group of one, an unknown topic",
    "kafka-4-aiokafka": "aiokafka: each codec, a group of one, an unknown topic",
    "kafka-4-kafkajs": f"{KAFKAJS}: no codec and gzip, a group of one, an unknown topic",
    "kafka-4-platformatic": f"{PLATFORMATIC}: each codec, a group of one, an unknown topic",
    "kafka-4-franz-go": "franz-go: each codec, a group of one, an unknown topic",
    "kafka-4-sarama": "sarama: each codec, a group of one, an unknown topic",
    "kafka-4-kafka-go": "kafka-go: each codec, a group of one, an unknown topic",
    "kafka-4-rskafka": "rskafka: each codec, no group, an offset out of range, an unknown topic",
}


def today(name: str) -> None:
    """One client, and the topic that it needs."""
    command, env = PROGRAMS[name]()
    with recorded(name, ABOUT[name], "plain:2:1") as cluster:
        cluster.recording.run(name, [*command, cluster.bootstrap, "plain", "readers"], env)


PROGRAMS: dict[str, Callable[[], clients.Program]] = {
    "kafka-4-java": lambda: clients.in_java(artifacts.client(KAFKA_4), "ProduceConsume"),
    "kafka-4-librdkafka": lambda: clients.in_python("librdkafka"),
    "kafka-4-kafka-python": lambda: clients.in_python("kafka_python"),
    "kafka-4-aiokafka": lambda: clients.in_python("aiokafka_client"),
    "kafka-4-kafkajs": lambda: clients.in_node(artifacts.npm(KAFKAJS), "kafkajs"),
    "kafka-4-platformatic": lambda: clients.in_node(artifacts.npm(PLATFORMATIC), "platformatic"),
    "kafka-4-franz-go": lambda: clients.in_go("franz"),
    "kafka-4-sarama": lambda: clients.in_go("sarama"),
    "kafka-4-kafka-go": lambda: clients.in_go("kafkago"),
    "kafka-4-rskafka": lambda: clients.in_rust("rskafka"),
}
each(today, *PROGRAMS)


@scenario
def kafka_4_java_4_0() -> None:
    """The first release of Kafka 4: versions that no other release prefers."""
    java = artifacts.client("4.0.0")
    about = "Java client 4.0.0: each codec, a group of one, an offset out of range, transactions"
    with recorded("kafka-4-java-4-0", about, "plain:2:1", "ledger:1:1") as cluster:
        cluster.java("ProduceConsume", "plain", "readers", classpath=java)
        cluster.java("Transactions", "ledger", classpath=java)
