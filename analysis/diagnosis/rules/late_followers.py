"""Late followers: producers with acks=all got responses before a follower had their records.

The leader no longer waits for a follower that has left the in-sync replicas
(replica.lag.time.max.ms). Until the follower returns, new records have one copy fewer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import BROKER, WARNING, Finding, Limits, Threshold, rule
from analysis.diagnosis.words import cells, ms
from analysis.display.terminal import counted
from analysis.sql.query import Row


@rule(
    question="Is a follower out of sync?",
    place=23,
    rests_on="replication",
    thresholds=(
        Threshold(
            "requests", 10, "requests", "Produce requests with acks=all that were acknowledged "
            "without the follower. A single one may be due to a Fetch that is missing from the "
            "capture."
        ),
    ),
)  # fmt: skip
def late_followers(case: Case, limits: Limits) -> Iterator[Finding]:
    """Followers without which Produce requests were acknowledged, by the answer `replication`."""
    late: dict[int, list[Row]] = defaultdict(list)
    for row in case.answer("replication"):
        if row["without"] >= limits["requests"]:
            late[row["replica_id"]].append(row)
    for rows in late.values():
        yield _finding(rows)


def _finding(rows: list[Row]) -> Finding:
    """A finding for a follower of one or more partitions."""
    row = max(rows, key=lambda row: row["without"])
    partition = f"{row['topic']}-{row['partition']}"
    followed, start = (partition, "") if len(rows) == 1 else (f"{len(rows):,} partitions", "Most: ")
    return Finding(
        severity=WARNING,
        subject=f"broker {row['replica_id']}",
        sentence=f"Broker {row['replica_id']} is a follower of {followed} and was out of sync",
        evidence=f"{start}{counted(row['without'], 'Produce request')} to {partition} with "
        f"acks=all got a response before it had the records. It sent no Fetch for "
        f"{ms(row['pause_max_ms'])}, and received records up to {ms(row['delay_max_ms'])} late.",
        numbers=cells(row, "topic partition replica_id without pause_max_ms delay_max_ms"),
        cause="the follower was down, paused or overloaded, or its link to the leader is slow",
        side=BROKER,
        setting="num.replica.fetchers",
        change="Look at the logs, the garbage collection and the disk of this broker at that "
        "time. If all its partitions are late, raise num.replica.fetchers there. Alert on "
        "UnderReplicatedPartitions; set min.insync.replicas, so that producers fail rather "
        "than lose records.",
        reference="Kafka documentation, Replication (replica.lag.time.max.ms)",
        command="replication",
        requests=row["without"],
        first_time=min(each["first_without"] for each in rows),
    )
