"""librdkafka and kafka-python against librdkafka's mock cluster.

The clients of a scenario are in a separate function, so that all of them have ended and logged
everything when the log is closed. The mock also responds to Produce with acks=0, unlike real
brokers; librdkafka ignores these responses.
"""

from __future__ import annotations

from contextlib import suppress

from confluent_kafka import KafkaError, KafkaException, Producer, ShareConsumer, TopicPartition
from kafka.errors import KafkaProtocolError, KafkaTimeoutError

from tools.record.mock import TRANSPORT, MockCluster
from tools.record.recording import Recording, Tool
from tools.record.scenarios import kafka_python, librdkafka, scenario
from tools.record.scenarios.librdkafka import (
    CODECS,
    Settings,
    beginning,
    consumer,
    poll_for,
    produce,
    read,
    settings,
)

PRODUCE, FETCH, OFFSET_COMMIT, FIND_COORDINATOR, JOIN_GROUP, INIT_PRODUCER_ID = 0, 1, 8, 10, 11, 22


@scenario("each acks, each codec, an idempotent producer, a consumer of all records", Tool())
def librdkafka_mock_produce(recording: Recording) -> None:
    with MockCluster(3) as cluster:
        cluster.create_topic("orders", 3)
        with recording.capture(), recording.librdkafka():
            write_in_every_way(cluster)
    recording.keep(cluster.software, librdkafka.SOFTWARE)


def write_in_every_way(cluster: MockCluster) -> None:
    for acks in ("0", "1", "all"):
        produce(cluster.bootstrap, f"acks-{acks}", "orders", 6, {"acks": acks, "linger.ms": 0})
    for codec in CODECS:
        options: Settings = {"compression.type": codec, "linger.ms": 50}
        produce(cluster.bootstrap, f"codec-{codec}", "orders", 100, options)
    produce(cluster.bootstrap, "idempotent", "orders", 6, {"enable.idempotence": True})
    reader = consumer(cluster.bootstrap, "reader", "unused", {"check.crcs": True})
    reader.assign(beginning("orders", range(3)))
    read(reader, 3 * 6 + 100 * len(CODECS) + 6)
    reader.close()


@scenario(
    "records with traceparent headers, alone and several in a batch; a group that commits each",
    Tool(packing=".zst"),
)
def librdkafka_mock_traced(recording: Recording) -> None:
    with MockCluster(1) as cluster:
        cluster.create_topic("orders", 2)
        with recording.capture(), recording.librdkafka():
            write_with_contexts(cluster)
    recording.keep(cluster.software, librdkafka.SOFTWARE)


def write_with_contexts(cluster: MockCluster) -> None:
    """Record n has the trace id n + 1 and the span id n + 1001; every tenth has no header."""
    for client_id, linger in (("single", 0), ("batched", 100)):
        producer = Producer(settings(cluster.bootstrap, client_id, {"linger.ms": linger}))
        for number, (key, value) in enumerate(librdkafka.orders(20, client_id)):
            context = f"00-{number + 1:032x}-{number + 1001:016x}-01"
            headers = {"traceparent": context} if number % 10 != 9 else {}
            producer.produce("orders", value, key, headers=headers)
            if not linger:
                producer.flush(20)
        producer.flush(20)
    reader = consumer(cluster.bootstrap, "reader", "traced")
    reader.subscribe(["orders"])
    for _ in range(40):
        (record,) = read(reader, 1)
        reader.commit(record, asynchronous=False)
    reader.close()


@scenario(
    "a classic group of two that rebalances, a consumer group (KIP-848), a share group (KIP-932), "
    "telemetry (KIP-714)",
    Tool(packing=".gz"),
)
def librdkafka_mock_groups(recording: Recording) -> None:
    with MockCluster(3) as cluster:
        cluster.create_topic("orders", 4)
        cluster.rebalance_after(300)
        cluster.ask_for_telemetry(interval_ms=700)
        with recording.capture(), recording.librdkafka():
            produce(cluster.bootstrap, "writer", "orders", 40)
            rebalance(cluster)
            consume_as_of_kip_848(cluster)
            share(cluster)
    recording.keep(cluster.software, librdkafka.SOFTWARE)


