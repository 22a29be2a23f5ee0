"""librdkafka, aiokafka and kafka-python against Tansu.

As in `mock`, clients are in separate functions. Tansu also responds to Produce with acks=0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import aiokafka
import aiokafka.admin
import kafka.admin
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]

from tools.record import clients
from tools.record.recording import Recording, Tool
from tools.record.scenarios import kafka_python, librdkafka, scenario
from tools.record.scenarios.librdkafka import CODECS, orders, poll_for, produce, read, settings
from tools.record.tansu import Tansu

PATIENCE = 6000
"""ms; Tansu waits half the session timeout for a group's first members."""


@scenario(
    "over IPv6: topics, configurations and groups administered; acks 0, each codec, an idempotent "
    "producer; a group",
    Tool(packing=".zst"),
)
def librdkafka_tansu(recording: Recording) -> None:
    with (
        Tansu("[2001:db8::1]:9092", recording.work / "tansu.txt") as broker,
        recording.capture(),
        recording.librdkafka(),
    ):
        administer_and_talk(broker.bootstrap)
    recording.keep(broker.software, librdkafka.SOFTWARE)


def administer_and_talk(bootstrap: str) -> None:
    admin = AdminClient(settings(bootstrap, "admin"))
    wait_for(admin.create_topics([NewTopic("orders", 3, 1), NewTopic("scrap", 1, 1)]))
    wait_for(admin.create_topics([NewTopic("orders", 3, 1)]), may_fail=True)
    wait_for(admin.describe_configs([ConfigResource("topic", "orders")]), may_fail=True)
    for codec in CODECS:
        produce(bootstrap, f"codec-{codec}", "orders", 30, {"compression.type": codec})
    produce(bootstrap, "acks-0", "orders", 5, {"acks": "0"})
    produce(bootstrap, "idempotent", "orders", 5, {"enable.idempotence": True})
    lively = {"session.timeout.ms": PATIENCE, "max.poll.interval.ms": PATIENCE}
    member = librdkafka.consumer(bootstrap, "member", "group", lively)
    member.subscribe(["orders"])
    read(member, 30 * len(CODECS) + 10)
    member.commit(asynchronous=False)
    admin.list_consumer_groups().result(10)
    wait_for(admin.describe_consumer_groups(["group"]), may_fail=True)
    poll_for(1.0, member)
    member.close()
    wait_for(admin.delete_topics(["scrap"]), may_fail=True)


def wait_for(futures: Mapping[Any, Future[Any]], *, may_fail: bool = False) -> None:
    """Wait for the results of an administrator's requests."""
    for future in futures.values():
        error = future.exception(10)
        if error is not None and not may_fail:
            raise error


@scenario(
    "a topic created; produce with acks 0 and 1, gzip; a group of two, commits",
    Tool(nanoseconds=False),
)
def aiokafka_tansu(recording: Recording) -> None:
    with (
        Tansu("127.0.0.1:9092", recording.work / "tansu.txt") as broker,
        recording.capture(),
        recording.python("aiokafka", "aiokafka.conn"),
    ):
        asyncio.run(talk(broker.bootstrap))
    recording.keep(broker.software, f"aiokafka {aiokafka.__version__}")


async def talk(bootstrap: str) -> None:
    """The whole of aiokafka's part."""
    clients.CLIENT.set("admin")
    admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=bootstrap, client_id="admin")
    await admin.start()
    await admin.create_topics([aiokafka.admin.NewTopic("orders", 3, 1)])
    await admin.close()
    for acks, codec in ((0, None), (1, None), (1, "gzip")):
        name = f"codec-{codec}" if codec else f"acks-{acks}"
        clients.CLIENT.set(name)
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, client_id=name, acks=acks, compression_type=codec
        )
        await producer.start()
        for key, value in orders(10, name):
            await producer.send_and_wait("orders", value, key)
        await producer.stop()
    await asyncio.gather(member(bootstrap, "member-1"), member(bootstrap, "member-2"))


async def member(bootstrap: str, name: str) -> None:
    """One of the group: reads for a while, commits, leaves."""
    clients.CLIENT.set(name)
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=bootstrap,
        client_id=name,
        group_id="group",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=PATIENCE,
        max_poll_interval_ms=PATIENCE,
        heartbeat_interval_ms=500,
    )
    await consumer.start()
    for _ in range(8):
        if any((await consumer.getmany(timeout_ms=500)).values()):
            await consumer.commit()
    await consumer.stop()


@scenario(
    "a topic created; produce with acks 0 and 1 and each codec; a group, commits",
    Tool("dumpcap", packing=".gz"),
)
def kafka_python_tansu(recording: Recording) -> None:
    with (
        Tansu("127.0.0.1:9092", recording.work / "tansu.txt") as broker,
        recording.capture(),
        kafka_python.log(recording),
    ):
        speak_pure_python(broker.bootstrap)
    recording.keep(broker.software, kafka_python.SOFTWARE)


def speak_pure_python(bootstrap: str) -> None:
    clients.CLIENT.set("admin")
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=bootstrap, client_id="admin")
    admin.create_topics([kafka.admin.NewTopic("orders", 3, 1)])
    admin.close()
    for acks in (0, 1):
        kafka_python.produce(bootstrap, f"acks-{acks}", "orders", 5, acks=acks)
    for codec in CODECS[1:]:
        name = f"codec-{codec}"
        kafka_python.produce(bootstrap, name, "orders", 5, compression_type=codec)
    kafka_python.read(bootstrap, "member", "orders", 25, "group")
