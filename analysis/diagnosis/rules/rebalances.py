"""Rebalances: members of a group leave, time out and join again.

A group rebalances a few times when members are started or stopped. A loop is different: members
leave or time out, so that each rebalance is followed by another one. In a classic group with an
eager assignor, no member reads meanwhile. A member that leaves and rejoins on the same connection
did not restart: its client left by itself because the application did not poll for
`max.poll.interval.ms`. Java clients 3.2 and newer send this as their reason for leaving; a single
such reason is a finding. A member of a group with epochs (KIP-848) that rejoins after the
coordinator had removed it did not send heartbeats for the session timeout.

Members of a cooperative group, of Kafka Streams and of Kafka Connect rejoin by design: to hand over
partitions or tasks (KIP-429, KIP-441), and when a connector changes (KIP-415). Such rebalances
count only if they take most of the group's time.

A single rebalance is a finding if it takes long. The coordinator waits until every member has
joined, and a member joins when its application polls: the others wait for the slowest one, for
`max.poll.interval.ms` at most. If the broker of the coordinator is down, no member can join. A
JoinGroup whose response may be missing from the capture does not show that a group still waits.
Members whose connections ended without a LeaveGroup were killed or crashed. The coordinator may
also refuse a member, for example because of group.max.size.

If members have no topic in common, perhaps several applications use one group.id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from analysis.answers.unanswered import unanswered_requests
from analysis.diagnosis.case import Case
from analysis.diagnosis.causes.stopped_clients import REJOINED
from analysis.diagnosis.causes.unsupported import unsupported_requests
from analysis.diagnosis.rule import DECLARED, Finding, Limits, Severity, Threshold, rule
from analysis.diagnosis.words import (
    Advice,
    capital,
    cells,
    client,
    clients,
    known,
    listed,
    ms,
    percent,
    rows_by,
    share,
    topics,
)
from analysis.display.terminal import counted
from analysis.sql.expressions import IS_NORMAL, endpoint, literals
from analysis.sql.failures import OUTAGES
from analysis.sql.query import Row

RETURNS: Final = """
  with events as (
    select group_id, connection_id, client_id, api, time, request_generation, nth, reason
    from memberships where error_code = 0),
  steps as (
    select *, lag(case when api = 'LeaveGroup' or request_generation < 0 then 'left' end)
      over members as before, contains(lag(reason) over members, 'unsubscribed') as has_unsubscribed
    from events where api in ('JoinGroup', 'LeaveGroup') or request_generation <= 0
    window members as (partition by group_id, client_id, connection_id order by time, nth))
  select group_id, count(*) as returns,
    count(*) filter (coalesce(has_unsubscribed, false)) as unsubscribed from steps
  where before = 'left' and (api = 'JoinGroup' or request_generation = 0) group by all"""
"""How often a member joined again on the connection on which it had left, and how often it had left
because its application called unsubscribe() (KIP-800)."""
NO_RETURNS: Final = {"returns": 0, "unsubscribed": 0}

REMOVED: Final = """
  select group_id, count(distinct (member_id, request_generation)) as removed from memberships
  where group_type != 'classic' and error in ('UNKNOWN_MEMBER_ID', 'FENCED_MEMBER_EPOCH')
  group by all"""
"""SQL: how often a member of a group with epochs learned that the coordinator had removed it; it
then joins again with the same id (KIP-848)."""

GROUPS: Final = """
  select group_id,
    (epoch_ns(max(coalesce(response_time, time))) - epoch_ns(min(time))) / 1e6 as span_ms,
    bool_or(protocol in ('cooperative-sticky', 'stream', 'default', 'compatible', 'sessioned'))
      as is_cooperative
  from memberships group by group_id"""
"""The time from the first request of a member to the last response, of each group, and whether its
members rejoin by design; the last three are protocols of Kafka Connect."""

MEMBERS: Final = "select distinct group_id, client_id from memberships"

TOPICS: Final = """
  select group_id, client_id, list_sort(list(distinct topic)) as topics
  from partitions semi join memberships using (group_id, client_id)
  where api in ('OffsetCommit', 'OffsetFetch') and topic is not null
  group by all order by client_id"""
"""SQL: the topics of which each member of a group reads or commits offsets."""

OVERDUE: Final = """
  select group_id, client_id, reason, epoch_ns(time) as time, is_last from (
    select *, lead(time) over (partition by group_id, client_id order by time, nth) is null
      as is_last
    from memberships)
  where api = 'LeaveGroup' and error_code = 0 and contains(reason, 'poll timeout') order by time"""
"""SQL: members that report that they left because they did not poll (KIP-800), and whether this is
their last request."""

LAST_JOINS: Final = """
  select group_id, generation, max(time) as time from memberships
  where api = 'JoinGroup' and error_code = 0 group by all"""
"""When the last member of each generation of a classic group joined."""

KILLED: Final = """
  with members as (
    select group_id, member_id, client_id, arg_max(connection_id, time) as connection_id,
      coalesce(bool_or(api = 'LeaveGroup' or request_generation < 0), false) as has_left
    from memberships where member_id != '' and group_instance_id is null group by all)
  select group_id, client_id, epoch_ns(last_time) as time from members
    join connections using (connection_id) where not has_left and closed is not null"""
"""SQL: members whose last connection ended, although they had not left. Static members return with
the same id (KIP-345)."""

REFUSED: Final = f"""
  select group_id, client_id, error, epoch_ns(response_time) as time
  from memberships semi join (from errors where not retriable and not {IS_NORMAL}) as refused
    using (connection_id, correlation_id, error)
  where api = 'JoinGroup' and error not in {literals(REJOINED)} order by time"""
"""SQL: members that may not join again."""

WITH_MEMBER_ID: Final = "need to re-join with the given member-id"
"""The reason of a member that joins with its new id (KIP-394)."""

COORDINATORS_DOWN: Final = f"""
  select group_id, {endpoint("broker")} as broker, first_time, last_time
  from {OUTAGES} join (
    select distinct group_id, broker_ip, broker_port
    from memberships join connections using (connection_id)) using (broker_ip, broker_port)
  order by first_time"""
"""SQL: the outages of brokers to which the members of each group sent requests."""


def _unseen_ends() -> str:
    """SQL: groups with a JoinGroup whose response may be missing from the capture, or that the
    broker does not know."""
    return f"""
      select group_id from {unanswered_requests()}
      where api = 'JoinGroup' and reason in ('loss', 'one_sided')
      union select group_id from {unsupported_requests()} where api = 'JoinGroup'"""


DISRUPTIONS: Final = ("left", "timed out", "rejoined")
"""Triggers that shrink or restart a group; joins that follow are their consequence."""


SLOW: Final = Advice(
    "members do not poll within max.poll.interval.ms: they take too long to process their records",
    "client",
    "max.poll.interval.ms",
    "Lower max.poll.records or process records on other threads, so that poll() is called in time; "
    "otherwise raise max.poll.interval.ms above the longest processing time of a batch.",
    "KIP-62",
)
SILENT: Final = Advice(
    "members stop sending heartbeats: processes are killed, paused (garbage collection, CPU "
    "limits) or cut off",
    "client",
    "session.timeout.ms=45000",
    "Look for killed or paused processes. session.timeout.ms (45 s by default) should be at least "
    "three heartbeat intervals.",
    "KIP-62, KIP-735",
)
PAUSED: Final = SILENT._replace(
    cause=f"{SILENT.cause}; the coordinator then removes them, and they join again",
    setting=None,
    change="Look for paused processes. The session timeout is a setting of the brokers: 45 s by "
    "default, group.consumer.session.timeout.ms for consumer groups.",
    reference="KIP-848, KIP-932, KIP-1071",
)
RESTARTED: Final = Advice(
    "members restart, or the group is scaled up and down",
    "client",
    "group.instance.id",
    "Look for crashes and for health checks that fail. Give each instance a group.instance.id "
    "(static membership), so that a restart does not rebalance; or use group.protocol=consumer.",
    "KIP-345, KIP-848",
)
RESUBSCRIBED: Final = Advice(
    "members rejoin without leaving: their subscription, or the metadata of their topics, changed",
    "client",
    "",
    "Look at the reasons in `groups`. A consumer should subscribe once, and a pattern should not "
    "match topics that come and go. A Java client that loses its connections also forgets its "
    "metadata: look at the findings about them.",
    "KIP-800, KIP-899",
)
UNSUBSCRIBED: Final = Advice(
    "the application unsubscribes and subscribes again: Kafka Streams does so if the transaction "
    "of a thread fails",
    "client",
    None,
    "Look at the log of the application at these times, and at the findings about its producers.",
    "KIP-447, KIP-800",
)
BUSY: Final = Advice(
    "the group waited for a member that processed records, and joined when it polled again",
    "client",
    "max.poll.records",
    "Lower max.poll.records or process records on other threads, so that poll() is called often. "
    "With group.protocol=consumer, the other members continue to read during a rebalance.",
    "KIP-62, KIP-848",
)
STREAM_THREAD: Final = "-StreamThread-"
"""A part of the client ids of Kafka Streams (ClientUtils)."""
RELEASING: Final = BUSY._replace(
    cause="a member gave up its partitions late: its application was processing records, or "
    "onPartitionsRevoked took long. The new owners of these partitions waited for it",
    change="Lower max.poll.records or process records on other threads, so that poll() is called "
    "often, and return soon from onPartitionsRevoked. The coordinator removes a member that takes "
    "longer than max.poll.interval.ms.",
    reference="KIP-848",
)
ABSENT: Final = BUSY._replace(
    cause="the group waited for a member that did not join: it was busy, paused or killed",
    setting="max.poll.interval.ms",
    change="Look for a member that is busy or was killed. The coordinator removes it after "
    "session.timeout.ms without heartbeats, or max.poll.interval.ms.",
)
TURNED_AWAY: Final = ABSENT._replace(
    cause="the coordinator refused a member when it joined again, and the others waited for it",
    setting=None,
    change="Look at the finding about this error.",
    reference="KIP-62",
)
CRASHED: Final = ABSENT._replace(
    cause="the group waited for members that had been killed or had crashed: they did not leave",
    setting="session.timeout.ms",
    change="Look at the log of the application, and for processes that are killed (out of memory, "
    "health checks). The coordinator removes such members after session.timeout.ms without "
    "heartbeats (45 s by default). With a group.instance.id, an instance that starts again takes "
    "its own place.",
    reference="KIP-62, KIP-345",
)
STREAMS_STOPPED: Final = ABSENT._replace(
    cause="the group waited for members that did not join: an instance of Kafka Streams that stops "
    "does not leave its group",
    setting="session.timeout.ms",
    change="Lower session.timeout.ms of the application (45 s by default), after which the "
    "coordinator removes members without heartbeats. Give each instance a group.instance.id, so "
    "that it returns without a rebalance, or use group.protocol=streams.",
    reference="KIP-345, KIP-1071",
)
DOWN: Final = Advice(
    "the broker of the group's coordinator was down: members could not join",
    "broker",
    None,
    "Look at the finding about this broker. With a replicated __consumer_offsets, another broker "
    "would become the coordinator.",
    "Kafka documentation: Broker Configs, offsets.topic.replication.factor",
)
CAUSES: Final = {"left": RESTARTED, "timed out": SILENT, "rejoined": RESUBSCRIBED}


@rule(
    question="Does a group keep rebalancing, and why?",
    place=11,
    rests_on="groups memberships unanswered",
    thresholds=(
        Threshold("disruptions", 3, "rebalances", "Rebalances because a member left, timed out or "
                  "rejoined. Two occur when two members of a group stop."),
        Threshold("critical_percent", 50, "%", "Critical if the group spends this share of its "
                  "time in rebalances, from the first request of a member to the last response: it "
                  "waits more than it works."),
        Threshold("longest_ms", 10_000, "ms", "The longest rebalance. Members learn of it from a "
                  "heartbeat, every 3 s by default, and join within ms."),
    ),
)  # fmt: skip
def rebalances(case: Case, limits: Limits) -> Iterator[Finding]:
    """Groups with repeated rebalances, by the answer `groups`."""
    by_group = rows_by(case.answer("groups"), "group_id")
    if not by_group:
        return
    returns = {row["group_id"]: row for row in case.rows(RETURNS)}
    groups = {row["group_id"]: row for row in case.rows(GROUPS)}
    overdue = rows_by(case.rows(OVERDUE), "group_id")
    for group, rows in by_group.items():
        returned, late = returns.get(group, NO_RETURNS), overdue.get(group, [])
        spent = sum(_duration_ms(case, row) for row in rows)
        part = min(share(spent, groups[group]["span_ms"]), 100)
        is_critical = part >= limits["critical_percent"]
        by_design = ("rejoined",) if groups[group]["is_cooperative"] and not is_critical else ()
        causes = [row for row in rows if row["trigger"] in {*DISRUPTIONS} - {*by_design}]
        severity: Severity = "critical" if is_critical else "warning"
        time = f"The group spends {percent(part)} of its time ({ms(spent)}) in rebalances"
        if max(len(causes), returned["returns"]) >= limits["disruptions"] or late:
            finding = _finding(case, group, rows, causes or rows, late, returned, severity, time)
            if finding.cause == RESUBSCRIBED.cause and _were_removed(case, group, causes):
                finding = replace(finding, **PAUSED._asdict())
        elif long := [row for row in rows if _duration_ms(case, row) >= limits["longest_ms"]]:
            finding = _long_finding(case, group, long, severity, time)
        else:
            continue
        yield _without_coordinator(case, _with_topics(case, finding), rows, spent)


def rebalancing_clients(case: Case) -> set[str | None]:
    """Client ids of the members of groups that the rule reports by default."""
    findings = rebalances(case, DECLARED["rebalances"].limits)
    groups = {finding.numbers["group_id"] for finding in findings}
    return {row["client_id"] for row in case.rows(MEMBERS) if row["group_id"] in groups}


def _were_removed(case: Case, group: str, causes: list[Row]) -> bool:
    """Whether the coordinator had removed most of the members that rejoined."""
    removed = sum(row["removed"] for row in case.rows(REMOVED) if row["group_id"] == group)
    return bool(2 * removed >= sum(row["trigger"] == "rejoined" for row in causes))


def _with_topics(case: Case, finding: Finding) -> Finding:
    """The finding; with the topics of the members if these have none in common, as applications
    with the same group.id. Instances of Kafka Streams divide topics by design."""
    members = case.matching(TOPICS, dict(finding.numbers), "group_id")
    parts: list[tuple[set[str], list[str | None]]] = []
    for row in members:
        own, names = {*row["topics"]}, [row["client_id"]]
        for part in [part for part in parts if part[0] & own]:
            parts.remove(part)
            own, names = own | part[0], part[1] + names
        parts.append((own, names))
    if len(parts) < 2 or any(STREAM_THREAD in name for _, names in parts for name in names if name):
        return finding
    reading = listed(f"{topics(sorted(own))} of {clients(names)}" for own, names in parts)
    return replace(
        finding,
        evidence=f"{finding.evidence} Members read different topics: {reading}.",
        change=f"{finding.change} If these are different applications, give each a group.id of its "
        "own: a rebalance concerns all members of a group.",
    )


def _without_coordinator(case: Case, finding: Finding, rows: list[Row], spent_ms: float) -> Finding:
    """The finding; with another cause if the coordinator was down for most of the rebalances."""
    down: Counter[str] = Counter()
    for outage in case.matching(COORDINATORS_DOWN, rows[0], "group_id"):
        for row in rows:
            start = max(row["start_time"] or 0, outage["first_time"])
            end = min(row["end_time"] or case.last_message or 0, outage["last_time"])
            down[outage["broker"]] += max(end - start, 0) / 1e6
    broker, down_ms = max(down.items(), key=lambda item: item[1], default=("", 0))
    if not broker or 2 * down_ms < spent_ms:
        return finding
    evidence = f"{finding.evidence} Meanwhile, {broker} accepted no connection for {ms(down_ms)}."
    return replace(finding, evidence=evidence, **DOWN._asdict())


def _duration_ms(case: Case, row: Row) -> float:
    """The duration of a rebalance; of one that has not ended, until the end of the capture."""
    start, group = row["start_time"], {"group_id": row["group_id"]}
    if start is not None and row["end_time"] is None:
        if group in case.rows(_unseen_ends()):
            return 0.0
        return float(((case.last_message or start) - start) / 1e6)
    return row["duration_ms"] or 0.0


def _long_finding(
    case: Case, group: str, rows: list[Row], severity: Severity, time: str
) -> Finding:
    row = max(rows, key=lambda row: _duration_ms(case, row))
    lasts_ms, name = _duration_ms(case, row), row["last_client_id"]
    joined = case.matching(LAST_JOINS, row, "group_id generation")
    waited_ms = (joined[0]["time"] - row["start_time"]) / 1e6 if joined else 0.0
    # In groups with epochs, members do not join again: each reaches the new epoch by itself.
    is_releasing = row["group_type"] == "consumer" and row["end_time"] is not None
    is_busy = is_releasing or waited_ms >= lasts_ms / 2
    is_streams = STREAM_THREAD in (row["trigger_client_id"] or "")
    killed = _killed(case, row)
    refused = _refused(case, row)
    advice = (
        STREAMS_STOPPED if is_streams else CRASHED if killed else TURNED_AWAY if refused else ABSENT
    )
    advice = RELEASING if is_releasing else BUSY if is_busy else advice
    last = "reached the new epoch" if is_releasing else f"joined {ms(waited_ms)} later,"
    trigger = client(row["trigger_client_id"])
    began = f"{capital(trigger)} sent the first JoinGroup. "
    if row["trigger"] in ("joined", *DISRUPTIONS):
        began = f"It began because {trigger} {row['trigger']}. "
    return Finding(
        severity=severity,
        subject=f"group `{group}`",
        clients=known([name if is_busy else row["trigger_client_id"]]),
        sentence=_long_sentence(row, ms(lasts_ms)),
        evidence=began
        + f"{capital(client(name))} {last} as the last member. " * is_busy
        + (
            f"Connections of members ended without a LeaveGroup: {_counts(killed)}. "
            if advice is CRASHED
            else ""
        )
        + (f"JoinGroup failed for {listed(refused)}. " if refused else "")
        + time
        + ("." if len(rows) == 1 else f"; {len(rows):,} rebalances took long."),
        numbers=cells(row, "group_id trigger trigger_client_id generation duration_ms"),
        command="groups",
        requests=case.requests_of(name),
        first_time=row["start_time"],
        last_time=row["end_time"] or case.last_message,
        **advice._asdict(),
    )


def _long_sentence(row: Row, lasts: str) -> str:
    group = f"group `{row['group_id']}`"
    if row["end_time"] is None:
        return f"{capital(group)} has waited for the end of a rebalance for {lasts}"
    if not row["completed"]:
        return f"A rebalance of {group} ended after {lasts} without an assignment"
    return f"A rebalance of {group} took {lasts}"


def _killed(case: Case, row: Row) -> Counter[str | None]:
    """The number of members, by client id, that were killed before the end of a rebalance."""
    end = row["end_time"] or case.last_message or 0
    members = case.matching(KILLED, row, "group_id")
    return Counter(each["client_id"] for each in members if each["time"] <= end)


def _refused(case: Case, row: Row) -> list[str]:
    """The members that could not join during a rebalance, each with its error."""
    return list(dict.fromkeys(
        f"{client(each['client_id'])} with {each['error']}"
        for each in case.matching(REFUSED, row, "group_id")
        if row["start_time"] <= each["time"] <= (row["end_time"] or each["time"])
    ))  # fmt: skip


def _counts(names: Counter[str | None]) -> str:
    return listed(f"{count:,} of {client(name)}" for name, count in names.most_common())


def _finding(
    case: Case, group: str, rows: list[Row], causes: list[Row], late: list[Row], returned: Row,
    severity: Severity, time: str,
) -> Finding:  # fmt: skip
    triggers = Counter(row["trigger"] for row in rows)
    names = Counter(row["trigger_client_id"] for row in causes if row["trigger_client_id"])
    given = [
        row["reason"].rstrip(".") for row in (*late, *causes)
        if row["reason"] and not row["reason"].startswith(WITH_MEMBER_ID)
    ]  # fmt: skip
    reasons = list(dict.fromkeys(given))
    first, last = rows[0]["start_time"], rows[-1]["end_time"] or rows[-1]["start_time"]
    counts = ", ".join(f"{count:,} {trigger}" for trigger, count in triggers.most_common())
    advice = _cause(causes, late, returned)
    if advice is UNSUBSCRIBED and severity != "critical":
        severity = "note"  # an effect of another finding
    longest, returns = max(rows, key=lambda row: row["duration_ms"] or 0), returned["returns"]
    return Finding(
        severity=severity,
        subject=f"group `{group}`",
        clients=known(names),
        sentence=f"{capital(f'group `{group}`')} rebalanced {counted(len(rows), 'time')}",
        evidence=f"Triggers: {counts}; most by "
        f"{listed(f'`{n}`' for n, _ in names.most_common())}. "
        f"{time}; the longest takes {ms(longest['duration_ms'])}."
        + f" Members rejoined {counted(returns, 'time')} on the connection that they had left."
        * bool(returns)
        + (f" Reasons: {listed(reasons, 2)}." if reasons else "")
        + _away(case, late),
        numbers=cells(longest, "group_id trigger trigger_client_id generation duration_ms"),
        command="groups",
        requests=sum(case.requests_of(name) for name in names),
        first_time=first,
        last_time=last,
        **advice._asdict(),
    )


def _away(case: Case, late: list[Row]) -> str:
    """A sentence about members that did not poll in time and have not joined again."""
    away = [row for row in late if row["is_last"]]
    if not away:
        return ""
    silent = ms(((case.last_message or 0) - away[0]["time"]) / 1e6)
    return (
        f" {capital(clients([row['client_id'] for row in away]))} did not join again in the "
        f"{silent} until the end of the capture."
    )


def _cause(causes: list[Row], late: list[Row], returned: Row) -> Advice:
    unsubscribed = returned["unsubscribed"]
    if late or returned["returns"] - unsubscribed > 1:
        return SLOW
    if unsubscribed > 1:
        return UNSUBSCRIBED
    triggers = Counter(row["trigger"] for row in causes)
    return max(CAUSES.items(), key=lambda cause: triggers[cause[0]])[1]
