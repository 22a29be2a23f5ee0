"""Addresses whose cluster changes: it was created again, or they lead to another one.

Each Metadata response of Kafka 0.10.1 and newer contains the id of the cluster (KIP-78), which is
written when the log directories are formatted. Clients do not compare it: they find other topics,
other groups without their offsets, and logs that begin again.
"""

from __future__ import annotations

from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.words import Advice
from analysis.display.terminal import time_text
from analysis.sql.expressions import endpoint
from analysis.sql.query import Row

CHANGED: Final = f"""
  with spans as (
    select {endpoint("broker")} as broker, cluster_id, min(time) as time, max(time) as last_time
    from clusters where api in ('Metadata', 'DescribeCluster') group by all),
  changes as (
    select broker, lag(cluster_id) over spans as earlier_id,
      lag(last_time) over spans as last_time, cluster_id, time
    from spans window spans as (partition by broker order by time))
  select * from changes where last_time < time order by time, broker"""
"""SQL: endpoints that were in one cluster, and later in another one only. Behind a load balancer
for two clusters, both ids alternate."""

REBUILT: Final = Advice(
    "the address of the brokers leads to another cluster than before: the cluster was created "
    "again without its data, or a name or a load balancer was changed",
    "broker", None,
    "Compare the id with that of the right cluster (kafka-cluster.sh cluster-id). If the address "
    "is wrong, correct it. If the log directories were formatted again, create the topics and "
    "users again, and restart the clients: their records and committed offsets are gone.",
    "KIP-78",
)  # fmt: skip


def changed_clusters(case: Case, before: int | None = None) -> list[Row]:
    """The rows of `CHANGED`; `before`: without those of this time or later, in ns."""
    return [row for row in case.rows(CHANGED) if before is None or row["last_time"] < before]


def changed_evidence(rows: list[Row]) -> str:
    """A sentence about the first of `changed_clusters`, with a space before it."""
    return "".join(
        f" {row['broker']} was in cluster {row['earlier_id']} until "
        f"{time_text(row['last_time'], 3)}, and in cluster {row['cluster_id']} from "
        f"{time_text(row['time'], 3)}."
        for row in rows[:1]
    )
