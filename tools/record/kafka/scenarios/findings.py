"""Deliberate problems, each with the log of a broker, a client or a tool."""

from __future__ import annotations

import time

from tools.record.kafka import artifacts, clients
from tools.record.kafka.artifacts import KAFKA_4
from tools.record.kafka.cluster import Cluster, Node
from tools.record.kafka.recording import Recording, wait_for
from tools.record.kafka.scenarios import scenario
from tools.record.kafka.scenarios.security import BROKER, PLAIN, SCRAM, USERS

TOOLS = "org.apache.kafka.tools"


def tool(classpath: str, program: str, *arguments: str) -> list[str]:
    """The command of an administration tool."""
    return [*clients.JVM, "-cp", classpath, f"{TOOLS}.{program}", *arguments]


@scenario
def kafka_4_stuck() -> None:
    """A transaction whose producer is killed, one that takes seconds, and many short ones."""
    broker, java, tools = artifacts.broker(KAFKA_4), artifacts.client(KAFKA_4), artifacts.tools()
    about = (
        "a transaction whose producer was killed, one that takes 3 s, others that are short; "
        "readers with both isolation levels; kafka-transactions and kafka-consumer-groups"
    )
    command, _ = clients.in_python("stuck")
    with (
        Recording("kafka-4-stuck", about) as recording,
        Cluster(recording, KAFKA_4, broker) as cluster,
    ):
        asked = ["--bootstrap-server", cluster.bootstrap]
        clients.java(recording, java, "Topics", cluster.bootstrap, "ledger:2:1")
        hanging = recording.start("hanging", [*command, cluster.bootstrap, "hang", "ledger"])
        wait_for(lambda: '"begun"' in recording.log("hanging"), "a transaction begins", 30)
        recording.kill(hanging)
        clients.python(recording, "stuck", cluster.bootstrap, "work", "ledger")
        transactions = ("TransactionsCommand", *asked)
        for name, arguments in (
            ("tool-list", (*transactions, "list")),
            ("tool-describe", (*transactions, "describe", "--transactional-id", "hanging")),
            (
                "tool-producers",
                (*transactions, "describe-producers", "--topic", "ledger", "--partition", "0"),
            ),
            *(
                (f"tool-group-{group}",
                 ("consumer.group.ConsumerGroupCommand", *asked, "--describe", "--group", group))
                for group in ("strict", "loose")
            ),
        ):  # fmt: skip
            recording.run(name, tool(tools, *arguments))


@scenario
def kafka_4_guarded() -> None:
    """Failed logins and denied requests, with the broker's log of them."""
    broker = artifacts.broker(KAFKA_4)
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
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:broker;User:ANONYMOUS",
    }
    users = ("--add-scram", "SCRAM-SHA-256=[name=bob,password=bob-secret]")
    with (
        Recording("kafka-4-guarded", about) as recording,
        Cluster(
            recording, KAFKA_4, broker, settings=settings, format_with=users,
            protocol="SASL_PLAINTEXT",
        ) as cluster,
    ):  # fmt: skip
        clients.python(recording, "guarded", cluster.bootstrap, "acls")
        clients.python(recording, "guarded", cluster.bootstrap, "work")


@scenario
def kafka_4_resent() -> None:
    """Producers that retry while the broker is paused: with and without idempotence."""
    broker, java = artifacts.broker(KAFKA_4), artifacts.client(KAFKA_4)
    about = (
        "a broker that is paused, so that two producers send again, one of them idempotent; a "
        "reader prints all records"
    )
    command, _ = clients.in_java(java, "Produce")
    impatient = (
        *("pause=20", "request.timeout.ms=600", "delivery.timeout.ms=20000"),
        *("retry.backoff.ms=50", "retry.backoff.max.ms=50"),
    )
    careless = ("enable.idempotence=false", "linger.ms=50", "client.id=careless")
    with (
        Recording("kafka-4-resent", about) as recording,
        Cluster(recording, KAFKA_4, broker) as cluster,
    ):
        clients.java(recording, java, "Topics", cluster.bootstrap, "twice:1:1", "once:1:1")
        given = (cluster.bootstrap, "%s", "200", "40", *impatient)
        running = [
            recording.start(
                topic,
                [*command, *(each % topic if "%s" in each else each for each in given), *settings],
            )
            for topic, settings in (("twice", careless), ("once", ("client.id=careful",)))
        ]
        time.sleep(4)
        with cluster.paused(1):
            time.sleep(1.5)
        for process in running:
            process.wait(60)
        clients.python(recording, "listed", cluster.bootstrap, "twice", "once")


