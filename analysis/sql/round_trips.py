"""Round trips of connections, on both sides of the capture point.

A round trip is measured with segments that are acknowledged at once; if there are none, with the
handshake, minus the round trip on the other side. No response is faster than the round trip to the
broker, so short latencies of a connection limit it where a single handshake was slow.
"""

from __future__ import annotations

from typing import Final

from analysis.sql.context import ALL_EXCHANGES
from analysis.sql.expressions import not_negative

_DELAY_MS: Final = 10
_DELAYED_MS: Final = 35
"""Linux delays an acknowledgement by at least 40 ms (TCP_DELACK_MIN), other systems by more."""


def longest_rtt_ms(handshake_rtt_ms: float) -> float:
    """A round trip that is longer measures delayed acknowledgements (RFC 9293, 3.8.6.3)."""
    return min(2 * handshake_rtt_ms + _DELAY_MS, handshake_rtt_ms + _DELAYED_MS)


def with_round_trips(connections: str) -> str:
    """SQL: rows of `connections`, whose `broker_rtt_ms` and `client_rtt_ms` are null only if
    unknown, and `shortest_ms`, a short latency. Needs the context of `exchanges`."""
    return f"""(
      with shortest as (
        -- If the capture lost the first copy of a request, its latency is too short.
        select connection_id, {not_negative("quantile_disc(latency_ms, 0.1)")} as shortest_ms
        from {ALL_EXCHANGES} group by all),
      timely as (
        select * replace (
          {_timely("broker_rtt_ms", "least(handshake_rtt_ms, shortest_ms)")},
          {_timely("client_rtt_ms", "handshake_rtt_ms")})
        from {connections} left join shortest using (connection_id)),
      measured as (
        select *,
          coalesce(broker_rtt_ms, case when handshake_rtt_ms - client_rtt_ms is not null
            then greatest(least(handshake_rtt_ms - client_rtt_ms, shortest_ms), 0)
            end) as to_broker,
          coalesce(client_rtt_ms, {not_negative("handshake_rtt_ms - to_broker")}) as to_client
        from timely)
      select * exclude (to_broker, to_client)
        replace (to_broker as broker_rtt_ms, to_client as client_rtt_ms)
      from measured)"""


def _timely(rtt_ms: str, shortest: str) -> str:
    """SQL for a round trip; null if it is longer than `longest_rtt_ms` of a `shortest` one."""
    longest = f"least(2 * {shortest} + {_DELAY_MS}, {shortest} + {_DELAYED_MS})"
    return f"case when {rtt_ms} > {longest} then null else {rtt_ms} end as {rtt_ms}"
