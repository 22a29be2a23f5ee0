"""Transactions, quotas and errors of Kafka 4."""

from __future__ import annotations

from tools.record.kafka import artifacts, clients
from tools.record.kafka.artifacts import KAFKA_4
from tools.record.kafka.cluster import Cluster, Node
from tools.record.kafka.recording import Recording
from tools.record.kafka.scenarios import each, scenario

WAYS = {
    "kafka-4-transactions": ("transactions as of 4.0 (KIP-890)", "2"),
    "kafka-4-transactions-old": ("transactions before 4.0 (partitions are added first)", "1"),
}
OFTEN = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


def transactions(name: str) -> None:
    """Producers that commit, abort, are fenced, or time out."""
    broker, java = artifacts.broker(KAFKA_4), artifacts.client(KAFKA_4)
    way, feature = WAYS[name]
    about = f"{way}: commit, abort, fenced, timed out; a read_committed consumer"
    version = ("--feature", f"transaction.version={feature}")
    with (
        Recording(name, about) as recording,
        Cluster(recording, KAFKA_4, broker, settings=OFTEN, format_with=version) as cluster,
    ):
        clients.java(recording, java, "Topics", cluster.bootstrap, "ledger:1:1")
        clients.java(recording, java, "Transactions", cluster.bootstrap, "ledger")


each(transactions, *WAYS)


@scenario
def kafka_4_quotas() -> None:
    """Clients that are throttled."""
    broker, java = artifacts.broker(KAFKA_4), artifacts.client(KAFKA_4)
    about = "quotas: produce, fetch, request and topic creation throttled"
    windows = {"quota.window.num": "4", "controller.quota.window.num": "4"}
    with (
        Recording("kafka-4-quotas", about) as recording,
        Cluster(recording, KAFKA_4, broker, settings=windows) as cluster,
    ):
        clients.java(recording, java, "Topics", cluster.bootstrap, "bulk:1:1")
        clients.java(recording, java, "Quotas", cluster.bootstrap, "bulk")


@scenario
def kafka_4_errors() -> None:
    """Errors of clients, and of a cluster of two brokers, one of which stops."""
    broker, java = artifacts.broker(KAFKA_4), artifacts.client(KAFKA_4)
    about = (
        "errors: unknown, illegal, existing topics; too large; out of range; denied by ACL; not "
        "the leader; too few replicas; unknown versions and APIs"
    )
    nodes = [Node(1), Node(2, "broker")]
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with (
        Recording("kafka-4-errors", about) as recording,
        Cluster(recording, KAFKA_4, broker, nodes, settings) as cluster,
    ):
        for step in ("requests", "denied", "moved"):
            clients.java(recording, java, "Errors", cluster.bootstrap, step)
        clients.python(recording, "strangers", "127.0.0.1", "9092")
        cluster.stop(2)
        clients.java(recording, java, "Errors", cluster.bootstrap, "alone")
