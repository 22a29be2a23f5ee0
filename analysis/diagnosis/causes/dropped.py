"""Connections that a device on the path drops, for the rule `no_response`.

Firewalls, NAT gateways and load balancers forget connections that are idle. Some then reset both
ends. Others reply to the next packet with a reset, or drop it, so that its sender retransmits it
until it gives up. Kafka's clients and brokers close an idle connection with FIN. So a device
dropped a connection if no other one between these hosts was idle for as long and continued. Resets
count if they come after the same time: a process that is killed may also reset its connections.

If large packets do not fit through the path, and the sender does not learn it, it retransmits them
in vain, while smaller ones arrive (RFC 2923). A capture at the receiver then has bytes missing, but
not because it dropped packets: the receiver does not respond either.
"""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import Final

from analysis.answers.unanswered import TIMEOUT_MS
from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding
from analysis.diagnosis.words import Advice, ends, ms, of_ends, sql, verb
from analysis.display.terminal import counted, size_text
from analysis.sql.expressions import endpoint, ms_between
from analysis.sql.query import Row

IDLE_MS: Final = 1000
"""Shorter pauses occur between any requests. Devices on the path wait for minutes."""

RETRANSMITTED: Final = 3
"""Retransmissions of a packet without success take 1.4 s (RFC 6298; Linux starts with 200 ms)."""

SMALL_BYTES: Final = 1000
"""Any path carries packets of this size: the minimum of IPv6 is 1,280 bytes (RFC 8200)."""

HOLES: Final = "connections with holes"
"""The flaw in the answer `quality`."""
LEAST: Final = 3
"""Connections: the end of a few may also be missing from a capture that drops packets."""

IDLE, LARGE = "idle", "large"
RESET, LATE_RESET, SILENCE, MISSING = "reset", "late reset", "silence", "missing"

_ACTIVE: Final = "max(greatest(response_end_time, request_end_time))"

DROPPED: Final = f"""
  with requests as (
    select *, {ms_between(f"{_ACTIVE} over earlier", "request_time")} as idle_ms
    from exchanges where request_time is not null
    window earlier as (partition by connection_id order by request_time, nth
      rows between unbounded preceding and 1 preceding)),
  paths as (
    select client_ip, broker_ip, broker_port, max(response_time) as working_time,
      coalesce(max(idle_ms) filter (status = 'answered'), 0) as longest_idle_ms,
      coalesce(max(request_bytes) filter (status = 'answered'), 0) as answered_bytes
    from requests group by all),
  lost as (
    select connection_id, min(request_time) as lost_time, min(request_end_time) as lost_end_time,
      arg_min(idle_ms, nth) as lost_idle_ms, arg_min(request_bytes, nth) as lost_bytes,
      list(distinct api) as apis, count(*) as lost_requests
    from requests where status = 'unanswered' group by all),
  active as (
    select connection_id, any_value(client_id) as client_id, {_ACTIVE} as active_time,
      max(response_time) as response_time
    from exchanges group by all),
  ended as (
    select * replace (coalesce(lost_time, last_time) as first_time),
      {ms_between("lost_end_time", "last_time")} as wait_ms,
      coalesce(lost_idle_ms, {ms_between("active_time", "last_time")}) as idle_ms,
      case when closed = 'rst' and lost_time is null then '{RESET}'
        when closed = 'rst' and wait_ms < {TIMEOUT_MS} then '{LATE_RESET}'
        when client_retransmitted >= {RETRANSMITTED} and wait_ms >= {TIMEOUT_MS}
          and working_time > lost_time and coalesce(broker_zero_windows, 0) = 0 then '{SILENCE}'
        end as how
    from connections join active using (connection_id)
      join paths using (client_ip, broker_ip, broker_port) left join lost using (connection_id)
    where coalesce(response_time <= lost_time, true) and client_packets > 0 and broker_packets > 0
      and coalesce(client_lost_bytes, 0) + coalesce(broker_lost_bytes, 0) = 0)
  select *, {endpoint("broker")} as broker,
    case when idle_ms > greatest({IDLE_MS}, longest_idle_ms) then '{IDLE}'
      when how = '{SILENCE}' and lost_bytes > greatest({SMALL_BYTES}, answered_bytes) then '{LARGE}'
      end as cause
  from ended where how is not null and cause is not null order by first_time, connection_id"""
"""SQL: connections that ended because of a device on the path, with the cause. A request that gets
no response counts if the connection has no later one, and if others between the hosts have."""

NOT_ARRIVED: Final = f"""
  with paths as (
    select client_ip, broker_ip, broker_port, max(response_time) as working_time,
      max(request_bytes) as answered_bytes
    from exchanges where status = 'answered' group by all),
  active as (
    select connection_id, any_value(client_id) as client_id, max(response_time) as response_time
    from exchanges group by all),
  holes as (
    select connection_id, min(time) as hole_time from problems where kind = 'lost_bytes'
    group by all),
  ended as (
    select *, case when closed is null then max(last_time) over () else last_time end as end_time
    from connections)
  select client_id, {endpoint("broker")} as broker, connection_id, '{MISSING}' as how,
    '{LARGE}' as cause, client_lost_bytes as lost_bytes, answered_bytes, client_retransmitted,
    {ms_between("hole_time", "end_time")} as wait_ms, 0 as idle_ms, 0 as lost_requests,
    []::varchar[] as apis, hole_time as first_time, end_time as last_time
  from ended join holes using (connection_id) join active using (connection_id)
    join paths using (client_ip, broker_ip, broker_port)
  where client_lost_bytes > greatest({SMALL_BYTES}, answered_bytes)
    and coalesce(broker_lost_bytes, 0) = 0 and wait_ms >= {TIMEOUT_MS}
    and coalesce(response_time <= hole_time, true) and working_time > hole_time
  qualify count(*) over (partition by client_ip, broker_ip, broker_port) >= {LEAST}
  order by first_time, connection_id"""
