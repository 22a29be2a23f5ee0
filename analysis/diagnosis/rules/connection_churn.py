"""Connections: a client keeps opening new connections.

A client keeps one or two connections to each broker, and closes idle ones after
`connections.max.idle.ms` (9 minutes by default). A new connection costs TCP, TLS and SASL
handshakes, and ApiVersions and Metadata requests, before the first useful request. Hosts that share
a client id count as separate clients. An application may also give each of its client objects
another client id, with a number in it.

If most of its connections carried nothing for a second before they were closed, they were closed
because they were idle, and not because the application ended.

Other rules report reconnects with a known cause:

- `no_response`: a request that is too large, a client that does not wait long enough for a
  response, or one that does not authenticate;
- `failed_connections`: a broker that closes connections at once, or a client that cannot connect to
  the advertised addresses and asks for them on new connections (KIP-899);
- `failed_handshakes`: a client that does not use TLS as its listener does;
- `recurring_errors` and `fenced_producers`: a client that restarts after each fatal error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import pyarrow.compute as pc

from analysis.diagnosis.case import Case
from analysis.diagnosis.causes.advertised import LOOKUP, PREPARING
from analysis.diagnosis.causes.corrupt_batches import CORRUPT
from analysis.diagnosis.causes.no_offset import WITHOUT_OFFSET
from analysis.diagnosis.causes.sessions import unauthenticated_clients
from analysis.diagnosis.causes.short_timeouts import short_timeouts
from analysis.diagnosis.rule import DECLARED, Finding, Limits, Threshold, rule
from analysis.diagnosis.rules.no_response import oversized_requests
from analysis.diagnosis.words import (
    Advice,
    addresses,
    capital,
    cells,
    client,
    clients,
    listed,
    ms,
    of_ends,
    rows_by,
    sql,
)
from analysis.display.terminal import counted
from analysis.sql.expressions import CLIENT_IDS, IS_NORMAL, literals, ms_between
from analysis.sql.failures import FAILED_ENDPOINTS, FAILURES, NO_REPLY, REFUSED
from analysis.sql.query import Row

OPENED: Final = f"""
  select coalesce(client_id, '') as client_id, client_ip,
    min(first_time) as first_time, max(first_time) as last_time
  from connections left join {CLIENT_IDS} using (connection_id)
  where opened and protocol = 'kafka' group by all"""
"""SQL: the times at which each client opened its first and its last connection."""

SHORT_S: Final = 10
"""Clients that end within this time did little besides connecting."""

SHORT_LIVED: Final = rf"""
  with clients as (
    select client_ip, client_id, count(*) as connections, sum(requests) as requests,
      min(first_time) as first_time, max(last_time) as last_time
    from connections join {CLIENT_IDS} using (connection_id)
    where protocol = 'kafka' and client_id != '' group by all
    having bool_and(opened and closed is not null)
      and epoch_ns(max(last_time)) - epoch_ns(min(first_time)) <= {SHORT_S}e9)
  select client_ip, regexp_replace(client_id, '\w*\d\w*', '#', 'g') as pattern,
    count(*) as clients, sum(connections)::bigint as connections,
    sum(requests)::bigint as requests, quantile_disc(client_id, [0.25, 0.5, 0.75]) as examples,
    min(first_time) as first_time, max(last_time) as last_time
  from clients group by client_ip, pattern having count(*) >= {{clients}}
  order by clients desc, client_ip, pattern"""
"""SQL: the clients of each host whose ids differ in their numbers only, and which closed all of
their connections soon; `clients`: at least so many."""

SHORT_COMMAND: Final = sql("""
  select client_ip, client_id, min(request_time) as first_time, max(response_time) as last_time,
    count(distinct connection_id) as connections, count(*) as requests
  from exchanges group by client_ip, client_id order by first_time""")

FAILED: Final = f"""
  select client_id, client_ip, count(*) as connections
  from {FAILURES} join {CLIENT_IDS} using (connection_id)
  where failure is not null group by all"""
"""SQL: connections that the broker closed at once, and those whose TLS failed."""

AFTER_ERROR: Final = f"""
  with ends as (
    select client_id, client_ip, connection_id, last_time
    from connections join {CLIENT_IDS} using (connection_id) where closed is not null),
  failures as (
    select client_id, client_ip, time from errors where not retriable and not {IS_NORMAL}
    union all select client_id, client_ip, time from {WITHOUT_OFFSET}
    union all select client_id, client_ip, time from {CORRUPT})
  select ends.client_id, ends.client_ip, count(*) as connections
  from ends asof join failures
    on ends.client_id is not distinct from failures.client_id
      and ends.client_ip = failures.client_ip and ends.last_time >= failures.time
  where epoch_ns(last_time) - epoch_ns(time) < 1e9 group by all"""
"""SQL: connections that the client closed because of an error, on this or another connection, or
because its group has no offset, or of a batch with a wrong checksum."""

WITHOUT_BROKER: Final = f"""
  with lookups as (
    select connection_id, any_value(client_id) as client_id from exchanges group by connection_id
    having bool_and({LOOKUP} or api in {literals(PREPARING)})),
  attempts as (
    select client_ip, first_time as attempt_time from {FAILED_ENDPOINTS}
    where failure in ('{REFUSED}', '{NO_REPLY}'))
  select client_id, links.client_ip, count(*) as connections
  from (connections join lookups using (connection_id)) as links asof join attempts
    on links.client_ip = attempts.client_ip and links.first_time <= attempt_time
  where epoch_ns(attempt_time) - epoch_ns(last_time) < 1e9 group by all"""
"""SQL: connections on which a client only asked for addresses, while its host tried in vain to
connect to a broker."""


IDLE_MS: Final = 1000
"""A client that ends closes its connections soon after the last response."""

IDLE: Final = f"""
  with ends as (
    select connection_id, coalesce(client_id, '') as client_id, client_ip,
      max(greatest(response_end_time, request_end_time)) as end_time,
      {ms_between("end_time", "any_value(last_time)")} as idle_ms
    from exchanges join (
      select connection_id, last_time from connections where closed = 'fin') using (connection_id)
    group by all having not bool_or(status = 'unanswered'))
  select client_id, client_ip, count(*) as connections, median(idle_ms) as idle_ms
  from ends where idle_ms >= {IDLE_MS} group by all"""
"""SQL: the connections of each client that were idle before they were closed."""

_CLOSED_IDLE: Final = Advice(
    "idle connections are closed by the broker, a proxy, a firewall or the client itself, before "
    "the client needs them again",
    "broker", "connections.max.idle.ms",
    "Raise connections.max.idle.ms of the broker (10 min by default) and of the client (9 min), "
    "and the idle timeouts of proxies, above the pauses between the requests of the client.",
    "Kafka documentation: Broker Configs, connections.max.idle.ms",
)  # fmt: skip
_REOPENED: Final = Advice(
    "the application creates a client object for each operation or restarts all the time, or a "
    "proxy or firewall closes its connections",
    "client", None,
    "Create one producer or consumer, and reuse it. If connections end with a reset, look at "
    "timeouts of proxies and firewalls, and at the logs of the client.",
    "Kafka documentation: Producer Configs, connections.max.idle.ms",
)  # fmt: skip


@rule(
    question="Does a client reconnect all the time?",
    place=13,
    rests_on="leadership connections",
    thresholds=(
        Threshold("reconnects", 20, "connections", "Connections to a broker to which the client "
                  "had connected before. A restart of a broker or of the client causes a few."),
        Threshold("per_minute", 10, "connections/min", "Reconnects of the client per minute "
                  "between its first request and last message: below this rate, handshakes are a "
                  "small part of the load."),
    ),
)  # fmt: skip
def connection_churn(case: Case, limits: Limits) -> Iterator[Finding]:
    """Clients that reconnect often, by the answer `leadership`, and hosts with many short ones."""
    least = max(limits["reconnects"], 1)
    for row in case.rows(SHORT_LIVED.format(clients=least)):
        minutes = max(row["last_time"] - row["first_time"], 1) / 60e9
        if row["clients"] / minutes >= limits["per_minute"]:
            yield _short_lived(row)
    churning = []
    for row in case.answer_where("leadership --show clients", pc.field("reconnects") >= least):
        host = case.hosts.get((row["client_id"], row["client_ip"]))
        if host is None:
            continue
        span_ms = max(host["span_ms"], 1)
        if row["reconnects"] / (span_ms / 60_000) >= limits["per_minute"]:
            churning.append(row | {"requests": host["requests"], "span_ms": span_ms})
    explained = _explained(case) if churning else {}
    unexplained = [
        row | case.matching(OPENED, row, "client_id client_ip")[0] for row in churning
        if 2 * sum(explained.get((row["client_id"] or None, host), 0)
                   for host in (row["client_ip"], None)) < row["reconnects"]
    ]  # fmt: skip
    if unexplained:
        idle = [each for row in unexplained for each in _idle(case, row)]
        yield _finding(sorted(unexplained, key=lambda row: -row["reconnects"]), idle)


def _idle(case: Case, row: Row) -> list[Row]:
    """The row of `IDLE` about a client, if it concerns most of its connections."""
    key = row | {"client_id": row["client_id"] or ""}
    rows = case.matching(IDLE, key, "client_id client_ip")
    return [each for each in rows if 2 * each["connections"] >= row["connections"]]


def _explained(case: Case) -> Counter[tuple[str | None, str | None]]:
    """The connections that ended because of another problem, by client id, and by its address if
    it is known."""
    counts: Counter[tuple[str | None, str | None]] = Counter()
    for row in (
        *oversized_requests(case), *unauthenticated_clients(case),
        *case.rows(FAILED), *case.rows(AFTER_ERROR), *case.rows(WITHOUT_BROKER),
        *short_timeouts(case, DECLARED["no_response"].limits["requests"]),
    ):  # fmt: skip
        counts[row["client_id"] or None, row.get("client_ip")] += row["connections"]
    return counts


def _finding(rows: list[Row], idle: list[Row]) -> Finding:
    """The finding for clients that reconnect, that with the most reconnects first.

    `rows`: of the answer, with the columns of `OPENED`, and the requests and span of the client.
    `idle`: of `IDLE`, for some of the clients.
    """
    row, names = rows[0], [*rows_by(rows, "client_id")]
    connections, reconnects, resets, requests = (
        sum(row[name] for row in rows)
        for name in ("connections", "reconnects", "resets", "requests")
    )
    hosts = addresses((row["client_ip"] for row in rows), "hosts")
    is_idle = len(idle) == len(rows)
    ended = (
        f"{counted(sum(row['connections'] for row in idle), 'connection')} carried no message for "
        f"{ms(min(row['idle_ms'] for row in idle))} (median) or longer before they were closed"
        if is_idle else f"Connections that ended with a reset: {resets:,}"
    )  # fmt: skip
    most = f" Most: {client(row['client_id'])} on {row['client_ip']}, with {row['reconnects']:,}."
    return Finding(
        severity="warning",
        **of_ends(rows, "client_id client_ip connections reconnects resets"),
        sentence=f"{capital(clients(names))} on {hosts} opened {connections:,} connections in "
        f"{max(row['span_ms'] for row in rows) / 1000:,.0f} s",
        evidence=f"Reconnects: {reconnects:,}.{most if len(rows) > 1 else ''} {ended}. "
        f"Requests: {requests:,}, {requests / connections:,.1f} for each connection.",
        command="leadership --show clients",
        requests=requests,
        **(_CLOSED_IDLE if is_idle else _REOPENED)._asdict(),
    )


def _short_lived(row: Row) -> Finding:
    """The finding for a row of `SHORT_LIVED`."""
    names, requests = listed(f"`{name}`" for name in row["examples"]), row["requests"]
    return Finding(
        severity="warning",
        subject=f"host {row['client_ip']}",
        sentence=f"{row['clients']:,} clients on {row['client_ip']}, each with another client id, "
        f"opened {row['connections']:,} connections and closed them within {SHORT_S} s",
        evidence=f"For example {names}. Requests: {requests:,}, "
        f"{requests / row['connections']:,.1f} for each connection.",
        numbers=cells(row, "client_ip clients connections requests"),
        cause="the application creates a client object for each operation, or each of its "
        "processes ends after one",
        side="client",
        change="Create one producer or consumer, and reuse it. A process that ends after one "
        "operation, such as a script or a function, may send its records to one that does not.",
        reference="Kafka documentation: Producer Configs, connections.max.idle.ms",
        command=SHORT_COMMAND,
        requests=requests,
        first_time=row["first_time"],
        last_time=row["last_time"],
    )
