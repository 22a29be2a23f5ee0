"""Errors: a client keeps getting the same error, or stops because of one.

Clients retry after a retriable error, and report nothing until they give up. Errors that are part
of Kafka's normal operation (see the answer `errors`) count only if they persist. Quotas, fenced
producers and rebalances have their own rules; MEMBER_ID_REQUIRED and REBALANCE_IN_PROGRESS only
show how often members join. A group removes members when it rebalances, and their requests then get
errors such as UNKNOWN_MEMBER_ID: `rebalances` reports why, if it reports the group. Likewise,
`fenced_producers` and `stuck_transactions` report why a producer gets INVALID_TXN_STATE after the
broker has aborted its transaction.

Producers and consumers stop if they get an error that is not retriable when they authenticate, join
a group, or produce. Members of a group also stop if another one has their group.instance.id. A
single response with such an error counts if the client then closes its connections without another
request, or keeps them but stays silent. A single OFFSET_OUT_OF_RANGE also counts, because the
consumer skips records or reads them again. A new follower gets it too, and then starts at the
beginning of the log.

If a batch of an idempotent producer fails, for example because a leader moves, later batches
get OUT_OF_ORDER_SEQUENCE_NUMBER, and the producer sends them again. This error counts only for
batches that no broker then acknowledged. A broker that starts again before its session has ended
gets DUPLICATE_BROKER_REGISTRATION. It counts only if the broker is not registered later (KIP-631).

If the disk of a log directory is full or fails, a few requests get KAFKA_STORAGE_ERROR (KIP-112).
Partitions without other replicas then have no leader, which is part of the same finding.
FindCoordinator gets COORDINATOR_NOT_AVAILABLE for as long as the internal topic does not exist.

A consumer without a committed offset and with auto.offset.reset=none raises an exception, although
no response has an error. It counts if it does so again and again. So does a consumer that gets a
batch with a wrong checksum and does not continue: one counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.causes.changed_clusters import REBUILT, changed_clusters
from analysis.diagnosis.causes.corrupt_batches import corrupt_batches
from analysis.diagnosis.causes.error_advice import (
    AFTER_END,
    DELETED,
    FOLLOWERS,
    MISPLACED,
    MISROUTED,
    MOVED,
    NO_LEADER,
    NOT_MEMBER,
    NOT_RESET,
    OFFLINE,
    OUTAGES,
    PURGED,
    REMOVED,
    UNKNOWN,
    advice,
    cause,
)
from analysis.diagnosis.causes.error_evidence import (
    EVIDENCE,
    NOT_AUTHORIZED,
    SHARED_ADDRESSES,
    last_changes,
)
from analysis.diagnosis.causes.no_offset import without_offset, without_offset_finding
from analysis.diagnosis.causes.resets import (
    OFFSET_OUT_OF_RANGE,
    is_after_end,
    is_repeated,
    reset_evidence,
    resets,
)
from analysis.diagnosis.causes.stopped_clients import Ends, ends_of, is_fatal
from analysis.diagnosis.rule import DECLARED, Finding, Limits, Threshold, rule
from analysis.diagnosis.rules.fenced_producers import ERRORS, FENCED, fenced_clients
from analysis.diagnosis.rules.rebalances import rebalancing_clients
from analysis.diagnosis.rules.stuck_transactions import ENDED, aborted_transactions
from analysis.diagnosis.words import (
    cells,
    clients,
    listed,
    of_clients,
    percent,
    share,
    topics,
    within,
)
from analysis.display.terminal import counted, excerpt
from analysis.kafka.errors import error_name
from analysis.kafka.normal import NORMAL_IN_API
from analysis.sql.expressions import literal, of_exchange
from analysis.sql.query import Row

ELSEWHERE: Final = (
    *FENCED, "THROTTLING_QUOTA_EXCEEDED", "MEMBER_ID_REQUIRED", "REBALANCE_IN_PROGRESS",
)  # fmt: skip
"""Errors of the rules throttling, fenced_producers and rebalances."""

RESET: Final = (OFFSET_OUT_OF_RANGE, "Fetch")
"""An error after which a consumer continues elsewhere, by auto.offset.reset."""

PASSING: Final = ("CONCURRENT_TRANSACTIONS", "UNSTABLE_OFFSET_COMMIT", "STALE_MEMBER_EPOCH")
"""Errors of requests that come before an earlier one has been completed, so that a busy client gets
them again and again. They persist only if most of its requests fail."""

NORMAL_RESPONSES: Final = 20
NORMAL_MS: Final = 10_000
"""Errors of normal operation persist beyond these; see the thresholds."""

NOT_MEMBERS: Final = """
  select distinct client_id from exchanges anti join memberships using (client_id, group_id)
  where api = 'OffsetCommit' and error_code = 25 and coalesce(member_id, '') = ''"""
"""SQL: clients that sent no member id and no other request of a member of the group."""

OUT_OF_ORDER: Final = "OUT_OF_ORDER_SEQUENCE_NUMBER"
REGISTERED_AGAIN: Final = "DUPLICATE_BROKER_REGISTRATION"

REFUSED_ONCE: Final = """
  with produced as (
    from batches where api = 'Produce' and producer_id is not null),
  stored as (from produced where error_code = 0)
  select produced.client_id, produced.topic
  from produced left join (
    select distinct topic, partition, producer_id, base_timestamp, record_count from stored)
    as stored using (topic, partition, producer_id, base_timestamp, record_count)
  where produced.error_code = 45
  group by all having bool_and(stored.record_count is not null)"""
"""SQL: clients and topics whose batches were out of order, and all acknowledged later. A new epoch
of the producer (KIP-360) changes their sequence numbers."""

REGISTERED: Final = """
  select client_id from exchanges where api = 'BrokerRegistration' and error_code is not null
  group by client_id having arg_max(error_code, response_time) = 0"""
"""SQL: brokers whose last registration succeeded."""

LOGINS: Final = ("SaslHandshake", "SaslAuthenticate")
"""APIs whose errors end a connection before a client can do anything else."""

REQUESTS: Final = """
  select client_id, api, case api when 'SaslAuthenticate' then count(distinct connection_id)
    else count(*) end as requests
  from exchanges group by client_id, api"""
"""SQL: requests by client and API. A login with SCRAM has two, of which the second one fails."""

SECONDS: Final = f"""
  with failed as (
    select client_id, api, topic, error_code, epoch_ns(time) // 1000000000 as last,
      epoch_ns(coalesce(request_time, time)) // 1000000000 as first
    from errors left join {of_exchange("request_time", "response_time", "errors")}
      using (connection_id, correlation_id, time))
  select client_id, api, topic, error_code, count(distinct second) as seconds from (
    select *, unnest(range(first, greatest(first, last) + 1)) as second from failed)
  group by client_id, api, topic, error_code"""
"""SQL: the number of seconds in which each client waited for an error. Two elections are short,
although minutes may lie between them."""


@rule(
    question="Does a client keep getting the same error, or stop because of one?",
    place=8,
    rests_on="errors partitions memberships batches",
    thresholds=(
        Threshold("responses", 3, "responses", "Responses with the error for one client, API and "
                  "topic. A request that fails, and its retry, are two. One is enough if the "
                  "client stops or skips records because of it, or if a log directory is "
                  "offline."),
        Threshold("metadata_responses", 10, "responses", "The same for retriable errors of "
                  "Metadata: while a topic is created, clients ask for it ten times a second for "
                  "up to a second."),
        Threshold("normal_responses", NORMAL_RESPONSES, "responses",
                  "The same for errors of normal operation, unless they fill more than half of the "
                  "time from the first to the last: a client retries ten times a second while a "
                  "leader moves, which takes a second or two."),
        Threshold("normal_ms", NORMAL_MS, "ms",
                  "Errors of normal operation must also last this long, counted in seconds in "
                  "which the client waits for a response with an error: an election, or the "
                  "loading of a coordinator, takes seconds."),
        Threshold("critical_percent", 50, "%", "Critical if an error that is not retriable is in "
                  "this share of the client's responses of the API, and in ten or more of them. "
                  "One is enough for a login, without which a client can do nothing."),
        Threshold("critical_ms", 30_000, "ms", "The same for a retriable error that lasts this "
                  "long, request.timeout.ms by default, if partitions or coordinators are not "
                  "available, or too few replicas are in sync."),
        Threshold("silent_ms", 10_000, "ms", "A client that keeps its connections has stopped if "
                  "it sends no request between the error and the end of the capture, for at least "
                  "this time: members send a heartbeat every 3 s, and consumers a Fetch every 500 "
                  "ms."),
    ),
)  # fmt: skip
def recurring_errors(case: Case, limits: Limits) -> Iterator[Finding]:
    """Recurring errors, by the answer `errors`; consumers that stop without an error code."""
    yield from corrupt_batches(case)
    yield from map(without_offset_finding, without_offset(case, limits["responses"]))
    errors = [
        row for row in case.answer(ERRORS)
        if row["error"] not in ELSEWHERE
        and not (_is_reset(row) and row["client_id"] in case.followers)
    ]  # fmt: skip
    if not errors:
        return
    ends = ends_of(case, limits["silent_ms"])
    errors = _without_aborted(case, _unresolved(case, errors))
    errors = _without_removals(case, errors, ends)
    requests = {(row["client_id"], row["api"]): row["requests"] for row in case.rows(REQUESTS)}
    for rows in _by_cause(case, errors, ends, limits):
        sent = {(row["client_id"], row["api"]) for row in rows}
        part = share(_responses(rows), sum(requests.get(each, 0) for each in sent))
        finding = _finding(case, rows, part, limits, ends, resets(case, rows))
        given = dict.fromkeys(EVIDENCE.get(row["error"]) for row in rows)
        added = "".join(evidence(case, rows) for evidence in given if evidence)
        yield replace(finding, evidence=finding.evidence + added)


def _without_aborted(case: Case, errors: list[Row]) -> list[Row]:
    """The errors without those of transactions that a broker has aborted."""
    if all(row["error"] != ENDED for row in errors):
        return errors
    names = {*fenced_clients(case), *aborted_transactions(case)}
    return [row for row in errors if row["error"] != ENDED or row["client_id"] not in names]


def _without_removals(case: Case, errors: list[Row], ends: Ends) -> list[Row]:
    """The errors without those of members that a group removed, if `rebalances` reports it."""
    is_removed = any(row["error"] in REMOVED for row in errors)
    rebalancing = rebalancing_clients(case) if is_removed else set()
    return [
        row for row in errors
        if row["error"] not in REMOVED
        or row["client_id"] not in rebalancing
        or is_fatal(row, ends)
    ]  # fmt: skip


def _by_cause(case: Case, errors: list[Row], ends: Ends, limits: Limits) -> Iterator[list[Row]]:
    """The errors of each cause, if one of them recurs, or stops a client."""
    responses: Counter[tuple[object, ...]] = Counter()
    for row in errors:
        responses[_repeated(row)] += row["responses"]
    recurring = [_recurs(case, row, responses[_repeated(row)], limits) for row in errors]
    offline = {row["topic"] for row in errors if row["error"] == OFFLINE}
    deleted = {(row["client_id"], row["topic"]) for row in errors if row["error"] in DELETED}
    leaderless = {
        row["topic"] for row, recurs in zip(errors, recurring, strict=True)
        if recurs and row["error"] == NO_LEADER
    }  # fmt: skip
    alike: dict[tuple[str, str | None], list[Row]] = defaultdict(list)
    reported = set()
    for row, recurs in zip(errors, recurring, strict=True):
        error = _origin(row, offline, leaderless)
        is_deleted = (row["client_id"], row["topic"]) in deleted
        if _is_reset(row) and is_deleted and _is_after_end(case, row):
            error = DELETED[0]  # the topic was created again, and its log is shorter
        key = cause(row["api"], error, row["topic"])
        if _is_of_follower(case, row):
            key = FOLLOWERS.cause, None
        is_reported = _is_reset(row) or is_fatal(row, ends) or recurs
        if is_reported or not row["normal"]:
            alike[key].append(row)
        if is_reported:
            reported.add(key)
    yield from (rows for key, rows in alike.items() if key in reported)


def unknown_topics(case: Case) -> set[object]:
    """Topics of findings, with default thresholds, that do not exist or were deleted."""
    findings = recurring_errors(case, DECLARED["recurring_errors"].limits)
    return {each.numbers["topic"] for each in findings if each.numbers["error"] in UNKNOWN}


def _origin(row: Row, offline: set[str | None], leaderless: set[str | None]) -> str:
    """The error that causes that of a row; `offline` and `leaderless`: topics with such errors.

    Until a partition has a leader again, clients send their requests to the last one that they
    know.
    """
    error, topic = row["error"], row["topic"]
    if topic in leaderless and error in MOVED:
        error = NO_LEADER
    return OFFLINE if topic in offline and error == NO_LEADER else error


def _unresolved(case: Case, errors: list[Row]) -> list[Row]:
    """The errors without those of batches and registrations that succeeded later."""
    names = {row["error"] for row in errors}
    once = case.rows(REFUSED_ONCE) if OUT_OF_ORDER in names else []
    resolved = {(OUT_OF_ORDER, row["client_id"], row["topic"]) for row in once}
    registered = case.rows(REGISTERED) if REGISTERED_AGAIN in names else []
    resolved |= {(REGISTERED_AGAIN, row["client_id"], None) for row in registered}
    return [
        row for row in errors if (row["error"], row["client_id"], row["topic"]) not in resolved
    ]  # fmt: skip


_ORIGINS: Final = {**dict.fromkeys(DELETED, 0), OFFLINE: 1, NO_LEADER: 2}
"""Errors that are the cause of others with which they are one finding: the first ones."""


def _is_reset(row: Row) -> bool:
    return (row["error"], row["api"]) == RESET


def _is_of_follower(case: Case, row: Row) -> bool:
    """Whether a leader refuses a follower: the topic is any, as it needs ClusterAction."""
    is_refused = (row["error"], row["api"]) == (NOT_AUTHORIZED, "Fetch")
    return is_refused and row["client_id"] in case.followers


def _is_after_end(case: Case, row: Row) -> bool:
    """Whether the farthest reset of a row is from an offset after the end of the log."""
    return any(is_after_end(reset) for reset in resets(case, [row])[:1])


def _repeated(row: Row) -> tuple[object, ...]:
    """What repeated errors have in common: the topic, too, if the cause depends on it."""
    key = cause(row["api"], row["error"], row["topic"])
    return row["client_id"], row["api"], row["error"], *key


def _recurs(case: Case, row: Row, responses: int, limits: Limits) -> bool:
    """Whether a client got an error too often; `responses`: their number, by `_repeated`."""
    if (row["error"], row["api"]) in NORMAL_IN_API:
        return False
    if row["normal"]:
        lasts_ms = (row["last_time"] - row["first_time"]) / 1e6
        if lasts_ms < limits["normal_ms"]:
            return False
        (failed,) = case.matching(SECONDS, row, "client_id api topic error_code")
        failed_ms = 1000 * failed["seconds"]
        if failed_ms < limits["normal_ms"]:
            return False
        # With exponential back-off, a client retries once a second (KIP-580).
        is_frequent = row["responses"] >= limits["normal_responses"] or (
            row["responses"] >= limits["responses"] and share(failed_ms, lasts_ms) > 50
        )
        return is_frequent and (row["error"] not in PASSING or _persists(case, row))
    if row["error"] == OFFLINE:
        return True  # The broker stops if it has no other log directory (KIP-112).
    waits = row["api"] == "Metadata" and row["retriable"]
    return bool(responses >= limits["metadata_responses" if waits else "responses"])


def _persists(case: Case, row: Row) -> bool:
    """Whether most requests of the client fail, from the first error to the last."""
    (sent,) = case.rows(f"""
      select count(*) as requests from exchanges
      where api = {literal(row["api"])}
        and client_id is not distinct from {literal(row["client_id"])}
        and epoch_ns(response_time) between {row["first_time"]} and {row["last_time"]}""")
    return share(row["responses"], sent["requests"]) > 50


def _responses(rows: list[Row]) -> int:
    return sum(row["responses"] for row in rows)


def _finding(
    case: Case, rows: list[Row], part: float, limits: Limits, ends: Ends, continued: list[Row]
) -> Finding:
    """A finding for errors with one cause; `part`: their percentage of the clients' requests.

    `continued`: their `resets`.
    """
    rows = sorted(rows, key=lambda row: (_ORIGINS.get(row["error"], 3), -row["responses"]))
    row, responses = rows[0], _responses(rows)
    first = min(rows, key=lambda row: row["first_time"])
    span = {"first_time": first["first_time"], "last_time": max(row["last_time"] for row in rows)}
    given = advice(row["api"], row["error"], bool(row["retriable"]), row["topic"])
    lasts_ms = (span["last_time"] - span["first_time"]) / 1e6
    is_outage = given in OUTAGES and lasts_ms >= limits["critical_ms"]
    # A log directory stays offline until a restart.
    are_many = part >= limits["critical_percent"] or row["error"] == OFFLINE
    is_critical = are_many and (responses >= 10 or row["api"] in LOGINS)
    if _is_reset(row) and continued and is_after_end(continued[0]):
        given = AFTER_END
    elif _is_reset(row) and is_repeated(continued):
        given = NOT_RESET
    elif row["error"] in REMOVED and case.matching(NOT_MEMBERS, row, "client_id"):
        given = NOT_MEMBER
    elif _is_reset(row) and last_changes(case, rows):
        given = PURGED
    elif _is_of_follower(case, row):
        given = FOLLOWERS
    elif row["error"] in UNKNOWN and changed_clusters(case, span["first_time"]):
        given = REBUILT
    elif row["error"] in MISPLACED and case.rows(SHARED_ADDRESSES):
        given = MISROUTED
    return Finding(
        severity="critical" if is_critical and (is_outage or not row["retriable"]) else "warning",
        **of_clients(_values(rows, "client_id")),
        sentence=_sentence(rows),
        evidence=_counts(case, rows, part, span)
        + reset_evidence(continued)
        + _ends_evidence(case, rows, ends)
        + _messages(rows),
        numbers=cells(row, "client_id api error topic count responses first_packet"),
        command=ERRORS,
        requests=responses,
        first_packet=first["first_packet"],
        **span,
        **given._asdict(),
    )


def _values(rows: list[Row], name: str) -> list[Any]:
    """The values of a column, each once."""
    return list(dict.fromkeys(row[name] for row in rows))


def _sentence(rows: list[Row]) -> str:
    names, apis = clients(_values(rows, "client_id")), _values(rows, "api")
    errors = listed(dict.fromkeys(error_name(row["error"], row["error_code"]) for row in rows))
    failed = [topic for topic in _values(rows, "topic") if topic]
    fail = f"{apis[0]} of {names} fails" if len(apis) == 1 else f"Requests of {names} fail"
    return f"{fail} with {errors}" + (f" for {topics(failed)}" if failed else "")


def _counts(case: Case, rows: list[Row], part: float, span: Row) -> str:
    """Sentences about the number of responses, their share, and the first one."""
    apis, responses = _values(rows, "api"), _responses(rows)
    first = min(rows, key=lambda row: row["first_time"])
    file = case.file_of_response(first["first_packet"], first["first_time"]) or ""
    lasts = within(span) if responses > 1 else ""
    sent = "logins" if apis == ["SaslAuthenticate"] else f"{listed(apis)} requests"
    of = "the client" if len(_values(rows, "client_id")) == 1 else "these clients"
    kinds = _kinds(rows)
    return (
        f"{counted(responses, 'response')}, {percent(min(part, 100))} of the {sent} of {of}"
        f"{lasts and ','}{lasts}; the first is packet {first['first_packet']}"
        f"{file and f' of {file}'}." + (f" {kinds}." if ", " in kinds else "")
    )


def _ends_evidence(case: Case, rows: list[Row], ends: Ends) -> str:
    """A sentence about clients that all stopped after the error, or after the last of several."""
    names = {*_values(rows, "client_id")}
    stopped = {
        row["client_id"] for row in rows if is_fatal(row, ends) and not _may_retry(case, row)
    }
    if stopped != names:
        return ""
    which = "it" if _responses(rows) == len(names) else "the last one"
    return f" {'The client' if len(names) == 1 else 'Each client'} stopped after {which}."


def _may_retry(case: Case, row: Row) -> bool:
    """Whether the capture ends before the next error of a client that retries may follow."""
    silent = (case.last_message or 0) - row["last_time"]
    return bool(silent * (row["responses"] - 1) < row["last_time"] - row["first_time"])


def _messages(rows: list[Row]) -> str:
    """The messages of the broker about the errors."""
    texts = [f'"{excerpt(text)}"' for text in _values(rows, "message") if text]
    if not texts:
        return ""
    return f" {'Messages' if len(texts) > 1 else 'Message'} of the broker: {listed(texts, 2)}"


def _kinds(rows: list[Row]) -> str:
    """The number of responses by API and error, the most first."""
    has_one_error = len({row["error"] for row in rows}) == 1
    counts: Counter[str] = Counter()
    for row in rows:
        error = "" if has_one_error else f" with {error_name(row['error'], row['error_code'])}"
        counts[row["api"] + error] += row["responses"]
    return listed(f"{count:,} {kind}" for kind, count in counts.most_common())