"""SQL: connections of which bytes of the client did not arrive, as the rows of `DROPPED`. After
these, the broker responded on other connections of this client only."""

TRUNCATING: Final = Advice(
    "the path drops large packets, and the sender does not learn it: an interface, a tunnel or a "
    "VPN has a smaller MTU, and a firewall drops the ICMP messages about it",
    "network", None,
    "Compare the MTU of the interfaces on the path: ping -M do -s 1472 HOST shows whether packets "
    "of 1,500 bytes arrive. Let ICMP messages pass (type 3, code 4; ICMPv6 type 2), lower the MTU "
    "of the senders, or limit the MSS at the tunnel.",
    "RFC 2923, section 2.1; RFC 1191; RFC 8201",
)  # fmt: skip
FORGETTING: Final = Advice(
    "a firewall, NAT gateway or load balancer drops connections that are idle for this time",
    "network", None,
    "Raise the idle timeout of this device above connections.max.idle.ms of the clients (9 min by "
    "default), or lower connections.max.idle.ms below it, so that clients close the connections.",
    "Kafka documentation: Producer Configs, connections.max.idle.ms; RFC 5382, section 5",
)  # fmt: skip

COMMAND: Final = sql("""
  select client_id, connection_id, connections.closed, client_retransmitted,
    max(greatest(request_end_time, response_end_time)) as last_message_time,
    connections.last_time as last_packet_time
  from exchanges join connections using (connection_id) group by all order by all""")


def missing_requests(case: Case) -> list[Row]:
    """The rows of `NOT_ARRIVED`."""
    has_holes = any(row["flaw"] == HOLES and row["count"] for row in case.answer("quality"))
    return case.rows(NOT_ARRIVED) if has_holes else []


def dropped_connections(case: Case) -> list[Row]:
    """The rows of `DROPPED` and `NOT_ARRIVED`. Resets of idle connections have about the same idle
    time."""
    rows = case.rows(DROPPED)
    resets = [row["idle_ms"] for row in rows if row["how"] == RESET]
    usual = median(resets) if resets else 0
    return missing_requests(case) + [
        row for row in rows if row["how"] != RESET or abs(row["idle_ms"] - usual) <= usual / 10
    ]  # fmt: skip


def dropped_finding(rows: list[Row]) -> Finding:
    """A finding for connections of one client, or to one broker, with one cause."""
    is_idle = rows[0]["cause"] == IDLE
    return (_idle_finding if is_idle else _large_finding)(sorted(rows, key=lambda r: r["idle_ms"]))


def _idle_finding(rows: list[Row]) -> Finding:
    (name, broker), shortest, longest = ends(rows), rows[0]["idle_ms"], rows[-1]["idle_ms"]
    number = Counter(row["how"] for row in rows)
    waits = [row["wait_ms"] for row in rows if row["how"] == SILENCE]
    resets, late = (
        f"{counted(number[how], 'connection')} {verb(number[how], 'were')} reset (RST)"
        for how in (RESET, LATE_RESET)
    )
    texts = {
        RESET: f"{resets} while idle.",
        LATE_RESET: f"{late} at the next request.",
        SILENCE: f"On {counted(len(waits), 'connection')}, the next request got no reply, although "
        f"the client sent it again for up to {ms(max(waits, default=0))}.",
    }
    times = ms(shortest) + f" to {ms(longest)}" * (ms(longest) != ms(shortest))
    kept_ms = max(row["longest_idle_ms"] for row in rows)
    return Finding(
        severity="warning",
        **of_ends(rows, "client_id broker closed idle_ms longest_idle_ms client_retransmitted"),
        sentence=f"Idle connections of {name} to {broker} are dropped"
        + f" after {ms(shortest)}" * (number[RESET] == len(rows)),
        evidence=" ".join(text for how, text in texts.items() if number[how])
        + f" They had been idle for {times}. No connection between these hosts continued after "
        f"more than {ms(kept_ms)} without a message.",
        command=COMMAND,
        requests=sum(row["lost_requests"] or 0 for row in rows),
        **FORGETTING._asdict(),
    )


def _large_finding(rows: list[Row]) -> Finding:
    name, broker = ends(rows)
    apis = sorted({api for row in rows for api in row["apis"]})
    smallest, longest = min(row["lost_bytes"] for row in rows), max(row["wait_ms"] for row in rows)
    evidence = (
        f"{counted(len(rows), 'connection')} got no reply to a request of {size_text(smallest)} or "
        f"more, although the client sent its packets again for up to {ms(longest)}."
    )
    if rows[0]["how"] == MISSING:
        evidence = (
            f"On {counted(len(rows), 'connection')}, {size_text(smallest)} or more did not arrive, "
            f"but later bytes did. The broker responded to nothing for up to {ms(longest)}."
        )
    return Finding(
        severity="critical",
        **of_ends(rows, "client_id broker lost_bytes answered_bytes client_retransmitted"),
        sentence=f"Large requests of {name} do not arrive at {broker}"
        + f" ({', '.join(apis)})" * bool(apis),
        evidence=f"{evidence} The largest request that got a response has "
        f"{size_text(max(row['answered_bytes'] for row in rows))}.",
        command=COMMAND,
        requests=sum(row["lost_requests"] for row in rows),
        **TRUNCATING._asdict(),
    )
