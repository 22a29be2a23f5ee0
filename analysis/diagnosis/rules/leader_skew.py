"""Skew of leaders: one broker leads most partitions of the cluster.

A leader serves all produce requests and most fetches of its partitions. After a restart, a broker
leads nothing until an election of preferred leaders moves its partitions back. Metadata shows the
leaders of the topics that clients use, regardless of the broker at which the capture was taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import BROKER, WARNING, Finding, Limits, Threshold, rule
from analysis.diagnosis.words import cells, percent, share, sql

QUERY: Final = """
  select leader as broker, count(*) as leads
  from (select arg_max(leader, time) as leader from topics where leader >= 0
    group by topic, partition)
  group by all order by leads desc, broker"""

BROKERS: Final = """
  select count(distinct broker) as brokers
  from (select unnest(replicas) as broker from topics where leader >= 0)"""


@rule(
    question="Does one broker lead most partitions?",
    place=18,
    rests_on="topics",
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
    rows = case.rows(QUERY)
    partitions = sum(row["leads"] for row in rows)
    (replicated,) = case.rows(BROKERS)
    brokers = replicated["brokers"]
    for row in rows[:1]:
        times = row["leads"] * brokers / partitions
        if (
            partitions < limits["partitions"]
            or brokers < limits["brokers"]
            or times < limits["times_mean"]
        ):
            return
        part = share(row["leads"], partitions)
        yield Finding(
            severity=WARNING,
            subject=f"broker {row['broker']}",
            sentence=f"Broker {row['broker']} leads {percent(part)} of the partitions",
            evidence=f"It leads {row['leads']:,} of {partitions:,} partitions in Metadata, "
            f"{times:,.1f} times the mean of {brokers:,} brokers.",
            numbers=cells(row, "broker leads"),
            cause="brokers restarted and did not become leaders again, or replicas are assigned "
            "unevenly",
            side=BROKER,
            setting="auto.leader.rebalance.enable=true",
            change="Run kafka-leader-election.sh --election-type preferred. If the preferred "
            "leaders are uneven themselves, reassign replicas with kafka-reassign-partitions.sh.",
            reference="Kafka documentation: Basic Kafka Operations, Balancing leadership",
            command=sql(QUERY),
        )
