"""Deliberate problems, each with the log of a broker, a client or a tool."""

from __future__ import annotations

import time

from tools.record.kafka import artifacts, clients
from tools.record.kafka.artifacts import KAFKA_4
from tools.record.kafka.cluster import Cluster, Node
from tools.record.kafka.recording import Recording, wait_for
from tools.record.kafka.scenarios import AUTHORIZER, recorded, scenario
from tools.record.kafka.scenarios.security import BROKER, PLAIN, SCRAM, USERS

GROUPS = "consumer.group.ConsumerGroupCommand"


@scenario
def kafka_4_stuck() -> None:
    artifacts.tools()
    about = (
        "a transaction whose producer was killed, one that takes 3 s, others that are short; "
        "readers with both isolation levels; kafka-transactions and kafka-consumer-groups"
    )
    command, _ = clients.in_python("stuck")
    with recorded("kafka-4-stuck", about, "ledger:2:1") as cluster:
        recording = cluster.recording
        hanging = recording.start("hanging", [*command, cluster.bootstrap, "hang", "ledger"])
        wait_for(lambda: '"begun"' in recording.log("hanging"), "a transaction begins", 30)
        recording.kill(hanging)
        cluster.python("stuck", "work", "ledger")
        transactions, partition = "TransactionsCommand", ("--topic", "ledger", "--partition", "0")
        cluster.tool("tool-list", transactions, "list")
        cluster.tool("tool-describe", transactions, "describe", "--transactional-id", "hanging")
        cluster.tool("tool-producers", transactions, "describe-producers", *partition)
        for group in ("strict", "loose"):
            cluster.tool(f"tool-group-{group}", GROUPS, "--describe", "--group", group)


@scenario
def kafka_4_guarded() -> None:
    about = (
        "SASL without TLS, and ACLs: PLAIN and SCRAM, requests for a topic and a group denied, "
        "a wrong password; the broker's log of them"
    )
    plain = "listener.name.clients.plain.sasl.jaas.config"
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        plain: f"{PLAIN} {BROKER} {USERS};",
        "listener.name.clients.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
        **AUTHORIZER,
        "super.users": "User:broker;User:ANONYMOUS",
    }
    users = ("--add-scram", "SCRAM-SHA-256=[name=bob,password=bob-secret]")
    with recorded(
        "kafka-4-guarded", about, settings=settings, format_with=users, protocol="SASL_PLAINTEXT"
    ) as cluster:
        cluster.python("guarded", "acls")
        cluster.python("guarded", "work")


@scenario
def kafka_4_resent() -> None:
    about = (
        "a broker that is paused, so that two producers send again, one of them idempotent; a "
        "reader prints all records"
    )
    impatient = (
        *("200", "40", "pause=20", "request.timeout.ms=600", "delivery.timeout.ms=20000"),
        *("retry.backoff.ms=50", "retry.backoff.max.ms=50"),
    )
    careless = ("enable.idempotence=false", "linger.ms=50", "client.id=careless")
    with recorded("kafka-4-resent", about, "twice:1:1", "once:1:1") as cluster:
        running = [
            cluster.start_java(topic, "Produce", topic, *impatient, *settings)
            for topic, settings in (("twice", careless), ("once", ("client.id=careful",)))
        ]
        time.sleep(4)
        with cluster.paused(1):
            time.sleep(1.5)
        for process in running:
            process.wait(60)
        cluster.python("listed", "twice", "once")


@scenario
def kafka_4_skewed() -> None:
    about = (
        "records with keys: by the Java client, by librdkafka with the same partitioner and a hot "
        "key, and by librdkafka with its default partitioner; a reader prints all records"
    )
    with recorded("kafka-4-skewed", about, "keyed:6:1", "even:6:1") as cluster:
        for topic in ("keyed", "even"):
            cluster.java("Produce", topic, "40", "60")
        cluster.python("keyed", "keyed")
        cluster.python("listed", "keyed", "even")


@scenario
def kafka_4_replicated() -> None:
    about = (
        "a producer with acks=all; its follower is stopped for 100 ms of each 200 ms, later for "
        "3 s, so that it leaves the in-sync replicas; the broker's log of them"
    )
    settings = {"replica.lag.time.max.ms": "1500"}
    nodes = (Node(1), Node(2, "broker"))
    with recorded(
        "kafka-4-replicated", about, "orders:1:1/2", nodes=nodes, settings=settings
    ) as cluster:
        paced = ("500", "60", "pause=20", "linger.ms=0", "acks=all", "client.id=writer")
        writer = cluster.start_java("writer", "Produce", "orders", *paced)
        time.sleep(4)
        for _ in range(12):
            with cluster.paused(2):
                time.sleep(0.1)
            time.sleep(0.1)
        time.sleep(1)
        with cluster.paused(2):
            time.sleep(3)
        writer.wait(60)
        time.sleep(2)


