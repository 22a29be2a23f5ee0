"""Transactions, quotas and errors of Kafka 4."""

from __future__ import annotations

from tools.record.kafka import clients
from tools.record.kafka.cluster import Node
from tools.record.kafka.scenarios import AUTHORIZER, each, recorded, scenario

WAYS = {
    "kafka-4-transactions": ("transactions as of 4.0 (KIP-890)", "2"),
    "kafka-4-transactions-old": ("transactions before 4.0 (partitions are added first)", "1"),
}
OFTEN = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


def transactions(name: str) -> None:
    """Producers that commit, abort, are fenced, or time out."""
    way, feature = WAYS[name]
    about = f"{way}: commit, abort, fenced, timed out; a read_committed consumer"
    version = ("--feature", f"transaction.version={feature}")
    with recorded(name, about, "ledger:1:1", settings=OFTEN, format_with=version) as cluster:
        cluster.java("Transactions", "ledger")


each(transactions, *WAYS)


@scenario
def kafka_4_quotas() -> None:
    about = "quotas: produce, fetch, request and topic creation throttled"
    windows = {"quota.window.num": "4", "controller.quota.window.num": "4"}
    with recorded("kafka-4-quotas", about, "bulk:1:1", settings=windows) as cluster:
        cluster.java("Quotas", "bulk")


@scenario
def kafka_4_errors() -> None:
    about = (
        "errors: unknown, illegal, existing topics; too large; out of range; denied by ACL; not "
        "the leader; too few replicas; unknown versions and APIs"
    )
    nodes = [Node(1), Node(2, "broker")]
    with recorded("kafka-4-errors", about, nodes=nodes, settings=AUTHORIZER) as cluster:
        for step in ("requests", "denied", "moved"):
            cluster.java("Errors", step)
        command, _ = clients.in_python("strangers")
        cluster.recording.run("strangers", [*command, "127.0.0.1", "9092"])
        cluster.stop(2)
        cluster.java("Errors", "alone")
