"""Lag: a group falls further and further behind.

The time of a group in a topic is divided into quarters. The lag of a partition grows if it is
larger at the end of each quarter than at the end of the previous one, and so is its minimum. A
consumer that keeps up has a lag until its next commit. So the minimum in the last quarter must be
above the maximum in the first one. If the group has fetched the records, it must have committed
after the first quarter, or not for three default intervals (auto.commit.interval.ms).

The cause is derived from the reader: whether it has fetched the records that it has not committed,
and how much of the time it has a Fetch pending, also on the way. A consumer that seldom has one is
busy processing records: it is the bottleneck, unless it gets errors all the time because it has no
coordinator or leader. So is a consumer that neither fetches nor commits in the last quarter, while
it is a member: many clients send heartbeats while the application works on a record. A group whose
members send nothing in the last quarter no longer has members: they left, crashed, or are blocked,
as KafkaJS, which sends heartbeats between records. A reader that sends nothing, not even
heartbeats, while other members do, is paused or cut off; its partitions wait until the coordinator
removes it. The time after the last member has left does not count.

A capture may have packets of some members only. If no member reads or commits a partition after the
last rebalance, while they send other requests, its reader is not in the capture.

The rule ignores offsets of a client that is neither a member of the group nor reads the topic.
MirrorMaker, for example, copies offsets to another cluster (KIP-545).

A group that keeps fetching from its committed offset does not get past a record there: the
application fails to process it, and reads it again after a restart or a seek. A share group gets
such a record a few times only; then the broker archives it (KIP-932). A group that never commits
begins at the same offset after each start or rebalance. Consumers with assign() and the same
group.id overwrite each other's commits, and a consumer that seeks when it starts sets them back.

The rule does not report a reader that cannot get past a batch with a wrong checksum, which
`recurring_errors` reports, nor members that wait for the end of a rebalance: see `rebalances`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from analysis.answers.lag import ENDS, KNOWN_END, RESPONDED, SHARE_STATE, STATES, SUCCESSFUL
from analysis.answers.network import LINKS
from analysis.diagnosis.case import Case
from analysis.diagnosis.causes.corrupt_batches import CORRUPT
from analysis.diagnosis.causes.lagging_readers import (
    LAST_MEMBER_REQUESTS,
    activity,
    advice_of,
    last_requests,
    with_enough_members,
)
from analysis.diagnosis.causes.overwritten_commits import (
    overwritten_commits,
    overwritten_finding,
)
from analysis.diagnosis.causes.redeliveries import redeliveries, redelivery_finding
from analysis.diagnosis.causes.without_commits import (
    COMMITS_NS,
    without_commits,
    without_commits_finding,
)
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.rules.rebalances import OVERDUE, SLOW
from analysis.diagnosis.rules.recurring_errors import NORMAL_MS, NORMAL_RESPONSES
from analysis.diagnosis.words import (
    cells,
    known,
    listed,
    rows_by,
    share,
    topics,
    trace,
    verb,
)
from analysis.display.terminal import counted
from analysis.sql.expressions import literals, ms_between, sum_of_ms
from analysis.sql.query import Row
from analysis.sql.record_flow import GROUPS_OF_READERS

_OTHER_COMMITS: Final = ("TxnOffsetCommit", "DescribeShareGroupOffsets", *SHARE_STATE)

BEHIND: Final = f"""
  with ends as (
    select topic, partition, max({KNOWN_END}) as end_offset from {RESPONDED} group by all),
  committed as (
    select group_id, topic, partition, arg_max("offset", (response_time, nth)) as "offset"
    from {SUCCESSFUL} where api in ('OffsetCommit', 'OffsetFetch') and "offset" is not null
    group by all)
  select topic from committed join ends using (topic, partition)
  where coalesce(try(end_offset - "offset") >= {{least}}, true)
  union all
  select topic from partitions where api in {literals(_OTHER_COMMITS)}
  limit 1"""
"""SQL: a row if a group may have a lag of `least` or more at the end: its last committed offset is
so far before the largest end, or it commits in another way. `STATES` takes much longer."""

QUARTERS: Final = f"""
  with states as (
    select group_id, topic, partition, epoch_ns(time) as moment,
      arg_max(lag, (source, nth)) as lag, arg_max(end_offset, (source, nth)) as end_offset,
      max(epoch_ns(time)) filter (source = 2 or committed_time = time) as reading
    from {STATES} where lag is not null and group_id is not null group by all),
  members as (
    select group_id, epoch_ns(max(response_time)) as last_time,
      arg_max(api = 'LeaveGroup' or coalesce(request_generation < 0, false), time) as has_left
    from memberships where error_code = 0 group by group_id),
  produced as (select topic, epoch_ns(max(time)) as end_time from {ENDS} group by topic),
  spans as (
    select group_id, topic, min(moment) as first,
      greatest(max(moment),
        any_value(case when has_left then last_time when not has_left then end_time end)) as last
    from states left join members using (group_id) left join produced using (topic)
    group by group_id, topic),
  quarters as (
    select group_id, topic, partition, quarter, first,
      first + ((quarter + 1) * (last - first)::hugeint // 4)::bigint as moment
    from (select distinct group_id, topic, partition from states) join spans using (group_id, topic)
      cross join range(4) as each (quarter)),
  events as (
    select group_id, topic, partition, min(lag) as low, max(lag) as high,
      max(reading) as last_reading,
      greatest((4 * (moment - first)::hugeint + span - 1) // span - 1, 0) as quarter
    from states join (select *, greatest(last - first, 1) as span from spans) as spans
      using (group_id, topic)
    group by all),
  reached as (
    select quarters.*, states.lag, end_offset from quarters asof join states
      on quarters.group_id = states.group_id and quarters.topic = states.topic
        and quarters.partition = states.partition and quarters.moment >= states.moment),
  quartered as (from reached left join events using (group_id, topic, partition, quarter))
  select group_id, quartered.topic, quartered.partition,
    list(lag + coalesce(ends.end_offset - quartered.end_offset, 0) order by quarter) as lags,
    list(low order by quarter) as lows, max(high) filter (quarter = 0) as first_high,
    any_value(quartered.first) as first_time, max(last_reading) as last_reading,
    max(quartered.moment) filter (quarter = 0) as second_quarter,
    max(quartered.moment) filter (quarter = 2) as last_quarter
  from quartered asof left join (select *, epoch_ns(time) as moment from {ENDS}) as ends
    on quartered.topic = ends.topic and quartered.partition = ends.partition
      and quartered.moment >= ends.moment
  group by all"""
"""SQL: the lags at the ends of the quarters, with what was produced since the last event of the
group; the lowest lag at an event in each quarter, and the highest in the first one; the begins of
the second and the last quarter; the last commit or Fetch. A group that works long on its records
has no event in a quarter. The time of a group lasts until its last member leaves it, or until the
last known end of the topic: the application may work on a record for long."""

PENDING_NS: Final = 10**9
"""A Fetch that is pending at a rebalance ends later: fetch.max.wait.ms is 500 by default."""

FETCHING: Final = f"""
  select client_id, {sum_of_ms("waited_ms")} as fetch_ms from (
    select exchanges.client_id, latency_ms + coalesce(client_rtt_ms, 0)
      + greatest({ms_between("response_time", "response_end_time")}, 0) as waited_ms
    from exchanges left join {LINKS} as links using (connection_id)
    where api = 'Fetch' and latency_ms is not null)
  group by client_id"""
"""SQL: the time for which each client waits for Fetches, also while they are on the way between it
and the capture."""

NOT_AVAILABLE: Final = f"""
  select client_id, list(distinct error order by error) as errors, count(*) as responses
  from errors where error in ('COORDINATOR_NOT_AVAILABLE', 'NOT_COORDINATOR',
    'COORDINATOR_LOAD_IN_PROGRESS', 'LEADER_NOT_AVAILABLE', 'NOT_LEADER_OR_FOLLOWER')
  group by client_id
  having count(*) >= {NORMAL_RESPONSES}
    and 1000 * count(distinct epoch_ns(time) // 1000000000) >= {NORMAL_MS}"""
"""SQL: clients that had no coordinator or leader for longer than an election takes."""

JOINING: Final = """
  select group_id, epoch_ns(min(time)) as time
  from memberships join connections using (connection_id)
  where api = 'JoinGroup' and response_time is null and closed is null group by group_id"""
"""SQL: the groups in which a member waits for the response to a JoinGroup."""

REBALANCED: Final = """
  select group_id, epoch_ns(max(time)) as time from (
    select group_id, generation, min(response_time) as time from memberships
    where error_code = 0 and generation > 0 group by all)
  group by group_id"""
"""SQL: the last change of each group: the time of the first response with its last generation."""

COPIED: Final = """
  select distinct client_id, group_id, topic from partitions
    anti join memberships using (client_id, group_id)
    anti join (select client_id, topic from partitions where api in ('Fetch', 'ShareFetch'))
      using (client_id, topic)
  where api = 'OffsetCommit' and client_id is not null"""
"""SQL: clients that commit offsets of a group, but are not members and do not read the topic."""

UNREADABLE: Final = f"""
  select distinct client_id, topic, partition from {CORRUPT}"""
"""SQL: partitions with a batch that a reader cannot get past; `recurring_errors` reports it."""

REPEATED: Final = f"""
  select readers.group_id, topic, partition, "offset", count(*) as fetches
  from partitions join (
    select distinct connection_id, topic, partition, group_id from {GROUPS_OF_READERS}) as readers
    using (connection_id, topic, partition)
  where api = 'Fetch' and replica_id is null and error_code = 0 and last_offset >= "offset"
  group by all"""
"""SQL: how often each group got records from an offset."""


@rule(
    question="Does a group fall behind?",
    place=12,
    rests_on="lag errors batches",
    thresholds=(
        Threshold("lag", 100, "records", "Lag of a partition at the end of the capture. A smaller "
                  "lag is processed in a moment, and changes with each batch."),
        Threshold("repeated", 3, "fetches", "Fetches that returned records from the last committed "
                  "offset, or starts of members at the same offset of a group that does not commit "
                  "for three default intervals (auto.commit.interval.ms). A restart or a rebalance "
                  "repeats one of them. Also commits by which a consumer sets the offset of "
                  "another one back."),
        Threshold("deliveries", 5, "deliveries", "Deliveries of a record to a share group: the "
                  "default of group.share.delivery.count.limit, after which it is archived."),
    ),
)  # fmt: skip
def growing_lag(case: Case, limits: Limits) -> Iterator[Finding]:
    """Groups and topics with partitions whose lag grows, by the answer `lag`; share groups that get
    records again and again."""
    yield from map(redelivery_finding, redeliveries(case, max(limits["deliveries"], 2)))
    back = overwritten_commits(case, limits["repeated"])
    yield from map(overwritten_finding, rows_by(back, "group_id", "is_overwritten").values())
    overwritten = {row["group_id"] for row in back}
    uncommitted = _uncommitted(case, limits)
    yield from uncommitted.values()
    growing = {
        (row["group_id"], row["topic"], row["partition"]): row
        for row in (case.rows(QUARTERS) if _are_behind(case, limits["lag"]) else ())
        if row["group_id"] not in {*uncommitted, *overwritten} and _grows(row)
    }
    unreadable = {tuple(row.values()) for row in (case.rows(UNREADABLE) if growing else ())}
    copied = {_reader(row) for row in (case.rows(COPIED) if growing else ())}
    rows = [
        row | quarters for row in (case.answer("lag") if growing else ())
        if (quarters := growing.get((row["group_id"], row["topic"], row["partition"])))
        # Null if the topic was deleted, and its offsets with it.
        and (row["lag"] or 0) >= limits["lag"] and _reader(row) not in copied
        and (row["client_id"], row["topic"], row["partition"]) not in unreadable
        and not _is_between_commits(row | quarters)
    ]  # fmt: skip
    members = rows_by(case.rows(LAST_MEMBER_REQUESTS) if rows else (), "group_id")
    rows = [row | last_requests(case, row, members.get(row["group_id"], [])) for row in rows]
    rows = [
        row for row in rows
        if (row["is_abandoned"] or not _has_moved(case, row)) and not _is_joining(case, row)
    ]  # fmt: skip
    repeated = {
        (row["group_id"], row["topic"], row["partition"], row["offset"]): row["fetches"]
        for row in (case.rows(REPEATED) if rows else ())
        if row["fetches"] >= limits["repeated"]
    }
    for topics_of_group in _alike(case, rows, repeated):
        finding, row = _finding(case, topics_of_group), topics_of_group[0]
        for blocked in case.matching(NOT_AVAILABLE, row, "client_id"):
            finding = _blocked(finding, blocked)
        if fetches := repeated.get(_committed(row)):
            finding = _stuck(finding, row, fetches)
        yield finding


def _uncommitted(case: Case, limits: Limits) -> dict[str, Finding]:
    """The findings about groups that do not commit, by group."""
    uncommitted = without_commits(case, limits["repeated"])
    overdue = {row["group_id"] for row in (case.rows(OVERDUE) if uncommitted else ())}
    findings = {}
    for rows in uncommitted:
        group, finding = rows[0]["group_id"], without_commits_finding(rows)
        # A member that does not poll in time leaves the group, and can no longer commit (KIP-62).
        findings[group] = replace(finding, **SLOW._asdict()) if group in overdue else finding
    return findings


def _alike(case: Case, rows: list[Row], repeated: Collection[Any]) -> Iterable[list[Row]]:
    """The worst partition of each topic of a group, together with those that have the same cause,
    that with the largest lag first.

    `rows`: partitions whose lag grows. `repeated`: see `_committed`.
    """
    fetching = {row["client_id"]: row["fetch_ms"] for row in (case.rows(FETCHING) if rows else ())}
    blocked = {row["client_id"] for row in (case.rows(NOT_AVAILABLE) if rows else ())}
    alike: dict[Any, list[Row]] = {}
    for partitions in rows_by(rows, "group_id", "topic").values():
        row = max(partitions, key=lambda row: (_committed(row) in repeated, row["lag"]))
        client_id = row["client_id"]
        row = row | {
            "growing": len(partitions),
            "pending": share(fetching.get(client_id), case.span_ms(client_id)),
        }
        stuck = row["topic"] if _committed(row) in repeated else None
        reader = client_id if client_id in blocked else None
        cause = (row["group_id"], stuck, reader, advice_of(row))
        alike.setdefault(cause, []).append(row)
    return (sorted(each, key=lambda row: -row["lag"]) for each in alike.values())


def _are_behind(case: Case, least: float) -> bool:
    """Whether a partition may have a lag of `least` or more at the end of the capture."""
    return not least or bool(case.rows(BEHIND.format(least=least)))


def _grows(row: Row) -> bool:
    """Whether the lag of a row of `QUARTERS` grows."""
    ends: list[int] = row["lags"]
    if len(ends) < 4:
        return False
    # The lag only rises between two events: a quarter begins with the lag of the previous one.
    begins = (None, *ends[:-1])
    pairs = zip(begins, row["lows"], strict=True)
    lows = [min(each for each in pair if each is not None) for pair in pairs]
    is_rising = all(before < after for lags in (ends, lows) for before, after in pairwise(lags))
    return is_rising and lows[-1] > max(ends[0], row["first_high"])


def _is_between_commits(row: Row) -> bool:
    """Whether a group that has fetched the records may not have had to commit them yet."""
    committed = row["committed_time"]
    return (
        (row["position_lag"] or 0) * 2 < row["lag"]
        and committed is not None
        and committed <= row["second_quarter"]
        and row["time"] - committed < COMMITS_NS
    )


def _has_moved(case: Case, row: Row) -> bool:
    """Whether a member that is not in the capture may read the partition since a rebalance."""
    last_reading = row["last_reading"] or 0
    return last_reading < row["last_quarter"] and any(
        last_reading < group["time"] + PENDING_NS
        for group in case.matching(REBALANCED, row, "group_id")
    )


def _is_joining(case: Case, row: Row) -> bool:
    """Whether the members have waited since before the last quarter for the end of a rebalance."""
    return (row["last_reading"] or 0) < row["last_quarter"] and any(
        group["time"] < row["last_quarter"] for group in case.matching(JOINING, row, "group_id")
    )


def _reader(row: Row) -> tuple[str | None, str, str]:
    return row["client_id"], row["group_id"], row["topic"]


def _committed(row: Row) -> tuple[str, str, int, int]:
    return row["group_id"], row["topic"], row["partition"], row["committed_offset"]


def _blocked(finding: Finding, row: Row) -> Finding:
    """The finding for a reader without a coordinator or leader."""
    return replace(
        finding,
        evidence=f"{finding.evidence} The reader got {counted(row['responses'], 'response')} with "
        f"{listed(row['errors'])}.",
        cause="the consumer cannot read all the time: it has no coordinator, or a partition has no "
        "leader",
        side="broker",
        change="Look at the findings about these errors, and about brokers that are down.",
    )


def _stuck(finding: Finding, row: Row, fetches: int) -> Finding:
    """The finding for a group that does not get past its committed offset."""
    offset = row["committed_offset"]
    return replace(
        finding,
        sentence=f"Group `{row['group_id']}` does not get past offset {offset:,} of partition "
        f"{row['partition']} of topic `{row['topic']}`",
        evidence=f"It fetched from this offset {fetches:,} times, and committed no later one. "
        f"{finding.evidence}",
        cause="the application fails to process the record with this offset, or one soon after it, "
        "and reads it again after a restart or a seek",
        setting=None,
        side="client",
        change="Look at the log of the application, and at the record: "
        f"`{trace(row, offset)}`. Correct the application, or let it skip such records or send "
        "them to another topic.",
    )


def _finding(case: Case, rows: list[Row]) -> Finding:
    """A finding for topics of a group with the same cause: a list of `_alike`."""
    row = rows[0]
    not_fetched, lags = row["position_lag"] or 0, ", ".join(f"{lag:,}" for lag in row["lags"])
    readers = list(dict.fromkeys(each["client_id"] for each in rows))
    members, advice = with_enough_members(case, row, advice_of(row))
    of_topic, in_topics = "", ""
    if len(rows) > 1:
        of_topic, in_topics = f" of topic `{row['topic']}`", f" of these {len(rows):,} topics"
    return Finding(
        severity="warning",
        subject=f"group `{row['group_id']}`",
        clients=known(readers),
        sentence=f"Group `{row['group_id']}` falls behind in "
        f"{topics([each['topic'] for each in rows])}",
        evidence=f"Lag of partition {row['partition']}{of_topic} at the end of each quarter of its "
        f"time: {lags}; at the end {counted(row['lag'], 'record')}"
        + f", of which {not_fetched:,} {verb(not_fetched, 'are')} not fetched"
        * (row["position"] is not None)
        + f". It grows in "
        f"{counted(sum(each['growing'] for each in rows), 'partition')}{in_topics}."
        + activity(row)
        + members,
        numbers=cells(row, "group_id topic partition client_id lag position_lag max_lag"),
        command="lag",
        requests=sum(map(case.requests_of, readers)),
        first_time=min(each["first_time"] for each in rows),
        last_time=max(each["time"] for each in rows),
        **advice._asdict(),
    )