def rebalance(cluster: MockCluster) -> None:
    lively = {"heartbeat.interval.ms": 200, "session.timeout.ms": 3000}
    first = consumer(cluster.bootstrap, "member-1", "classic", lively)
    first.subscribe(["orders"])
    read(first, 40)
    first.commit(asynchronous=False)
    second = consumer(cluster.bootstrap, "member-2", "classic", lively)
    second.subscribe(["orders"])
    poll_for(3.0, first, second)
    first.close()
    poll_for(3.0, second)
    second.close()


def consume_as_of_kip_848(cluster: MockCluster) -> None:
    modern = consumer(cluster.bootstrap, "modern", "modern", {"group.protocol": "consumer"})
    modern.subscribe(["orders"])
    read(modern, 40)
    modern.commit(asynchronous=False)
    modern.close()


def share(cluster: MockCluster) -> None:
    sharing = ShareConsumer(settings(cluster.bootstrap, "sharing", {"group.id": "share"}))
    sharing.subscribe(["orders"])
    # A share group starts at the end: what it reads has to be written while it is there.
    for step in range(6):
        if step == 2:
            produce(cluster.bootstrap, "late-writer", "orders", 20)
        sharing.poll(0.5)
    sharing.close()


@scenario(
    "transactions: committed with offsets, aborted, fenced; a read_committed consumer",
    Tool("dumpcap"),
)
def librdkafka_mock_transactions(recording: Recording) -> None:
    with MockCluster(3) as cluster:
        cluster.create_topic("orders", 2)
        cluster.create_topic("payments", 2)
        cluster.rebalance_after(300)
        with recording.capture(), recording.librdkafka():
            produce(cluster.bootstrap, "writer", "orders", 10)
            transact(cluster)
    recording.keep(cluster.software, librdkafka.SOFTWARE)


def transact(cluster: MockCluster) -> None:
    reader = consumer(cluster.bootstrap, "reader", "payers")
    reader.subscribe(["orders"])
    read(reader, 10)
    transaction: Settings = {"transactional.id": "pay", "transaction.timeout.ms": 10_000}
    payer = Producer(settings(cluster.bootstrap, "payer", transaction))
    payer.init_transactions(10)
    payer.begin_transaction()
    for key, value in librdkafka.orders(5, "paid"):
        payer.produce("payments", value, key)
    offsets = reader.position(reader.assignment())
    payer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), 10)
    payer.commit_transaction(10)
    payer.begin_transaction()
    payer.produce("payments", b"never mind")
    payer.flush(10)
    payer.abort_transaction(10)
    reader.close()
    successor = Producer(settings(cluster.bootstrap, "successor", transaction))
    successor.init_transactions(10)
    payer.begin_transaction()
    payer.produce("payments", b"too late")
    with suppress(KafkaException):  # the successor fenced it
        payer.commit_transaction(10)
    auditor = consumer(cluster.bootstrap, "auditor", "x", {"isolation.level": "read_committed"})
    auditor.assign(beginning("payments", range(2)))
    read(auditor, 5)
    auditor.close()


@scenario(
    "injected errors, retried; moved leaders and a moved coordinator; an unknown topic; a "
    "connection closed instead of a response; slow responses, some too late; a broker that stops",
    Tool(interface="any", link="LINUX_SLL2", nanoseconds=False),
)
def librdkafka_mock_errors(recording: Recording) -> None:
    with MockCluster(3) as cluster:
        cluster.create_topic("orders", 3)
        cluster.rebalance_after(300)
        with recording.capture(), recording.librdkafka():
            retry_produce(cluster)
            retry_in_a_group(cluster)
            ask_for_what_is_not_there(cluster)
            wait_too_long(cluster)
            lose_a_broker(cluster)
    recording.keep(cluster.software, librdkafka.SOFTWARE)


SWIFT = {"retry.backoff.ms": 50, "retry.backoff.max.ms": 100, "linger.ms": 0}


