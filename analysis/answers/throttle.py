"""Throttling: which clients were throttled by a quota, for how long, and whether they complied.

    $ kafka-dissector throttle captures/kafka-4-quotas.pcap.zst

**How to read it.** `total_ms` is the time that the broker asked the client to wait. After
`honoured` responses, the client waited for that time; after `early` ones, it did not. `held`
responses were delayed by the broker itself, as in old versions.

**What to do.** Raise the quota (kafka-configs --alter --add-config), or lower the rate of the
client: larger batches help with request quotas, and compression helps with byte quotas. Update
clients that send early, because they do not implement KIP-219.

**How it is computed.** A broker that enforces a quota returns a throttle time in its response
(KIP-13, KIP-124, KIP-599). Since KIP-219 the response is sent at once, and the client must not send
a request on that connection until the time has passed. Until then, the broker does not read the
requests of a client that did not wait: this time is in `queue_ms` of `latency`. In older versions
of an API, the broker delayed the response instead, and the client did not have to wait.

The next request of the connection is early if its last byte came before the time had passed: while
the broker does not read, a full window holds back requests that a client sent before. Requests that
crossed the response do not count: those within the round trip to the client and, of a client with
several requests in flight, within 10 ms more.

**Limitations.** The quota counts all connections of a client, so if some of them are not in the
capture, its rate is not visible. With a filter that hides later requests, a wait may look longer
than it was.
"""

from __future__ import annotations

from typing import Final

from analysis.answers import ArrowTable, Tables, answer, grouped_by, select
from analysis.columns import Column, first_and_last
from analysis.sql.expressions import (
    By,
    client_waits_for_quota,
    grouped,
    with_columns,
)

TOLERANCE_MS: Final = 1
"""Clients count in whole milliseconds, and may start to wait up to this much before their clock."""
REACTION_MS: Final = 10
"""A client with several requests in flight sends others until it has read the response."""


@answer(
    question="Which clients are throttled, by how much, by which broker, and do they comply?",
    place=2,
    tables=("exchanges", "connections"),
    options=(
        grouped_by("any column of exchanges, or broker, client, software, topic, minute, 10s"),
    ),
    rows="throttled responses",
    columns=(
        Column("responses", "int64", "responses with a throttle time"),
        Column("total_ms", "int64", "sum of the throttle times", "ms"),
        Column("longest_ms", "int64", "longest throttle time", "ms"),
        Column(
            "honoured", "int64", "responses after which the client waited for the throttle time"
        ),
        Column("early", "int64", "responses after which the client did not wait long enough"),
        Column(
            "earliest_ms", "double", "largest remaining throttle time of an early request", "ms"
        ),
        Column("held", "int64", "responses that the broker delayed by the throttle time"),
        Column("last", "int64", "responses without a later request on the connection"),
        *first_and_last("response"),
    ),
    essential="total_ms longest_ms responses",
    useful="honoured early held last_time",
    lists_problems=True,
)
def throttle(tables: Tables, *, by: By = ("client_id", "broker", "api")) -> ArrowTable:
    """Responses with a throttle time, in groups; the longest total first."""
    query = grouped(
        with_columns(throttled_responses(), by, "exchanges"),
        by,
        "total_ms desc, min(nth)",
        responses="count(*)",
        total_ms="sum(throttle_time_ms)",
        longest_ms="max(throttle_time_ms)",
        honoured="count(*) filter (not (held or early or last))",
        early="count(*) filter (early)",
        earliest_ms="max(early_ms) filter (early)",
        held="count(*) filter (held)",
        last="count(*) filter (last)",
        first_time="min(response_time)",
        last_time="max(response_time)",
    )
    return select(tables, query)


def throttled_responses() -> str:
    """SQL: throttled responses, each held, early, last, or else honoured.

    `early_ms`: the part of the throttle time for which the client did not wait.
    """
    return f"""(
  with throttled as (
    select exchanges.*, epoch_ns(response_end_time) as sent,
      -- Acknowledgements may be late.
      sent + (coalesce(least(client_rtt_ms, handshake_rtt_ms), 0) * 1e6)::bigint as received
    from exchanges left join (
      select connection_id, client_rtt_ms, handshake_rtt_ms from connections)
      using (connection_id)
    where throttle_time_ms > 0),
  requests as (
    select connection_id, epoch_ns(request_time) as began,
      epoch_ns(coalesce(request_end_time, request_time)) as ended, in_flight
    from exchanges
    where connection_id in (select connection_id from throttled) and request_time is not null),
  answered as (
    select throttled.*, received + {REACTION_MS} * 1000000 as read,
      case when following.in_flight > 1 then following.began end as crossing,
      following.ended as next_end
    from throttled asof left join requests as following
      on throttled.connection_id = following.connection_id and received < following.began)
  select answered.* exclude (sent, received, read, crossing, next_end),
    throttle_time_ms - (case when crossing <= read then later.ended else next_end end - sent) / 1e6
      as early_ms,
    coalesce(not {client_waits_for_quota()} and latency_ms >= throttle_time_ms, false) as held,
    coalesce(early_ms > {TOLERANCE_MS}, false) and not held as early,
    early_ms is null and not held as last
  from answered asof left join requests as later
    on answered.connection_id = later.connection_id and read < later.began)"""
