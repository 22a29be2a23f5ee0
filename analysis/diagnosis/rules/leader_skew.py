"""Skew of leaders: one broker leads most partitions of the cluster.

A leader serves all produce requests and most fetches of its partitions. After a restart, a broker
leads nothing until an election of preferred leaders moves its partitions back. Metadata shows the
leaders of the topics that clients use, regardless of the broker at which the capture was taken.
"""

from __future__ import annotations

from collections.abc import Iterator

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.words import cells, percent


@rule(
    question="Does one broker lead most partitions?",
    place=18,
    rests_on="leadership",
    thresholds=(
        Threshold("times_mean", 2, "times", "Partitions that the busiest broker leads, as a "
                  "multiple of the mean of all brokers. Assignments by Kafka's tools differ by a "
                  "few partitions."),
        Threshold("partitions", 12, "partitions", "Smallest sample."),
        Threshold("brokers", 3, "brokers", "Fewest brokers in the replicas of these partitions."),
    ),
)  # fmt: skip
def leader_skew(case: Case, limits: Limits) -> Iterator[Finding]:
    """The broker that leads most partitions, by the last Metadata of each."""
    rows = case.answer("leadership --show brokers")
    partitions = sum(row["leads"] for row in rows)
    if partitions < max(limits["partitions"], 1) or len(rows) < limits["brokers"]:
        return
    row = rows[0]
    if row["ratio"] < limits["times_mean"]:
        return
    is_assigned = row["preferred"] >= limits["times_mean"] * partitions / len(rows)
    yield Finding(
        severity="warning",
        subject=f"broker {row['broker_id']}",
        sentence=f"Broker {row['broker_id']} leads {percent(row['share_percent'])} of the "
        "partitions",
        evidence=f"It leads {row['leads']:,} of {partitions:,} partitions in Metadata, "
        f"{row['ratio']:,.1f} times the mean of {len(rows):,} brokers. It is the preferred leader "
        f"of {row['preferred']:,}.",
        numbers=cells(row, "broker_id leads ratio share_percent preferred"),
        cause="replicas are assigned unevenly"
        if is_assigned
        else "other brokers restarted, and were not elected as leaders again",
        side="broker",
        setting=None if is_assigned else "auto.leader.rebalance.enable=true",
        change="Reassign replicas with kafka-reassign-partitions.sh, so that each broker is the "
        "first replica of about the same number of partitions."
        if is_assigned
        else "Run kafka-leader-election.sh --election-type preferred.",
        reference="Kafka documentation: Basic Kafka Operations, Balancing leadership",
        command="leadership --show brokers",
    )
