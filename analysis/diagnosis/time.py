"""Where the time of each client went: network, broker, queue, quota and long polls.

The network and the broker are the parts of the net latency, as in the answer `network`; the queue
and the polls are its other parts (`analysis.sql.latency_breakdown`). Requests of one client
overlap, so the parts may exceed the time between its first and last packet. The quota is the time
for which the client sent nothing on a connection because of a throttle time. Waits of a host at
several brokers at once count once. A request that was sent before waits in the queue (KIP-219).
"""

from __future__ import annotations

from typing import Final

from analysis.answers.network import LINKS
from analysis.answers.throttle import throttled_responses
from analysis.columns import Column
from analysis.sql.expressions import ms_between, not_negative, sum_of_ms
from analysis.sql.latency_breakdown import exchanges_with_parts

COLUMNS: Final = (
    Column("client_id", "string", "client id; null for requests without one"),
    Column("requests", "int64", "requests with a response"),
    Column("broker_ms", "double", "sum of the time of brokers; null if unknown", "ms"),
    Column("network_ms", "double", "sum of round trips; null if unknown", "ms"),
    Column("queue_ms", "double", "sum of waits for earlier requests of the connection", "ms"),
    Column("quota_ms", "double", "time without requests because of a quota", "ms"),
    Column("poll_ms", "double", "sum of waits by design, for data or group members", "ms"),
)


def waited_for_quota() -> str:
    """SQL by client id: `quota_ms`, the time for which a connection sent nothing because of a
    quota, as the sum of its hosts; `waited_ms`, as the sum of its connections, also with requests
    that the broker did not read until the throttle time had passed; and `throttled_ms`, the time of
    these connections.

    A connection lasts from its first request to its last message, or to the end of the wait after
    it: its later packets may be outside of a filter.
    """
    after = ms_between("response_end_time", "last_time")
    return f"""
      with waits as (
        select client_id, throttled.client_ip, connection_id, throttled.nth,
          epoch_ns(response_end_time) / 1e6 as start,
          start + greatest(least(throttle_time_ms, case when last then {after}
            else throttle_time_ms - greatest(early_ms, 0) end), 0) as stop,
          case when early then start + throttle_time_ms else stop end as read_start
        from {throttled_responses()} as throttled left join connections using (connection_id)),
      separate as (  -- a wait may begin before the previous one has ended
        select *, {_begin("connection_id", "read_start")} as begin,
          {_begin("client_id, client_ip", "stop")} as host_begin
        from waits),
      waited as (
        select client_id, connection_id, sum(greatest(read_start - begin, 0)) as ms,
          sum(greatest(stop - host_begin, 0)) as host_ms, max(read_start) as stop
        from separate group by all),
      messages as (
        select client_id, connection_id, epoch_ns(min(request_time)) / 1e6 as start,
          epoch_ns(max(greatest(response_end_time, request_end_time))) / 1e6 as stop
        from exchanges where request_time is not null group by all)
      select waited.client_id, sum(host_ms) as quota_ms, sum(ms) as waited_ms,
        sum(greatest(waited.stop, messages.stop) - messages.start) as throttled_ms
      from waited join messages on waited.connection_id = messages.connection_id
        and waited.client_id is not distinct from messages.client_id
      group by all"""


def _begin(scope: str, stop: str) -> str:
    """SQL: the start of a wait, or the end of the earlier waits of its scope."""
    return f"""greatest(start, coalesce(max({stop}) over (
          partition by {scope} order by start, nth
          rows between unbounded preceding and 1 preceding), start))"""


def time_of_clients() -> str:
    """SQL: a row for each client id, with `COLUMNS`; the longest net latency first."""
    return f"""
      with requests as (
        select parts.*, {not_negative("net_ms - broker_rtt_ms")} as broker_ms,
          net_ms - broker_ms + coalesce(client_rtt_ms, 0) as network_ms
        from {exchanges_with_parts()} as parts
          left join (select connection_id, broker_rtt_ms, client_rtt_ms from {LINKS}) as links
            using (connection_id)
        where latency_ms is not null)
      select requests.*, coalesce(quota_ms, 0)::double as quota_ms from (
        select client_id, count(*) as requests, {sum_of_ms("broker_ms")} as broker_ms,
          {sum_of_ms("network_ms")} as network_ms,
          coalesce({sum_of_ms("queue_ms")}, 0) as queue_ms,
          coalesce({sum_of_ms("poll_ms")}, 0) as poll_ms,
          {sum_of_ms("net_ms")} as net_ms, min(nth) as nth
        from requests group by client_id) as requests
      left join ({waited_for_quota()}) as quota
        on requests.client_id is not distinct from quota.client_id
      order by net_ms desc, nth"""
