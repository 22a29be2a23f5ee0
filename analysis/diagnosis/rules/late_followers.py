"""Late followers: producers with acks=all got responses before a follower had their records, or
waited long for it.

The leader waits for a follower until it leaves the in-sync replicas (replica.lag.time.max.ms).
Then, until the follower returns, new records have one copy fewer. If it refused connections
meanwhile, or is missing in Metadata, it had left the cluster, as a broker does that is restarted.
If several brokers leave and return one after the other, the finding is a note: a rolling restart is
planned, and other rules report the clients that fail because of it.

If a follower is out of sync with one partition, and in sync with others of the same leader, the
leader withholds its records: a replication throttle (KIP-73). Only replicas that are out of sync
are throttled, as new ones in a reassignment, or all after a restart if a throttle was forgotten.

Without requests of followers in the capture, a leader that responds to other requests meanwhile
waits for a follower.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.causes.advertised import FORGOTTEN
from analysis.diagnosis.causes.stalled_producers import stalled_finding, stalled_producers
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.rules.slow_broker import IDS
from analysis.diagnosis.words import Advice, capital, cells, listed, ms, rows_by, span_of
from analysis.display.terminal import counted, time_text
from analysis.sql.expressions import endpoint, literal
from analysis.sql.failures import OUTAGES, REFUSED
from analysis.sql.query import Row

_THROTTLED: Final = Advice(
    "the leader withheld records from a follower that kept fetching: a replication throttle, as in "
    "a reassignment",
    "broker", "leader.replication.throttled.rate",
    "Raise the throttle above the rate of new records (kafka-reassign-partitions.sh --execute "
    "--additional --throttle). --verify removes it at the end of the reassignment; "
    "kafka-configs.sh --describe shows one of brokers and topics that was forgotten.",
    "KIP-73",
)  # fmt: skip

WITHHELD_MS: Final = 10_000
"""How much longer a throttled follower is out of sync with one partition than with others: after a
restart, it catches up with one after the other."""
SHOWN: Final = 4
"""The number of partitions in the evidence."""

ABSENT: Final = f"""
  select id as replica_id, time, how from (
    select broker, time, 'was missing in Metadata' as how from ({FORGOTTEN})
    union all
    select {endpoint("broker")}, first_time, 'refused connections'
    from {OUTAGES} where failure = '{REFUSED}')
    join ({IDS}) using (broker)
  order by time"""
"""SQL: the times at which a broker was not in the cluster, and what shows it."""

LAST_FETCHES: Final = """
  with followers as (
    select distinct connection_id, replica_id from partitions
    where api = 'Fetch' and replica_id >= 0)
  select replica_id, epoch_ns(max(coalesce(request_time, response_time))) as last_time
  from exchanges join followers using (connection_id) where api = 'Fetch' group by replica_id"""
"""SQL: the last Fetch of each follower. In a fetch session, it does not name partitions without new
records (KIP-227)."""

REFUSED_FOLLOWERS: Final = """
  select distinct replica_id from partitions
  where api = 'Fetch' and replica_id >= 0 and error = 'TOPIC_AUTHORIZATION_FAILED'"""
"""SQL: followers that may not fetch, which `recurring_errors` reports."""

_AFTER_RESTARTS: Final = (
    "After the restart of a broker, wait until UnderReplicatedPartitions is 0 before the next one. "
    "Set min.insync.replicas, so that producers fail rather than lose records."
)


@rule(
    question="Is a follower out of sync?",
    place=23,
    rests_on="replication latency",
    thresholds=(
        Threshold("requests", 10, "requests", "Produce requests with acks=all that were "
                  "acknowledged without the follower. A single one may be due to a Fetch that is "
                  "missing from the capture."),
        Threshold("delay_ms", 5_000, "ms", "Longest time that a Produce request with acks=all "
                  "waited for a follower that stayed in sync. An idle follower asks for records "
                  "twice a second, and gets new ones at once."),
    ),
)  # fmt: skip
def late_followers(case: Case, limits: Limits) -> Iterator[Finding]:
    """Followers without which Produce requests were acknowledged, by the answer `replication`."""
    rows = [row for row in case.answer("replication") if row["replica_id"] not in _refused(case)]
    without = [row for row in rows if row["without"] >= max(limits["requests"], 1)]
    if withheld := [row for row in without if _is_withheld(row, rows)]:
        yield _withheld_finding(withheld)
        without = [row for row in without if row not in withheld]
    late = rows_by(without, "replica_id")
    in_sync = [row for row in rows if not row["without"] and row["replica_id"] not in late]
    slow = [row for row in in_sync if (row["delay_max_ms"] or 0) >= max(limits["delay_ms"], 1)]
    delays = [*_delays(case, rows_by(slow, "replica_id"), limits)]
    yield from delays
    absent = [_absence(case, rows) for rows in late.values()]
    findings = [
        _left(_finding(rows, _silent_ms(case, rows)), absence)
        for rows, absence in zip(late.values(), absent, strict=True)
    ]
    if len(findings) > 1:
        yield _several(late, findings, have_left=all(absent))
    else:
        yield from findings
    if delays or findings:
        return
    if (rows := stalled_producers(case, limits["delay_ms"])) and not _refused(case):
        yield stalled_finding(rows)


def _refused(case: Case) -> set[int]:
    """The followers that may not fetch."""
    return {row["replica_id"] for row in case.rows(REFUSED_FOLLOWERS)}


def _withheld_ms(row: Row, rows: list[Row]) -> float:
    """How much longer a follower was out of sync with a partition than with other ones of the same
    leaders; 0 if it has none."""
    others = [
        each["last_without"] or 0 for each in rows
        if each["replica_id"] == row["replica_id"] and each is not row and each["confirmed"]
        and not {*each["leaders"].split(", ")}.isdisjoint(row["leaders"].split(", "))
    ]  # fmt: skip
    return (row["last_without"] - max(row["first_without"], *others)) / 1e6 if others else 0.0


def _is_withheld(row: Row, rows: list[Row]) -> bool:
    """Whether a leader withheld the records of one partition from a follower that fetched it."""
    alone_ms = _withheld_ms(row, rows)
    silent_ms = (row["last_without"] - row["last_time"]) / 1e6
    return alone_ms >= WITHHELD_MS and 2 * silent_ms <= alone_ms


def _withheld_finding(rows: list[Row]) -> Finding:
    """The finding for partitions of which leaders withheld records."""
    names = [f"{each['topic']}-{each['partition']}" for each in rows]
    followers = dict.fromkeys(f"broker {each['replica_id']}" for each in rows)
    return replace(
        _finding(rows),
        subject=", ".join(followers),
        sentence=f"Followers of {counted(len(rows), 'partition')} ({listed(names)}) were out of "
        "sync, because leaders withheld records from them",
        evidence=" ".join(
            f"Broker {each['replica_id']} fetched {name}, but {each['without']:,} Produce requests "
            f"with acks=all got a response before it had the records, within "
            f"{ms((each['last_without'] - each['first_without']) / 1e6)}."
            for each, name in zip(rows[:SHOWN], names, strict=False)
        )
        + " With other partitions of the same leaders, they were in sync meanwhile.",
        **_THROTTLED._asdict(),
    )


def _absence(case: Case, rows: list[Row]) -> Row | None:
    """The first row of `ABSENT` while a follower was out of sync."""
    first = min(row["first_without"] for row in rows)
    last = max(row["last_without"] for row in rows)
    absent = case.matching(ABSENT, rows[0], "replica_id")
    return next((row for row in absent if first <= row["time"] <= last), None)


def _left(finding: Finding, absence: Row | None) -> Finding:
    """The finding for a follower that had left the cluster."""
    if absence is None:
        return finding
    return replace(
        finding,
        evidence=f"{finding.evidence} It {absence['how']} at {time_text(absence['time'], 3)}.",
        cause="the follower had left the cluster: it was restarted, stopped or paused",
        setting="min.insync.replicas",
        change=_AFTER_RESTARTS,
    )


def _waits(topic: str) -> str:
    """SQL: the Produce request to a topic with acks=all that took longest, and what else may have
    delayed it: the longest response to a Fetch of its leader meanwhile, because a leader that
    pauses delays both, and whether the response to the request before it is not in the capture,
    because the leader reads a request when it has responded to the one before."""
    return f"""
      with longest as (
        select * from exchanges
        where api = 'Produce' and acks = -1 and list_contains(topics, {literal(topic)})
        order by latency_ms desc nulls last limit 1)
      select any_value(longest.latency_ms) as latency_ms,
        any_value(longest.request_packet) as first_packet,
        any_value(longest.request_time) as first_time,
        any_value(longest.response_time) as last_time, max(fetches.latency_ms) as fetch_ms,
        (select coalesce(arg_max(earlier.status, earlier.request_time) = 'unanswered', false)
          from exchanges as earlier join longest using (connection_id)
          where earlier.request_time < longest.request_time) as is_behind
      from longest left join exchanges as fetches
        on fetches.broker_ip = longest.broker_ip and fetches.broker_port = longest.broker_port
          and fetches.api = 'Fetch' and fetches.request_time < longest.response_time
          and fetches.response_time > longest.request_time"""


def _delays(case: Case, slow: dict[int, list[Row]], limits: Limits) -> Iterator[Finding]:
    """Findings for followers that stayed in sync, and for which producers waited long."""
    for rows in slow.values():
        row = max(rows, key=lambda row: row["delay_max_ms"])
        (longest,) = case.rows(_waits(row["topic"]))
        leader_paused = 2 * (longest["fetch_ms"] or 0) > row["delay_max_ms"]
        has_other_cause = leader_paused or longest["is_behind"]
        if (longest["latency_ms"] or 0) >= limits["delay_ms"] and not has_other_cause:
            finding = replace(
                _finding([row], _silent_ms(case, [row])),
                sentence=f"Broker {row['replica_id']}, a follower, delayed Produce requests to "
                f"topic `{row['topic']}` by up to {ms(row['delay_max_ms'])}",
                evidence=f"It was in sync, so requests with acks=all to partition "
                f"{row['partition']} waited until it had their records. It sent no Fetch for "
                f"{ms(row['pause_max_ms'])} at most.",
                numbers=cells(row, "topic partition replica_id delay_max_ms pause_max_ms"),
                **span_of([longest]),
            )
            keeps_fetching = 2 * (row["pause_max_ms"] or 0) < row["delay_max_ms"]
            yield replace(finding, **_THROTTLED._asdict()) if keeps_fetching else finding


def _several(late: dict[int, list[Row]], findings: list[Finding], *, have_left: bool) -> Finding:
    """A finding for several followers: one after the other, as in a rolling restart, or at once.

    `have_left`: whether all of them had left the cluster.
    """
    in_time = sorted(findings, key=lambda finding: finding.first_time or 0)
    spans = sorted(
        (min(row["first_without"] for row in rows), max(row["last_without"] for row in rows))
        for rows in late.values()
    )
    is_rolling = all(end <= start for (_, end), (start, _) in pairwise(spans))
    doing, cause = "followers were out of sync", "the hosts, disks or links of these followers are"
    cause += " overloaded"
    if is_rolling:
        doing += ", one after the other"
        cause = "the brokers were restarted, paused or overloaded one after the other"
    if have_left:
        doing, cause = "brokers left the cluster", findings[0].cause
    is_restart = is_rolling and have_left
    if is_restart:
        doing += " one after the other, as in a rolling restart"
        cause = "a rolling restart, or brokers that stop or pause one after the other"
    most = max(findings, key=lambda finding: finding.requests)
    return replace(
        most,
        severity="note" if is_restart else most.severity,
        subject=", ".join(finding.subject for finding in in_time),
        sentence=f"{len(findings):,} {doing}",
        evidence=" ".join(
            f"{capital(finding.subject)}, from {time_text(finding.first_time or 0, 3)}: "
            f"{finding.evidence}"
            for finding in in_time
        ),
        cause=cause,
        setting="min.insync.replicas" if is_rolling else findings[0].setting,
        change=_AFTER_RESTARTS if is_rolling or have_left else findings[0].change,
        first_time=in_time[0].first_time,
        last_time=max(finding.last_time or 0 for finding in findings),
    )


def _silent_ms(case: Case, rows: list[Row]) -> float:
    """Time from the last Fetch of a follower to the end of the capture, in ms."""
    last = case.matching(LAST_FETCHES, rows[0], "replica_id")
    return float(sum((case.last_message or 0) - each["last_time"] for each in last) / 1e6)


def _finding(rows: list[Row], silent_ms: float = 0.0) -> Finding:
    """A finding for a follower of one or more partitions; `silent_ms`: see `_silent_ms`."""
    row = max(rows, key=lambda row: row["without"])
    partition = f"{row['topic']}-{row['partition']}"
    delay = row["delay_max_ms"]
    late = f", and received records up to {ms(delay)} late" if delay else ""
    pause = f"It sent no Fetch for {ms(row['pause_max_ms'])}{late}."
    if silent_ms > (row["pause_max_ms"] or 0):
        pause = f"In the last {ms(silent_ms)} of the capture, it sent no Fetch: it was down, or "
        pause += "had become the leader."
    followed, start = (partition, "") if len(rows) == 1 else (f"{len(rows):,} partitions", "Most: ")
    return Finding(
        severity="warning",
        subject=f"broker {row['replica_id']}",
        sentence=f"Broker {row['replica_id']} is a follower of {followed} and was out of sync",
        evidence=f"{start}{counted(row['without'], 'Produce request')} to {partition} with "
        f"acks=all got a response before it had the records. {pause}",
        numbers=cells(row, "topic partition replica_id without pause_max_ms delay_max_ms"),
        cause="the follower was down, paused or overloaded, or its link to the leader is slow",
        side="broker",
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
