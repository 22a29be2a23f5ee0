"""Round trips to a broker that grow during the capture, for the rules `network_time` and
`slow_broker`.

Handshakes show the round trip at the start of a connection only. Later, no response is faster than
it. Disks, followers and pauses delay some requests more than others. So the network is the cause if
the quickest response of each second takes much longer than before, and equally long in all seconds.
If a broker pauses for more than a second again and again, responses between the pauses are quick.
A broker that a quota throttles may delay its responses by an equal time (before KIP-219).
"""

from __future__ import annotations

from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding
from analysis.diagnosis.words import addresses, cells, known, listed, ms, span_of
from analysis.display.terminal import counted
from analysis.sql.expressions import endpoint, first_packet
from analysis.sql.intermediate import intermediate_table
from analysis.sql.latency_breakdown import exchanges_with_parts
from analysis.sql.query import Row

LEAST_MS: Final = 10
"""The shortest round trip that has grown: it leaves the region, or passes a full queue."""
TIMES_QUICKEST: Final = 4
"""A round trip has grown if it is this many times the quickest response of the capture."""
STEADY: Final = 0.2
"""The largest difference of the 0.9 and 0.1 quantiles of the quickest responses, as a share of
their median."""
LEAST_REQUESTS: Final = 5
"""Requests of a second with a quickest response."""
LEAST_SECONDS: Final = 5
"""Such seconds of a broker."""

GROWN: Final = intermediate_table("grown_round_trips", f"""
  with seconds as (
    select {endpoint("broker")} as broker, epoch_ns(request_time) // 1000000000 as second,
      min(latency_ms) as rtt_ms, count(*) as requests, list(distinct client_id) as client_ids,
      {first_packet()} as first_packet, min(request_time) as first_time,
      max(response_time) as last_time
    from {exchanges_with_parts()}
    where latency_ms is not null and poll_ms = 0 and coalesce(throttle_time_ms, 0) = 0
    group by all having count(*) >= {LEAST_REQUESTS}),
  usual as (select broker, min(rtt_ms) as usual_ms from seconds group by all),
  numbered as (
    select *, row_number() over (partition by broker order by second) as nth
    from seconds join usual using (broker)),
  grown as (
    from numbered
    where rtt_ms >= greatest({LEAST_MS}, {TIMES_QUICKEST} * usual_ms)),
  steady as (
    select broker from grown group by all
    having count(*) >= {LEAST_SECONDS} and 2 * count(*) > max(nth) - min(nth)
      and quantile_cont(rtt_ms, 0.9) - quantile_cont(rtt_ms, 0.1) <= {STEADY} * median(rtt_ms))
  from grown semi join steady using (broker)""")  # fmt: skip
"""SQL: the seconds in which the round trip to a broker has grown."""

_BROKERS: Final = f"""
  select broker, count(*) as seconds, any_value(usual_ms) as usual_ms, median(rtt_ms) as rtt_ms,
    sum(requests)::bigint as requests,
    list_sort(list_distinct(flatten(list(client_ids)))) as client_ids,
    arg_min(first_packet, first_time) as first_packet, min(first_time) as first_time,
    max(last_time) as last_time
  from {GROWN} group by all order by rtt_ms desc, broker"""

COMMAND: Final = "latency --by broker,10s"


def grown_round_trips(case: Case) -> list[Row]:
    """Brokers whose round trips grow, the longest first."""
    return case.rows(_BROKERS)


def grown_finding(rows: list[Row]) -> Finding:
    """A finding for all brokers whose round trips grow."""
    row, names = rows[0], known(name for row in rows for name in row["client_ids"])
    brokers = addresses((row["broker"] for row in rows), "brokers")
    of_first = "" if len(rows) == 1 else f"{row['broker']}: "
    return Finding(
        severity="warning",
        subject=f"broker {brokers}" if len(rows) == 1 else brokers,
        clients=names,
        sentence=f"The network to {brokers} has become slow: a round trip takes "
        + "up to " * (len(rows) > 1)
        + f"{ms(row['rtt_ms'])} instead of {ms(row['usual_ms'])}",
        evidence=f"{of_first}In {counted(row['seconds'], 'second')}, no response came earlier: the "
        f"quickest took {ms(row['rtt_ms'])} (median), and about as long in each second. Disks, "
        "followers and pauses delay some requests more than others. Clients: "
        f"{listed(f'`{name}`' for name in names)}.",
        numbers=cells(row, "broker"),
        cause="the path changed (a route, a VPN, a proxy), or passes a full queue",
        side="network",
        change="Compare the path with that to another broker, from a client: ping, traceroute, and "
        "ss -ti for the round trip that TCP measures. Look for other traffic and for the limits of "
        "the links.",
        reference="RFC 6298, section 3",
        command=COMMAND,
        requests=sum(row["requests"] for row in rows),
        **span_of(rows),
    )
