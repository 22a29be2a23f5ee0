"""Late followers: producers with acks=all got responses before a follower had their records.

The leader no longer waits for a follower that has left the in-sync replicas
(replica.lag.time.max.ms). Until the follower returns, new records have one copy fewer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import BROKER, WARNING, Finding, Limits, Threshold, rule
from analysis.diagnosis.words import capital, cells, ms
from analysis.display.terminal import counted, time_text
from analysis.sql.query import Row


@rule(
    question="Is a follower out of sync?",
    place=23,
    rests_on="replication",
    thresholds=(
        Threshold("requests", 10, "requests", "Produce requests with acks=all that were "
                  "acknowledged without the follower. A single one may be due to a Fetch that is "
                  "missing from the capture."),
    ),
)  # fmt: skip
def late_followers(case: Case, limits: Limits) -> Iterator[Finding]:
    """Followers without which Produce requests were acknowledged, by the answer `replication`."""
    late: dict[int, list[Row]] = defaultdict(list)
    for row in case.answer("replication"):
        if row["without"] >= max(limits["requests"], 1):
            late[row["replica_id"]].append(row)
    findings = [_finding(rows, case.span[1] or 0) for rows in late.values()]
    yield from [_several(late, findings)] if len(findings) > 1 else findings


def _several(late: dict[int, list[Row]], findings: list[Finding]) -> Finding:
    """A finding for several followers: one after the other, as in a rolling restart, or at once."""
    in_time = sorted(findings, key=lambda finding: finding.first_time or 0)
    pauses = sorted(
        (min(row["first_without"] for row in rows), (rows[0]["pause_max_ms"] or 0) * 1e6)
        for rows in late.values()
    )
    is_rolling = all(a + pause <= b for (a, pause), (b, _) in pairwise(pauses))
    return replace(
        max(findings, key=lambda finding: finding.requests),
        subject=", ".join(finding.subject for finding in in_time),
        sentence=f"{len(findings):,} followers were out of sync"
        + ", one after the other" * is_rolling,
        evidence=" ".join(
            f"{capital(finding.subject)}, from {time_text(finding.first_time or 0, 3)}: "
            f"{finding.evidence}"
            for finding in in_time
        ),
        cause="the brokers were restarted, paused or overloaded one after the other"
        if is_rolling
        else "the hosts, disks or links of these followers are overloaded",
        setting="min.insync.replicas" if is_rolling else findings[0].setting,
        change="After the restart of a broker, wait until UnderReplicatedPartitions is 0 before "
        "the next one. Set min.insync.replicas, so that producers fail rather than lose records."
        if is_rolling
        else findings[0].change,
        first_time=in_time[0].first_time,
        last_time=max(finding.last_time or 0 for finding in findings),
    )


def _finding(rows: list[Row], end: int) -> Finding:
    """A finding for a follower of one or more partitions; `end`: of the capture, in ns."""
    row = max(rows, key=lambda row: row["without"])
    partition = f"{row['topic']}-{row['partition']}"
    delay = row["delay_max_ms"]
    late = f", and received records up to {ms(delay)} late" if delay else ""
    silent_ms = (end - max(each["last_time"] for each in rows)) / 1e6
    pause = f"It sent no Fetch for {ms(row['pause_max_ms'])}{late}."
    if silent_ms > (row["pause_max_ms"] or 0):
        pause = f"Its last Fetch was {ms(silent_ms)} before the end of the capture."
    followed, start = (partition, "") if len(rows) == 1 else (f"{len(rows):,} partitions", "Most: ")
    return Finding(
        severity=WARNING,
        subject=f"broker {row['replica_id']}",
        sentence=f"Broker {row['replica_id']} is a follower of {followed} and was out of sync",
        evidence=f"{start}{counted(row['without'], 'Produce request')} to {partition} with "
        f"acks=all got a response before it had the records. {pause}",
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
        last_time=max(each["last_without"] for each in rows),
    )
