"""Packets that were lost before the capture point, for the rule `retransmissions`.

Such a packet is in the capture only once: TCP sends it again, and it arrives after later ones. A
packet that the network reordered arrives late, too, but seldom by more than a round trip: after
that time, TCP takes it for lost (RFC 8985, section 6.2). Packets have no times in the tables. But
messages with bytes behind the missing ones wait for them, so that their last byte comes late, or
all of their bytes come after those of later packets in the capture.

If a connection has only one packet on the way, no later one shows that it was lost.
"""

from __future__ import annotations

from typing import Final

from analysis.answers.network import LINKS
from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Limits
from analysis.diagnosis.words import share
from analysis.sql.expressions import endpoint
from analysis.sql.query import Row

LEAST_MS: Final = 3
"""Shorter delays have other causes, such as a busy host. Wireshark has the same limit."""


def _direction(sender: str) -> str:
    """SQL: the packets that one side of each connection sent."""
    return f"""
      select connection_id, client_id, {endpoint("broker")} as broker, '{sender}' as sender,
        coalesce({sender}_packets, 0) as packets, coalesce({sender}_out_of_order, 0) as late,
        coalesce({sender}_retransmitted, 0) as retransmitted
      from {LINKS} where client_ip != broker_ip"""


DIRECTIONS: Final = f"""
  select client_id, broker, sender, sum(packets) as packets, sum(late) as late,
    sum(retransmitted) as retransmitted, list(connection_id) filter (late > 0) as connections
  from ({_direction("client")} union all {_direction("broker")})
  group by client_id, broker, sender"""
"""SQL: packets of each client to a broker, and back; the connections with late ones."""


def _messages(message: str, sender: str) -> str:
    """SQL: the messages that one side sent."""
    return f"""
      select connection_id, '{sender}' as sender, capture, {message}_packet as packet,
        epoch_ns({message}_time) as time, epoch_ns({message}_end_time) as end_time
      from exchanges where {message}_packet is not null"""


def _delays(connections: list[int]) -> str:
    """SQL: the messages on these connections that came more than a round trip later than usual:
    their number, and the longest delay, in each direction."""
    return f"""
      with messages as ({_messages("request", "client")} union all
        {_messages("response", "broker")}),
      arrived as (
        -- A message behind missing bytes has a later time than the packets that follow it.
        select *, (end_time - min(time) over (partition by capture order by packet desc)) / 1e6
          as arrival_ms
        from messages),
      compared as (
        select *, arrival_ms - median(arrival_ms) over (partition by connection_id, sender)
          as delay_ms
        from arrived where connection_id in ({", ".join(map(str, connections))}))
      select client_id, {endpoint("broker")} as broker, sender, count(*) as delayed,
        max(delay_ms) as longest_ms
      from compared join {LINKS} using (connection_id)
      where delay_ms >= greatest(rtt_ms, {LEAST_MS}) group by all"""


def is_many(row: Row, count: int, limits: Limits) -> bool:
    """Whether a number of retransmitted packets of a row of `DIRECTIONS` is above the limits."""
    return bool(
        count >= max(limits["retransmitted"], 1)
        and share(count, row["packets"]) >= limits["percent"]
    )


def lossy_directions(case: Case, limits: Limits) -> list[Row]:
    """The rows of `DIRECTIONS` with many retransmitted packets.

    `lost`: the number of late packets, if they are retransmitted ones; then messages waited for
    them, and `delayed` and `longest_ms` are their number and longest wait. `sent_again`: all
    retransmitted packets.
    """
    candidates = [
        row for row in case.rows(DIRECTIONS)
        if is_many(row, row["retransmitted"] + row["late"], limits)
    ]  # fmt: skip
    late = [number for row in candidates for number in row["connections"] or ()]
    delays = _delays(late)
    rows = [row | _lost(case, row, delays, limits) for row in candidates]
    return [row for row in rows if is_many(row, row["sent_again"], limits)]


def _lost(case: Case, row: Row, query: str, limits: Limits) -> Row:
    """The columns that `lossy_directions` adds to a row; `query`: of `_delays`."""
    delays = case.matching(query, row, "client_id broker sender") if row["late"] else []
    delayed, longest_ms = (sum(each[name] for each in delays) for name in ("delayed", "longest_ms"))
    needed = max(limits["delayed"], row["late"] * limits["delayed_percent"] / 100)
    lost = row["late"] if delayed >= max(needed, 1) else 0
    added = {"lost": lost, "delayed": delayed, "longest_ms": longest_ms}
    return added | {"sent_again": row["retransmitted"] + lost}