@scenario
def kafka_4_skewed() -> None:
    """A frequent key, and a producer with another partitioner."""
    broker, java = artifacts.broker(KAFKA_4), artifacts.client(KAFKA_4)
    about = (
        "records with keys: by the Java client, by librdkafka with the same partitioner and a hot "
        "key, and by librdkafka with its default partitioner; a reader prints all records"
    )
    with (
        Recording("kafka-4-skewed", about) as recording,
        Cluster(recording, KAFKA_4, broker) as cluster,
    ):
        clients.java(recording, java, "Topics", cluster.bootstrap, "keyed:6:1", "even:6:1")
        for topic in ("keyed", "even"):
            clients.java(recording, java, "Produce", cluster.bootstrap, topic, "40", "60")
        clients.python(recording, "keyed", cluster.bootstrap, "keyed")
        clients.python(recording, "listed", cluster.bootstrap, "keyed", "even")


@scenario
def kafka_4_replicated() -> None:
    """A follower that is slow for seconds, and then out of sync."""
    broker, java = artifacts.broker(KAFKA_4), artifacts.client(KAFKA_4)
    about = (
        "a producer with acks=all; its follower is stopped for 100 ms of each 200 ms, later for "
        "3 s, so that it leaves the in-sync replicas; the broker's log of them"
    )
    command, _ = clients.in_java(java, "Produce")
    settings = {"replica.lag.time.max.ms": "1500"}
    nodes = (Node(1), Node(2, "broker"))
    with (
        Recording("kafka-4-replicated", about) as recording,
        Cluster(recording, KAFKA_4, broker, nodes, settings) as cluster,
    ):
        clients.java(recording, java, "Topics", cluster.bootstrap, "orders:1:1/2")
        given = (cluster.bootstrap, "orders", "500", "60", "pause=20", "linger.ms=0", "acks=all")
        writer = recording.start("writer", [*command, *given, "client.id=writer"])
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
    """A topic is deleted and created again while clients use it; one group has left before."""
    broker, java, tools = artifacts.broker(KAFKA_4), artifacts.client(KAFKA_4), artifacts.tools()
    about = (
        "a topic deleted, and created again, while its clients run; a group whose member left; "
        "records deleted and offsets reset by an administrator; kafka-consumer-groups"
    )
    member, _ = clients.in_java(java, "Member")
    group = "consumer.group.ConsumerGroupCommand"
    with (
        Recording("kafka-4-recreated", about) as recording,
        Cluster(recording, KAFKA_4, broker) as cluster,
    ):
        asked = ("--bootstrap-server", cluster.bootstrap)
        describe = (group, *asked, "--describe", "--all-groups")
        clients.java(recording, java, "Topics", cluster.bootstrap, "orders:1:1")
        given = [cluster.bootstrap, "orders"]
        produce, _ = clients.in_java(java, "Produce")
        paced = ["700", "20", "pause=40", "client.id=writer"]
        writer = recording.start("writer", [*produce, *given, *paced])
        readers = [
            recording.start(
                name,
                [*member, *given, name, seconds, "group.protocol=consumer", f"client.id={name}"],
            )
            for name, seconds in (("leaver", "9"), ("stayer", "30"))
        ]
        time.sleep(7)
        clients.java(recording, java, "DeleteTopics", *given)
        clients.java(recording, java, "Topics", cluster.bootstrap, "orders:1:1")
        readers[0].wait(60)
        recording.run("tool-running", tool(tools, *describe))
        writer.wait(90)
        readers[1].wait(90)
        recording.run("tool-ended", tool(tools, *describe))
        offsets = recording.work / "offsets.json"
        offsets.write_text('{"partitions": [{"topic": "orders", "partition": 0, "offset": 50}]}')
        deleted = ("DeleteRecordsCommand", *asked, "--offset-json-file", str(offsets))
        recording.run("tool-deleted", tool(tools, *deleted))
        reset = ("--reset-offsets", "--to-earliest", "--execute", "--topic", "orders")
        recording.run("tool-reset", tool(tools, group, *asked, "--group", "stayer", *reset))
        recording.run("tool-group", tool(tools, *describe))


