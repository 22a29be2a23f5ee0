"""Missing responses: clients wait until a timeout, or until their connection is reset.

The rule does not count requests that have no response because the capture ended or the connection
was closed normally, nor those whose response may be missing from the capture. It ignores long
polls, because a client that stops leaves one behind. `failed_connections` reports two other cases:
ApiVersions requests of connections that are closed at once, and resets of a broker that then
refuses connections.

A broker whose listener requires SASL closes a connection at the first request without it, and at
the first request after the end of a session (KIP-368). Each broker closes a connection at a request
of an API or a version that it does not know, and if the length of a request is above
`socket.request.max.bytes`. Only the broker's log has the reason, and the client sends the request
again.

A response that the client did not wait for counts, too: its transfer takes longer than
`request.timeout.ms`, or a round trip does. So do connections that a device on the path drops,
because they are idle or because their packets are too large. Produce requests that a snap length
cut before acks do not count: with acks=0, brokers send no response. Nor do requests behind a
throttled response, which `throttling` reports, and of producers whose other requests fail because
too few replicas are in sync, which `recurring_errors` reports.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from analysis.answers.unanswered import TIMEOUT_MS, unanswered_requests
from analysis.diagnosis.case import Case
from analysis.diagnosis.causes.dropped import dropped_connections, dropped_finding
from analysis.diagnosis.causes.incomplete import incomplete_finding, incomplete_responses
from analysis.diagnosis.causes.sessions import (
    COMMAND,
    expired_session_finding,
    expired_sessions,
    unauthenticated_clients,
    unauthenticated_finding,
)
from analysis.diagnosis.causes.short_timeouts import short_timeout_finding, short_timeouts
from analysis.diagnosis.causes.unsupported import unsupported_clients, unsupported_finding
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.rules.failed_connections import refusing_brokers
from analysis.diagnosis.rules.slow_broker import REPLICATED
from analysis.diagnosis.words import (
    by_end,
    client,
    ends,
    listed,
    ms,
    of_client,
    of_ends,
    rows_by,
    sql,
)
from analysis.display.terminal import counted, size_text
from analysis.kafka.normal import waiting_apis
from analysis.sql.expressions import endpoint, first_packet
from analysis.sql.query import Row

REASONS: Final = ("timeout", "reset")

OVERSIZED_BYTES: Final = 100_000
"""No broker has a lower limit: it would refuse default batches of a few partitions."""

OVERSIZED: Final = f"""(
  with answered as (
    select broker_ip, broker_port, max(request_bytes) as answered_bytes
    from exchanges where status = 'answered' group by all)
  select unanswered.*, {endpoint("broker")} as broker, answered_bytes
  from {unanswered_requests()} as unanswered join answered using (broker_ip, broker_port)
  where reason in ('closed', 'reset') and wait_ms < {TIMEOUT_MS}
    and request_bytes > greatest(answered_bytes, {OVERSIZED_BYTES}))"""
"""SQL: large requests whose connection ended at once; the broker responded to smaller ones only."""

UNKNOWN_ACKS: Final = f"""
  select client_id, {endpoint("broker")} as broker, api from exchanges
  where api = 'Produce' and status = 'unanswered' group by all having count(acks) = 0"""
"""SQL: producers whose requests were truncated before acks: with acks=0, there is no response."""

THROTTLED: Final = f"""
  select distinct client_id, {endpoint("broker")} as broker, api
  from exchanges join (
    select connection_id, arg_max(throttle_time_ms, response_time) as throttle_ms,
      max(response_time) + to_milliseconds(throttle_ms) as read_time
    from exchanges where response_time is not null
    group by connection_id having throttle_ms > 0) using (connection_id)
  where status = 'unanswered' and request_time < read_time"""
"""SQL: requests that a broker had not read, because it throttled the last response of their
connection (KIP-219)."""

UNREPLICATED: Final = f"""
  select client_id, {endpoint("broker")} as broker, count(*) as responses
  from errors where error in ('NOT_ENOUGH_REPLICAS', 'NOT_ENOUGH_REPLICAS_AFTER_APPEND')
  group by all"""
"""SQL: producers that get errors because too few replicas are in sync. Before that, a leader waits
for replicas that are gone, for up to replica.lag.time.max.ms, and requests of any API wait behind
the Produce on its connection."""

SIZES: Final = sql("""
  select client_id, api, status, count(*) as requests, min(request_bytes) as smallest_bytes,
    max(request_bytes) as largest_bytes from exchanges group by all""")


@rule(
    question="Do requests get no response?",
    place=7,
    rests_on="unanswered network quality",
    thresholds=(
        Threshold("requests", 3, "requests", "Requests of an API that ended with a timeout, or "
                  "their connections if these were reset at once or dropped. A process that is "
                  "killed leaves one or two connections, with several requests in flight."),
    ),
)  # fmt: skip
def no_response(case: Case, limits: Limits) -> Iterator[Finding]:
    """Clients that got no response, by the answer `unanswered`."""
    rows = oversized_requests(case)
    oversized = [row for row in rows if row["connections"] >= limits["requests"]]
    yield from map(_oversized_finding, oversized)
    explained = {(row["client_id"], row["broker"], row["api"], "reset") for row in oversized}
    strange = [
        row for row in unauthenticated_clients(case) if row["connections"] >= limits["requests"]
    ]
    yield from map(unauthenticated_finding, rows_by(strange, "broker").values())
    explained |= {
        (row["client_id"], row["broker"], api, "reset") for row in strange for api in row["apis"]
    }
    strangers = {row["client_id"] for row in unauthenticated_clients(case)}
    for row in unsupported_clients(case, int(limits["requests"])):
        if row["client_id"] not in strangers:
            yield unsupported_finding(row)
    for row in expired_sessions(case):
        if row["connections"] >= limits["requests"]:
            yield expired_session_finding(row)
    for dropped in rows_by(dropped_connections(case), "cause").values():
        if len(dropped) >= limits["requests"]:
            yield from map(dropped_finding, by_end(dropped, "idle_ms"))
            explained |= {
                (row["client_id"], row["broker"], api, reason)
                for row in dropped for api in row["apis"] or () for reason in REASONS
            }  # fmt: skip
    for row in incomplete_responses(case):
        if row["responses"] >= limits["requests"]:
            yield incomplete_finding(row)
    for hasty in rows_by(short_timeouts(case, limits["requests"]), "broker").values():
        yield short_timeout_finding(case, hasty)
    unanswered = _unexplained(case, limits, explained)
    for end in ((reason, is_timeout) for reason in REASONS for is_timeout in (True, False)):
        alike = [row for row in unanswered if (row["reason"], _is_timeout(row)) == end]
        yield from map(_finding, by_end(alike, "requests"))


def _unexplained(
    case: Case, limits: Limits, explained: Collection[tuple[str, str, str, str]]
) -> list[Row]:
    """Requests without a response, apart from those with another cause. `explained`: client,
    broker, API and reason of those that other findings report."""
    waiting = waiting_apis()
    unanswered = [
        row for row in case.answer(COMMAND)
        if row["reason"] in REASONS
        and row["api"] not in waiting
        and (row["api"] != "ApiVersions" or _is_timeout(row))
        and row["requests" if _is_timeout(row) else "connections"] >= limits["requests"]
        and (row["client_id"], row["broker"], row["api"], row["reason"]) not in explained
    ]  # fmt: skip
    if any(row["reason"] == "reset" for row in unanswered):
        refusing = refusing_brokers(case)
        unanswered = [
            row for row in unanswered
            if not (row["reason"] == "reset" and row["broker"] in refusing)
        ]  # fmt: skip
    if unanswered:
        normal = [*case.rows(UNKNOWN_ACKS), *case.rows(THROTTLED)]
        unreplicated = {
            (row["client_id"], row["broker"]) for row in case.rows(UNREPLICATED)
            if row["responses"] >= limits["requests"]
        }  # fmt: skip
        unknown = rows_by(normal, "client_id", "broker", "api")
        unanswered = [
            row for row in unanswered
            if (row["client_id"], row["broker"], row["api"]) not in unknown
            and (row["client_id"], row["broker"]) not in unreplicated
        ]  # fmt: skip
    return unanswered


def _is_timeout(row: Row) -> bool:
    return (row["longest_ms"] or 0) >= TIMEOUT_MS


def _finding(rows: list[Row]) -> Finding:
    """A finding for the requests of one client, or to one broker, that ended alike."""
    (name, broker), apis = ends(rows), list(dict.fromkeys(row["api"] for row in rows))
    is_timeout, requests = _is_timeout(rows[0]), sum(row["requests"] for row in rows)
    others = "or, with acks=all, one of its followers" if apis == ["Produce"] else "or its host"
    if {*apis} & {*REPLICATED}:
        others = "or one of its followers"
    return Finding(
        severity="warning",
        **of_ends(rows, "client_id broker api reason requests connections longest_ms"),
        sentence=f"No response from {broker} to {requests:,} requests of {name} ({listed(apis)})",
        evidence=f"{counted(sum(row['connections'] for row in rows), 'connection')} ended "
        + ("with a reset (RST)" if rows[0]["reason"] == "reset" else "normally (FIN)")
        + " before the response. The longest wait was "
        f"{ms(max(row['longest_ms'] or 0 for row in rows))}.",
        cause=f"the broker {others} hangs or is overloaded" if is_timeout
        else "a process was killed, or a proxy, firewall or load balancer dropped the connection",
        side="broker" if is_timeout else "network",
        setting=None if is_timeout else "connections.max.idle.ms",
        change="Look at the broker's log, garbage collection and disk at these times. "
        "request.timeout.ms is 30 s by default; a shorter one gives up early." if is_timeout
        else "Find out which side sends the RST. Keep connections.max.idle.ms below the idle "
        "timeout of proxies and firewalls.",
        reference="Kafka documentation: Producer Configs, request.timeout.ms",
        command=COMMAND,
        requests=requests,
    )  # fmt: skip


def oversized_requests(case: Case) -> list[Row]:
    """The rows of `OVERSIZED` by client, broker and API."""
    return case.rows(f"""
      select client_id, broker, api, count(*) as requests,
        count(distinct connection_id) as connections, min(request_bytes) as smallest_bytes,
        max(request_bytes) as largest_bytes, any_value(answered_bytes) as answered_bytes,
        max(wait_ms) as longest_ms, min(request_time) as first_time,
        max(request_time) as last_time, {first_packet()} as first_packet
      from {OVERSIZED} group by all order by requests desc, client_id, broker, api""")


def _oversized_finding(row: Row) -> Finding:
    name = row["client_id"]
    smallest, largest = size_text(row["smallest_bytes"]), size_text(row["largest_bytes"])
    sizes = smallest if smallest == largest else f"{smallest} to {largest}"
    return Finding(
        severity="critical",
        **of_client(row, "client_id api largest_bytes"),
        sentence=f"{row['broker']} closes the connection on large {row['api']} requests of "
        f"{client(name)}",
        evidence=f"{counted(row['requests'], 'request')} of {sizes} on "
        f"{counted(row['connections'], 'connection')} ended without a response within "
        f"{ms(row['longest_ms'])}. The largest request to which it responded has "
        f"{size_text(row['answered_bytes'])}.",
        cause="the requests are larger than socket.request.max.bytes of the broker or the limit of "
        "a proxy, so the records never arrive",
        side="broker",
        setting="socket.request.max.bytes",
        change="Raise it (100 MiB by default), or lower batch.size and max.request.size of the "
        "producer. The log of the broker has the InvalidReceiveException.",
        reference="Kafka documentation: Broker Configs, socket.request.max.bytes",
        command=SIZES,
        requests=row["requests"],
    )