def retry_produce(cluster: MockCluster) -> None:
    cluster.fail(
        PRODUCE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        TRANSPORT,
        KafkaError.NOT_ENOUGH_REPLICAS,
    )
    cluster.fail(INIT_PRODUCER_ID, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    produce(cluster.bootstrap, "retrying", "orders", 3, SWIFT | {"enable.idempotence": True})
    cluster.lead("orders", 0, 3)
    cluster.lead("orders", 1, 3)
    produce(cluster.bootstrap, "follower", "orders", 6, SWIFT)


def retry_in_a_group(cluster: MockCluster) -> None:
    cluster.fail(FIND_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE)
    cluster.fail(JOIN_GROUP, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    cluster.fail(FETCH, 0, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_LEADER_EPOCH)
    cluster.fail(OFFSET_COMMIT, KafkaError.REQUEST_TIMED_OUT, KafkaError.NOT_COORDINATOR)
    member = consumer(cluster.bootstrap, "unlucky", "group", {"session.timeout.ms": 3000})
    member.subscribe(["orders"])
    read(member, 9)
    for _ in range(3):
        with suppress(KafkaException):
            member.commit(asynchronous=False)
        poll_for(0.2, member)
    cluster.coordinate("group", "group", 2)
    poll_for(1.0, member)
    member.close()


def ask_for_what_is_not_there(cluster: MockCluster) -> None:
    lost = consumer(cluster.bootstrap, "lost", "unused", {"allow.auto.create.topics": False})
    cluster.refuse_topic("nowhere", KafkaError.UNKNOWN_TOPIC_OR_PART)
    lost.assign([TopicPartition("nowhere", 0, 0), TopicPartition("orders", 0, 1_000_000)])
    poll_for(0.5, lost)
    lost.close()


def wait_too_long(cluster: MockCluster) -> None:
    cluster.delay(-1, 80)
    produce(cluster.bootstrap, "slow", "orders", 3, SWIFT)
    cluster.delay(-1, 0)
    limits: Settings = {"socket.timeout.ms": 1000, "message.timeout.ms": 4000}
    impatient = Producer(settings(cluster.bootstrap, "impatient", limits))
    impatient.produce("orders", b"in time")
    impatient.flush(5)
    cluster.delay(-1, 1500)
    impatient.produce("orders", b"in vain")
    impatient.flush(5)
    cluster.delay(-1, 0)


def lose_a_broker(cluster: MockCluster) -> None:
    steady = Producer(settings(cluster.bootstrap, "steady", SWIFT))
    for partition in range(3):
        steady.produce("orders", b"before", partition=partition)
    steady.flush(10)
    cluster.stop(3)
    steady.produce("orders", b"behind", partition=0)
    steady.poll(1.0)
    cluster.start(3)
    steady.flush(10)


@scenario(
    "kafka-python rejects the v0 response to its ApiVersions v4 (error 35) and stops; "
    "configured for Kafka 1.1, it stops because the mock's Produce v5 responses lack "
    "log_start_offset, 8 bytes; configured for Kafka 2.1, it produces and reads",
    Tool(interface="any", link="LINUX_SLL"),
)
def kafka_python_mock(recording: Recording) -> None:
    with MockCluster(1) as cluster:
        cluster.create_topic("orders", 2, 1)
        with recording.capture(), kafka_python.log(recording):
            speak_older_and_older(cluster.bootstrap)
    recording.keep(cluster.software, kafka_python.SOFTWARE)


def speak_older_and_older(bootstrap: str) -> None:
    with suppress(KafkaTimeoutError):
        kafka_python.produce(bootstrap, "puzzled", "orders", 1, bootstrap_timeout_ms=700)
    with suppress(KafkaProtocolError):
        older = {"api_version": (1, 1), "retries": 1, "metadata_max_age_ms": 60_000}
        kafka_python.produce(bootstrap, "puzzled-again", "orders", 1, **older)
    for acks in (0, 1):
        old = {"api_version": (2, 1), "acks": acks}
        kafka_python.produce(bootstrap, f"acks-{acks}", "orders", 5, **old)
    kafka_python.read(bootstrap, "reader", "orders", 5, "group", api_version=(2, 1))