@scenario
def kafka_4_recreated() -> None:
    artifacts.tools()
    about = (
        "a topic deleted, and created again, while its clients run; a group whose member left; "
        "records deleted and offsets reset by an administrator; kafka-consumer-groups"
    )
    describe = (GROUPS, "--describe", "--all-groups")
    with recorded("kafka-4-recreated", about, "orders:1:1") as cluster:
        paced = ("700", "20", "pause=40", "client.id=writer")
        writer = cluster.start_java("writer", "Produce", "orders", *paced)
        leaver, stayer = (
            cluster.start_java(
                name, "Member", "orders", name, seconds, "group.protocol=consumer",
                f"client.id={name}",
            )
            for name, seconds in (("leaver", "9"), ("stayer", "30"))
        )  # fmt: skip
        time.sleep(7)
        cluster.java("DeleteTopics", "orders")
        cluster.java("Topics", "orders:1:1")
        leaver.wait(60)
        cluster.tool("tool-running", *describe)
        writer.wait(90)
        stayer.wait(90)
        cluster.tool("tool-ended", *describe)
        offsets = cluster.recording.work / "offsets.json"
        offsets.write_text('{"partitions": [{"topic": "orders", "partition": 0, "offset": 50}]}')
        cluster.tool("tool-deleted", "DeleteRecordsCommand", "--offset-json-file", str(offsets))
        reset = ("--reset-offsets", "--to-earliest", "--execute", "--topic", "orders")
        cluster.tool("tool-reset", GROUPS, "--group", "stayer", *reset)
        cluster.tool("tool-group", *describe)


@scenario
def kafka_4_dated() -> None:
    about = (
        "producers with timestamps of now, in seconds instead of milliseconds, and two days ahead; "
        "a reader prints all timestamps"
    )
    with recorded("kafka-4-dated", about) as cluster:
        cluster.python("dated", "events")
        cluster.python("listed", "events")


@scenario
def kafka_4_expired() -> None:
    about = (
        "a consumer continues after the records at its committed offset were deleted; it prints "
        "the offsets that it reads"
    )
    with recorded("kafka-4-expired", about) as cluster:
        cluster.python("expired", "events", "readers")


@scenario
def kafka_4_unclean() -> None:
    artifacts.tools()
    about = (
        "an unclean leader election: the follower stops, the leader continues and is killed, and "
        "the follower leads; the broker's log of the truncation; a reader prints all records"
    )
    settings = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    nodes = (Node(3, "controller"), Node(1, "broker"), Node(2, "broker"))
    with recorded(
        "kafka-4-unclean", about, "orders:1:1/2", nodes=nodes, settings=settings
    ) as cluster:
        paced = ("300", "40", "pause=60", "acks=1", "client.id=writer")
        writer = cluster.start_java("writer", "Produce", "orders", *paced)
        time.sleep(6)
        cluster.stop(2)
        time.sleep(4)
        cluster.kill(1)
        cluster.start(2)
        unclean = ("--election-type", "unclean", "--topic", "orders", "--partition", "0")
        cluster.tool("tool-elect", "LeaderElectionCommand", *unclean)
        writer.wait(90)
        cluster.start(1)
        log = cluster.recording.log
        wait_for(lambda: "Truncating partition" in log("node-1"), "a truncation", 30)
        cluster.python("listed", "orders")


@scenario
def kafka_4_two_clusters() -> None:
    broker = artifacts.broker(KAFKA_4)
    artifacts.client(KAFKA_4)
    artifacts.tools()
    about = (
        "two clusters with a topic and a group of the same name, and a different lag; "
        "kafka-consumer-groups of both"
    )
    other = Node(2, host="127.0.0.2")
    with (
        Recording("kafka-4-two-clusters", about) as recording,
        Cluster(recording, KAFKA_4, broker) as first,
        Cluster(recording, KAFKA_4, broker, [other], cluster_id="cmVjb3JkZXIta2Fma2EtMg") as second,
    ):
        for name, cluster, partitions, backlog in (
            ("first", first, 1, 40),
            ("second", second, 2, 90),
        ):
            cluster.java("Topics", f"orders:{partitions}:1")
            cluster.java("Produce", "orders", "20", "30")
            cluster.java("Member", "orders", "billing", "5", "client.id=billing")
            cluster.java("Produce", "orders", str(backlog), "30")
            cluster.tool(f"tool-{name}", GROUPS, "--describe", "--all-groups")