@scenario
def kafka_4_dated() -> None:
    """Producers whose records are dated in the past or the future."""
    about = (
        "producers with timestamps of now, in seconds instead of milliseconds, and two days ahead; "
        "a reader prints all timestamps"
    )
    with (
        Recording("kafka-4-dated", about) as recording,
        Cluster(recording, KAFKA_4, artifacts.broker(KAFKA_4)) as cluster,
    ):
        clients.python(recording, "dated", cluster.bootstrap, "events")
        clients.python(recording, "listed", cluster.bootstrap, "events")


@scenario
def kafka_4_expired() -> None:
    """A consumer whose next records are deleted while it is away."""
    about = (
        "a consumer continues after the records at its committed offset were deleted; it prints "
        "the offsets that it reads"
    )
    with (
        Recording("kafka-4-expired", about) as recording,
        Cluster(recording, KAFKA_4, artifacts.broker(KAFKA_4)) as cluster,
    ):
        clients.python(recording, "expired", cluster.bootstrap, "events", "readers")


@scenario
def kafka_4_unclean() -> None:
    """A replica that is not in sync becomes leader, and the log of the other one is truncated."""
    broker, java, tools = artifacts.broker(KAFKA_4), artifacts.client(KAFKA_4), artifacts.tools()
    about = (
        "an unclean leader election: the follower stops, the leader continues and is killed, and "
        "the follower leads; the broker's log of the truncation; a reader prints all records"
    )
    produce, _ = clients.in_java(java, "Produce")
    settings = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    nodes = (Node(3, "controller"), Node(1, "broker"), Node(2, "broker"))
    with (
        Recording("kafka-4-unclean", about) as recording,
        Cluster(recording, KAFKA_4, broker, nodes, settings) as cluster,
    ):
        given = (cluster.bootstrap, "orders")
        clients.java(recording, java, "Topics", cluster.bootstrap, "orders:1:1/2")
        paced = ("300", "40", "pause=60", "acks=1", "client.id=writer")
        writer = recording.start("writer", [*produce, *given, *paced])
        time.sleep(6)
        cluster.stop(2)
        time.sleep(4)
        cluster.kill(1)
        cluster.start(2)
        elect = ("LeaderElectionCommand", "--bootstrap-server", cluster.bootstrap)
        unclean = ("--election-type", "unclean", "--topic", "orders", "--partition", "0")
        recording.run("tool-elect", tool(tools, *elect, *unclean))
        writer.wait(90)
        cluster.start(1)
        wait_for(lambda: "Truncating partition" in recording.log("node-1"), "a truncation", 30)
        clients.python(recording, "listed", *given)


@scenario
def kafka_4_two_clusters() -> None:
    """Two clusters with the same topics and groups, as a host of MirrorMaker captures them."""
    broker, java, tools = artifacts.broker(KAFKA_4), artifacts.client(KAFKA_4), artifacts.tools()
    about = (
        "two clusters with a topic and a group of the same name, and a different lag; "
        "kafka-consumer-groups of both"
    )
    group = ("consumer.group.ConsumerGroupCommand", "--describe", "--all-groups")
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
            given = (cluster.bootstrap, "orders")
            clients.java(recording, java, "Topics", cluster.bootstrap, f"orders:{partitions}:1")
            clients.java(recording, java, "Produce", *given, "20", "30")
            clients.java(recording, java, "Member", *given, "billing", "5", "client.id=billing")
            clients.java(recording, java, "Produce", *given, str(backlog), "30")
            asked = ("--bootstrap-server", cluster.bootstrap)
            recording.run(f"tool-{name}", tool(tools, *group, *asked))
