"""Connections that fail, and how, as SQL.

A host resets a connection attempt if no process listens on the port. If there is no reply at all,
the host is down or a firewall drops the packets. A broker that closes a connection within a second,
without sending a byte, did not understand what it received, or has too many connections. But it has
nothing to send to a producer with acks=0 that negotiates no versions, as before Kafka 0.10.2.

If the client did not send a byte either, it is not known which side ended the connection. But a
client that ends it, as health checks do, sends more packets than the broker: SYN, ACK, and FIN or
RST. So the broker ended it if it sent at least as many.

A health check or a scan may reset the connection after SYN and SYN/ACK. It sends one packet more
than it receives, although its connection did not fail. The same is true of a client that
retransmits a lost SYN and is then refused, but this client waits for at least a second before it
retransmits (RFC 6298).
"""

from __future__ import annotations

from typing import Final

from analysis.kafka.normal import SYN_TIMEOUT_MS
from analysis.sql.expressions import literals, ms_between
from analysis.sql.intermediate import intermediate_table
from dissector.problems import ABORTED, FAILED_HANDSHAKE

REFUSED: Final = "refused"
NO_REPLY: Final = "no reply"
CLOSED: Final = "closed before a response"
TLS: Final = "TLS: "
"""Beginning of the failure of TLS, before the reason."""

_ATTEMPT: Final = f"""
  opened and handshake_rtt_ms is null and client_bytes + broker_bytes = 0
    and case when broker_packets = 0 then closed is null and client_packets > 1
      else closed = 'rst' and (client_packets <= broker_packets
        or {ms_between("first_time", "last_time")} >= {SYN_TIMEOUT_MS}) end"""
"""SQL: whether a row of `connections` is a failed attempt: a reset, or a repeated SYN.
`Summary` counts the same connections while it reads."""

_CLOSED: Final = """
  opened and closed is not null and broker_packets > 0 and broker_bytes = 0
    and coalesce(broker_lost_bytes, 0) = 0
    and case when client_bytes > 0 then protocol = 'kafka' and connection_id not in (
        select connection_id from exchanges group by all
        having bool_and(coalesce(acks = 0, false)))
      else handshake_rtt_ms is not null and client_packets <= broker_packets end
    and epoch_ns(last_time) - epoch_ns(first_time) < 1e9"""
"""SQL: whether a row of `connections` ended before the broker sent any byte."""

_TLS_FAILURES: Final = f"""(
  select connection_id, arg_min(detail, nth) as detail from problems
  where kind in {literals((*FAILED_HANDSHAKE, ABORTED))} and starts_with(detail, 'TLS failed: ')
  group by all)"""

FAILURES: Final = intermediate_table("failures", f"""
  select connections.*,
    case when {_ATTEMPT} then case broker_packets when 0 then '{NO_REPLY}' else '{REFUSED}' end
      when {_CLOSED} then '{CLOSED}'
      else '{TLS}' || substr(split_part(detail, ' (sent by ', 1), 13) end as failure,
    case when ends_with(detail, ':' || broker_port || ')') then 'broker'
      when detail is not null then 'client' end as ended_by
  from connections left join {_TLS_FAILURES} using (connection_id)""")  # fmt: skip
"""SQL: connections, each with its failure, or null, and the side that ended TLS."""

_ACCEPTED: Final = f"""
  coalesce(failure not in ('{REFUSED}', '{NO_REPLY}'), true)
    and (handshake_rtt_ms is not null or broker_bytes > 0)"""
"""SQL: whether the endpoint accepted a connection."""

FAILED_ENDPOINTS: Final = intermediate_table("failed_endpoints", f"""
  with attempts as (from {FAILURES}),
  known as (from attempts where protocol in ('kafka', 'tls')),
  working as (
    select broker_ip, broker_port,
      max(first_time) filter ({_ACCEPTED}) as accepted_time,
      max(first_time) filter (failure is null and broker_bytes > 0) as served_time,
      count(*) filter (failure is null and client_bytes > 0 and broker_bytes > 0) as served
    from attempts group by all),
  failed as (
    select attempts.*, served,
      case when failure in ('{REFUSED}', '{NO_REPLY}') then accepted_time else served_time end
        as worked_time
    from attempts join working using (broker_ip, broker_port)
    where failure is not null and (client_bytes + broker_bytes > 0
      or broker_port in (select broker_port from known) or not exists (from known)
      or (broker_ip, broker_port) in (select (trim(host, '[]'), port) from brokers))
    and (failure != '{NO_REPLY}'
      or not exists (from known where opened and (client_packets = 0 or broker_packets = 0))))
  select *, coalesce(first_time > worked_time, true) as is_after from failed""")  # fmt: skip
"""SQL: failed connections to brokers, and whether they came after the last one that worked.

These are endpoints whose port is used by a Kafka connection of the capture or by an endpoint in
`brokers`, and all endpoints if the capture has no Kafka connection. A missing reply proves nothing
if the capture contains only one direction of the connections that begin in it. Connections that
began earlier do not show whether this is so, because their broker may be down.
"""

OUTAGES: Final = f"""(
  with accepted as (
    select broker_ip, broker_port, first_time as end_time from {FAILURES} where {_ACCEPTED})
  select failed.broker_ip, failed.broker_port, failure, end_time, count(*) as connections,
    min(first_time) as first_time, max(first_time) as last_time,
    {ms_between("min(first_time)", "max(first_time)")} as lasts_ms
  from {FAILED_ENDPOINTS} as failed asof left join accepted
    on failed.broker_ip = accepted.broker_ip and failed.broker_port = accepted.broker_port
      and failed.first_time < accepted.end_time
  where failure in ('{REFUSED}', '{NO_REPLY}') group by all)"""
"""SQL: the failed attempts between two connections that an endpoint accepted. `end_time` is the
time of the second one, or null."""
