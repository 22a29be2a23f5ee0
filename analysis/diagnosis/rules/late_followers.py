"""Late followers: producers with acks=all got responses before a follower had their records.

The leader then no longer waits for this follower, which has left the in-sync replicas
(replica.lag.time.max.ms). Until it returns, new records have one copy less.
"""

from __future__ import annotations

from collections.abc import Iterator

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import BROKER, WARNING, Finding, Limits, Threshold, rule
from analysis.diagnosis.words import ms
from analysis.display.terminal import counted


@rule(
    question="Is a follower out of sync?",
    place=23,
    rests_on="replication",
    thresholds=(
        Threshold(
            "requests", 10, "requests", "Produce requests with acks=all that were acknowledged "
            "without the follower. A single one may be a Fetch that the capture lacks."
        ),
    ),
)  # fmt: skip
def late_followers(case: Case, limits: Limits) -> Iterator[Finding]:
    """Followers without which Produce requests were acknowledged, by the answer `replication`."""
    for row in case.answer("replication"):
        if row["without"] < limits["requests"]:
            continue
        partition = f"{row['topic']}-{row['partition']}"
        names = ("topic", "partition", "replica_id", "without", "pause_max_ms", "delay_max_ms")
        yield Finding(
            severity=WARNING,
            subject=f"broker {row['replica_id']}",
            sentence=f"Broker {row['replica_id']} is a follower of {partition} and was out of sync",
            evidence=f"{counted(row['without'], 'Produce request')} with acks=all got a response "
            f"before it had the records. It sent no Fetch for {ms(row['pause_max_ms'])}, and had "
            f"records up to {ms(row['delay_max_ms'])} late.",
            numbers={name: row[name] for name in names},
            cause="the follower was paused or overloaded, or its link to the leader is slow",
            side=BROKER,
            setting="num.replica.fetchers",
            change="Look at the logs, the garbage collection and the disk of this broker at that "
            "time. If all its partitions are late, raise num.replica.fetchers there. Alert on "
            "UnderReplicatedPartitions; set min.insync.replicas, so that producers fail rather "
            "than lose records.",
            reference="Kafka documentation, Replication (replica.lag.time.max.ms)",
            command="replication",
            requests=row["without"],
            first_time=row["first_without"],
        )
