"""What the reader of a partition does while its lag grows, from its requests.

A consumer that seldom has a Fetch pending is busy processing records. A member may also send
heartbeats only, or the capture may lack members, or their Fetches.
"""

from __future__ import annotations

from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.words import Advice, client, percent
from analysis.display.terminal import counted, moment_text
from analysis.sql.query import Row
from analysis.sql.record_flow import GROUPS_OF_READERS

HEARTBEATS_NS: Final = 10**10
"""A member sends several heartbeats in this time: one every 3 s, or 5 s (KIP-848), by default."""

LAST_MEMBER_REQUESTS: Final = f"""
  with readers as (
    select distinct group_id, client_id, client_ip
    from (select connection_id, group_id from {GROUPS_OF_READERS}) as reading
      join (select distinct connection_id, client_id, client_ip from exchanges)
      using (connection_id))
  select group_id, client_id, epoch_ns(max(time)) as last_time from (
    select readers.group_id, client_id, request_time as time
    from exchanges join readers using (client_id, client_ip)
    union all select group_id, client_id, time from memberships)
  where group_id is not null and time is not null group by group_id, client_id"""
"""SQL: the last request of each member of each group. An administrator reads and commits offsets,
too."""


_PARTITIONS: Final = "select topic, max(partition) + 1 as partitions from topics group by topic"


def last_requests(case: Case, row: Row, members: list[Row]) -> Row:
    """Whether the members of a group, or only the reader of a partition, send nothing any more, and
    the time of the last request; whether the capture has only readers of the offsets of the group.
    `members`: rows of `LAST_MEMBER_REQUESTS`."""
    last_time = max((each["last_time"] for each in members), default=row["last_quarter"])
    is_abandoned = last_time < row["last_quarter"]
    own = next((each for each in members if each["client_id"] == row["client_id"]), None)
    last_own = own["last_time"] if own else last_time
    silent_ns = (case.last_message or 0) - last_own
    is_silent = last_own < row["last_quarter"] and silent_ns >= HEARTBEATS_NS
    return {
        "last_request": last_time if is_abandoned else last_own,
        "is_abandoned": is_abandoned,
        "is_silent": is_silent and not is_abandoned,
        "is_unseen": not members and row["committed_time"] is None and row["position"] is None,
    }


def with_enough_members(case: Case, row: Row, advice: Advice) -> tuple[str, Advice]:
    """A sentence for the evidence, and the advice for a group whose further members would get no
    partition of the topic."""
    rebalanced = case.matching("groups", row, "group_id")
    members = (rebalanced[-1]["member_count"] or 0) if rebalanced else 0
    partitions = sum(each["partitions"] for each in case.matching(_PARTITIONS, row, "topic"))
    if advice.change != _SLOW.change or not 0 < partitions <= members:
        return "", advice
    return (
        f" The group has {counted(members, 'member')}, and the topic "
        f"{counted(partitions, 'partition')}.",
        advice._replace(
            change="Process records faster, or add partitions: with the present ones, further "
            "members would get none.",
        ),
    )


def activity(row: Row) -> str:
    """What the members do, for the evidence."""
    if row["is_unseen"]:
        return " The capture contains neither members of the group nor their commits."
    if row["is_abandoned"]:
        return f" Its members sent nothing after {moment_text(row['last_request'])}."
    if row["is_silent"]:
        return (
            f" The reader, {client(row['client_id'])}, sent nothing after "
            f"{moment_text(row['last_request'])}, while other members did."
        )
    if _has_stopped(row):
        return (
            f" The reader, {client(row['client_id'])}, is a member, but has not fetched or "
            f"committed since {moment_text(row['last_reading'])}."
        )
    if not row["pending"]:
        return ""
    pending = percent(min(row["pending"], 100))
    return f" The reader has a Fetch pending for {pending} of the time."


def _has_stopped(row: Row) -> bool:
    """Whether the reader of a partition sends requests in the last quarter, but reads nothing,
    although the capture has its Fetches."""
    idle_ns = row["time"] - (row["last_reading"] or row["time"])
    return bool(
        row["position"] is not None
        and row["time"] - idle_ns < row["last_quarter"] <= row["last_request"]
        and idle_ns >= HEARTBEATS_NS
    )


def advice_of(row: Row) -> Advice:
    """The cause and remedy for the reader of a partition."""
    if row["is_unseen"]:
        return _UNSEEN
    if row["is_abandoned"]:
        return _ABANDONED
    if row["is_silent"]:
        return _SILENT
    if row["position"] is None and row["done_count"] is None:
        return _UNREAD
    if _has_stopped(row):
        return _STOPPED
    if (row["position_lag"] or 0) * 2 < row["lag"]:
        return _SLOW
    return _BUSY if 0 < row["pending"] < 50 else _WAITING


_SLOW: Final = Advice(
    "the consumer fetches in time, but processes its records slowly or commits late",
    "client", None,
    "Process records faster, or add members up to the number of partitions.",
    "Kafka documentation: Monitoring, Consumer lag",
)  # fmt: skip
_UNREAD: Final = _SLOW._replace(
    cause="the consumer processes its records slowly, commits late, or waits for a Fetch: the "
    "capture does not contain its Fetches of these partitions",
)
_BUSY: Final = _SLOW._replace(
    cause="the consumer is the bottleneck: most of the time it has no Fetch pending"
)
_WAITING: Final = Advice(
    "the consumer always waits for a Fetch: the broker, the network or a quota limits it",
    "broker", None,
    "Look at the other findings of this client. Larger fetches (fetch.min.bytes, "
    "max.partition.fetch.bytes) need fewer round trips.",
    "Kafka documentation: Monitoring, Consumer lag",
)  # fmt: skip
_STOPPED: Final = _SLOW._replace(
    cause="the application has worked on the same records since then, waits, or has paused the "
    "partition",
    change="Look for what the application waits for: its threads, its log, and the systems that it "
    "calls. Other members do not get the partition as long as the member sends heartbeats.",
)
_ABANDONED: Final = _SLOW._replace(
    cause="the group has no members any more: they left, crashed, or are blocked",
    change="Look at the log of the application at that time, and start it again. If nobody needs "
    "the group, delete it with kafka-consumer-groups.sh --delete.",
)
_UNSEEN: Final = _ABANDONED._replace(
    cause="the group has no members, or they are not in the capture: another client reads its "
    "offsets",
    change="Look for members with kafka-consumer-groups.sh --describe --members. If there are "
    "none, start the application. If nobody needs the group, delete it (--delete).",
)
_SILENT: Final = Advice(
    "the reader is paused, was killed or is cut off from the brokers, and still has its partitions",
    "client", "session.timeout.ms=45000",
    "Look for a process that is paused (garbage collection, CPU limits) or was killed. Other "
    "members get its partitions after 45 s without heartbeats, by default: session.timeout.ms, or "
    "group.consumer.session.timeout.ms of the brokers with group.protocol=consumer.",
    "KIP-735, KIP-848",
)  # fmt: skip
