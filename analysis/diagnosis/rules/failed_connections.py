"""Connections: an endpoint refuses them, does not reply, or closes them before it responds.

A host resets a connection attempt if no process listens on the port: the broker is down, or the
client has a wrong address. If there is no reply at all, the host is down or a firewall drops the
packets. In both cases, clients retry and report no error until a timeout.

The rule examines endpoints whose port is used by a Kafka connection of the capture or by an
endpoint in `brokers`, and all endpoints if the capture has no Kafka connection. A health check or a
scan may reset the connection after SYN and SYN/ACK. It sends one packet more than it receives,
although its connection did not fail. The same is true of a client that retransmits a lost SYN and
is then refused, but this client waits for at least a second before it retransmits (RFC 6298).

A missing reply proves nothing if the capture contains only one direction of the connections that
begin in it. Connections that began earlier do not show whether this is so, because their broker may
be down.

A broker that closes a connection within a second, without sending a byte, did not understand what
it received, or has too many connections.

A broker that is down disappears from Metadata when its session ends. If responses still contain its
address, or only addresses that fail, the broker is running but advertises a wrong address.

A client that gets broker addresses but keeps requesting them cannot reach the brokers. If it cannot
resolve their host names, the capture contains no connection attempt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from analysis.diagnosis.advertised import (
    address,
    unreached_brokers,
    wrong_address,
    wrong_addresses,
)
from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import (
    BROKER,
    CRITICAL,
    NETWORK,
    WARNING,
    Finding,
    Limits,
    Threshold,
    rule,
)
from analysis.diagnosis.words import cells, ms, sql
from analysis.display.terminal import counted
from analysis.kafka.normal import SYN_TIMEOUT_MS
from analysis.sql.expressions import endpoint, ms_between
from analysis.sql.query import Row

FAILED: Final = f"""
  opened and handshake_rtt_ms is null and client_bytes + broker_bytes = 0
    and case when broker_packets = 0 then closed is null and client_packets > 1
      else closed = 'rst' and (client_packets <= broker_packets
        or {ms_between("first_time", "last_time")} >= {SYN_TIMEOUT_MS}) end"""
"""SQL: whether a row of `connections` is a failed attempt: a reset, or a repeated SYN.
`Summary` counts the same connections while it reads."""

QUERY: Final = f"""
  with attempts as (select *, coalesce({FAILED}, false) as failed from connections),
  known as (from attempts where protocol in ('kafka', 'tls')),
  accepted as (
    select broker_ip, broker_port, max(first_time) as accepted_time from attempts
    where not failed and (handshake_rtt_ms is not null or broker_bytes > 0) group by all)
  select {endpoint("broker")} as broker, broker_ip, broker_port, broker_packets > 0 as refused,
    count(*) as connections, count(distinct client_ip) as hosts, min(first_time) as first_time,
    max(first_time) as last_time, any_value(accepted_time) as accepted_time,
    count(*) filter (accepted_time is null or first_time > accepted_time) as since_accepted,
    min(first_time) filter (accepted_time is null or first_time > accepted_time) as down_time
  from attempts left join accepted using (broker_ip, broker_port)
  where failed
    and (broker_port in (select broker_port from known) or not exists (from known)
      or (broker_ip, broker_port) in (select (trim(host, '[]'), port) from brokers))
    and (broker_packets > 0
      or not exists (from known where opened and (client_packets = 0 or broker_packets = 0)))
  group by all order by connections desc, broker, refused"""
"""SQL: endpoints with failed connections: how many, and how many since the last accepted one."""

COMMAND: Final = sql(f"""
  select broker_ip, broker_port, broker_packets > 0 as refused, count(*) as connections,
    count(distinct client_ip) as hosts from connections where {FAILED} group by all""")

DROPPED: Final = """
  opened and closed is not null and protocol = 'kafka' and client_bytes > 0
    and broker_packets > 0 and broker_bytes = 0 and coalesce(broker_lost_bytes, 0) = 0
    and epoch_ns(last_time) - epoch_ns(first_time) < 1e9"""
"""SQL: whether a row of `connections` ended before the broker sent any byte. The rule
`failed_handshakes` reports those that use TLS."""

DROPPED_QUERY: Final = f"""
  with attempts as (
    select *, coalesce({DROPPED}, false) as dropped from connections where protocol = 'kafka'),
  served as (
    select broker_ip, broker_port, max(first_time) as served_time, count(*) as served
    from attempts where broker_bytes > 0 group by all)
  select {endpoint("broker")} as broker, broker_ip, broker_port,
    count(*) as connections, count(distinct client_ip) as hosts, min(first_time) as first_time,
    max(first_time) as last_time, coalesce(any_value(served), 0) as served,
    count(*) filter (served_time is null or first_time > served_time) as since_served
  from attempts left join served using (broker_ip, broker_port)
  where dropped group by all order by connections desc, broker"""
"""SQL: endpoints that close connections before they send any byte."""

DROPPED_COMMAND: Final = sql(f"""
  select broker_ip, broker_port, count(*) as connections, count(distinct client_ip) as hosts
  from connections where {DROPPED} group by all""")


@rule(
    question="Do connections to a broker fail?",
    place=0,
    rests_on="connections brokers",
    thresholds=(
        Threshold("connections", 3, "connections", "Connections that failed since the endpoint "
                  "last accepted one. One or two occur when a process stops."),
        Threshold("recovered_ms", 10_000, "ms", "For an endpoint that accepts "
                  "connections again: the time from the first failure to the last. A broker "
                  "starts in a few seconds."),
        Threshold("lookups", 10, "requests", "Responses with broker addresses to a client "
                  "that sends no other requests: a client needs two or three."),
        Threshold("lookup_ms", 2_000, "ms", "The mean time between these requests: clients "
                  "retry at least once a second, and health checks send them less often."),
    ),
)  # fmt: skip
def failed_connections(case: Case, limits: Limits) -> Iterator[Finding]:
    """Endpoints that fail; if there is none, clients that do not connect to any."""
    rows = [*_unreachable(case, limits), *_dropped(case, limits)]
    yield from rows or unreached_brokers(case, limits)


def _unreachable(case: Case, limits: Limits) -> Iterator[Finding]:
    """Endpoints that refuse connections, or do not reply."""
    rows = case.rows(QUERY)
    wrong = wrong_addresses(case, rows)
    for row in rows:
        lasts_ms = (row["last_time"] - row["first_time"]) / 1e6
        is_down = row["since_accepted"] >= limits["connections"]
        has_recovered = not row["since_accepted"] and row["connections"] >= limits["connections"]
        if is_down or (has_recovered and lasts_ms >= limits["recovered_ms"]):
            finding = _finding(row, lasts_ms, is_down=is_down)
            is_wrong = is_down and address(row) in wrong
            yield wrong_address(finding, row) if is_wrong else finding


def _finding(row: Row, lasts_ms: float, *, is_down: bool) -> Finding:
    broker, is_refused = row["broker"], row["refused"]
    doing = "refuses connections" if is_refused else "does not reply to connection attempts"
    after = "It accepted no connection in the capture."
    if not is_down:
        doing = f"{'refused connections' if is_refused else 'did not reply'} for {ms(lasts_ms)}"
        after = "It accepts connections again."
    elif row["accepted_time"] is not None:
        count = counted(row["since_accepted"], "attempt")
        after = f"{count} came after the last connection that it accepted."
    return Finding(
        severity=CRITICAL if is_down else WARNING,
        subject=f"broker {broker}",
        sentence=f"{broker} {doing}",
        evidence=f"{counted(row['connections'], 'attempt')} from {counted(row['hosts'], 'host')} "
        f"within {ms(lasts_ms)} ended "
        + ("with a reset (RST) instead of a handshake. " if is_refused
           else "without any packet from the other side. ") + after,
        numbers=cells(row, "broker_ip broker_port refused connections hosts"),
        cause="no process listens on this port: the broker is down or restarts, or the address is "
        "wrong" if is_refused
        else "the host is down, or a firewall, security group or route drops the packets",
        side=BROKER if is_refused else NETWORK,
        setting="listeners" if is_refused else None,
        change="Look at the broker's log, and start the broker. If it moved or was retired, "
        "correct bootstrap.servers of the clients and advertised.listeners of the broker."
        if is_refused
        else "Check the host and the path to it from a client: nc -vz HOST PORT. If the broker "
        "moved, correct bootstrap.servers of the clients and advertised.listeners of the broker.",
        reference=f"RFC 9293, section {'3.5.2' if is_refused else '3.8.3'}",
        command=COMMAND,
        first_time=row["first_time"],
        last_time=row["last_time"],
    )  # fmt: skip


def _dropped(case: Case, limits: Limits) -> Iterator[Finding]:
    """Endpoints that close connections before they send any byte."""
    for row in case.rows(DROPPED_QUERY):
        lasts_ms = (row["last_time"] - row["first_time"]) / 1e6
        is_lasting = row["since_served"] >= limits["connections"]
        if is_lasting or (
            row["connections"] >= limits["connections"] and lasts_ms >= limits["recovered_ms"]
        ):
            yield _dropped_finding(row, lasts_ms, is_lasting=is_lasting)


def _dropped_finding(row: Row, lasts_ms: float, *, is_lasting: bool) -> Finding:
    broker = row["broker"]
    return Finding(
        severity=CRITICAL if is_lasting else WARNING,
        subject=f"broker {broker}",
        sentence=f"{broker} closes new connections without a response",
        evidence=f"{counted(row['connections'], 'connection')} from "
        f"{counted(row['hosts'], 'host')} within {ms(lasts_ms)} ended at once after the first "
        f"request. {row['served']:,} other connections of the capture got a response.",
        numbers=cells(row, "broker_ip broker_port connections hosts"),
        cause="a limit of connections is reached, the listener expects TLS, or a proxy has no "
        "broker behind it",
        side=BROKER,
        setting="max.connections.per.ip",
        change="Look for the reason in the broker's log. Compare max.connections.per.ip and "
        "max.connections with its open connections, and security.protocol of the clients with its "
        "listener.",
        reference="KIP-308, KIP-402",
        command=DROPPED_COMMAND,
        requests=row["connections"],
        first_time=row["first_time"],
        last_time=row["last_time"],
    )
