"""Latency: how long responses take, how much of that is waiting by design, and which took longest.

    $ kafka-dissector latency captures/kafka-4-java.pcap.zst | head -8

    $ kafka-dissector latency captures/kafka-4-net-loss.pcap.zst --slowest 3

**How to read it.** The latency is the time from the last byte of a request to the first byte of its
response, as captured. The net latency excludes the time that a Fetch waited for data, and the time
that a request waited for earlier requests of its connection. Compare net quantiles: a Fetch of 500
ms is usually an idle consumer.

**What to do.** If one API is slow, look at its slowest requests and their packets (`show`). If one
broker is slow, use `--by broker`, then `network`, which separates the network from the broker. A
large `queue_ms` means that earlier requests of the connection are slow. `--by minute` shows when
the slowness began.

**How it is computed.** Quantiles are exact, over all requests with a response. A broker processes
the requests of a connection one by one. JoinGroup and SyncGroup wait for other members, a Fetch
with a rack may wait at a follower (KIP-392), and a Fetch over a quota gets no records: their net
latency is unknown. `analysis.sql.latency_breakdown` defines the parts.

**Limitations.** Latencies captured at the client include the network; those captured at the broker
do not. Lost packets remove requests or make them seem long: see `quality`. The wait of a Fetch is
known exactly only if the capture contains the Produce of its records. Otherwise it depends on their
timestamps: if the application sets them, or the clock of the producer is behind, the wait counts as
time of the broker.
"""

from __future__ import annotations

from typing import Final

from analysis.answers import ArrowTable, Option, Tables, Variant, answer, grouped_by, select
from analysis.columns import Column, columns_of
from analysis.sql.expressions import (
    BROKER,
    By,
    endpoint,
    grouped,
    quantiles,
    sum_of_ms,
    with_columns,
)
from analysis.sql.latency_breakdown import PART_NAMES, exchanges_with_parts

SLOWEST_COLUMNS: Final = (
    *columns_of("exchanges", "request_time", "client_id"),
    BROKER,
    *columns_of("exchanges", "api", "api_version"),
    Column("topics", "string", "topics that the request names"),
    Column("net_ms", "double", "latency excluding waits", "ms"),
    *columns_of("exchanges", "latency_ms"),
    Column("poll_ms", "double", "wait by design: for data, or for other group members", "ms"),
    Column("queue_ms", "double", "wait for earlier requests, and their throttle times", "ms"),
    *columns_of("exchanges", "in_flight", "connection_id", "correlation_id", "request_packet"),
)


@answer(
    question="How long do responses take, excluding long polls, and which took longest?",
    place=1,
    tables=("exchanges", "batches", "connections"),
    options=(
        grouped_by(
            "any column of exchanges, or broker, client, software, topic, minute, 10s",
            needs=("slowest", 0),
        ),
        Option("slowest", "List the N slowest requests (excluding waits) instead of grouping"),
    ),
    rows="latencies",
    columns=(
        Column("count", "int64", "requests with a response"),
        Column("net_total_ms", "double", "sum of the net latencies; null if unknown", "ms"),
        Column("p50_ms", "double", "median of the latency", "ms"),
        Column("p95_ms", "double", "0.95 quantile of the latency", "ms"),
        Column("p99_ms", "double", "0.99 quantile of the latency", "ms"),
        Column("max_ms", "double", "longest latency", "ms"),
        Column("wait_count", "int64", "requests that waited, by design or in the queue"),
        Column("net_p50_ms", "double", "median of the net latency; null if unknown", "ms"),
        Column("net_p95_ms", "double", "0.95 quantile of the net latency; null if unknown", "ms"),
        Column("net_p99_ms", "double", "0.99 quantile of the net latency; null if unknown", "ms"),
        Column("net_max_ms", "double", "longest net latency; null if unknown", "ms"),
        Column("slowest_packet", "int64", "packet of the request with the longest net latency"),
    ),
    variants=(Variant("slowest", "N", SLOWEST_COLUMNS),),
    essential="count net_total_ms net_p50_ms net_p99_ms request_time client_id api topics net_ms "
    "latency_ms",
    useful="p50_ms p99_ms poll_ms queue_ms request_packet broker",
)
def latency(tables: Tables, *, by: By = ("api",), slowest: int = 0) -> ArrowTable:
    """Quantiles of the latency, in groups; the largest `net_total_ms` first."""
    answered = f"(from {exchanges_with_parts()} where latency_ms is not null)"
    rows = with_columns(answered, by, "exchanges", *PART_NAMES)
    if slowest:
        return select(tables, _SLOWEST.format(rows=answered, count=slowest))
    query = grouped(
        rows,
        by,
        f"coalesce({sum_of_ms('net_ms')}, 0) desc, min(nth)",
        count="count(*)",
        net_total_ms=sum_of_ms("net_ms"),
        **quantiles("latency_ms"),
        max_ms="max(latency_ms)",
        wait_count="count(*) filter (where queue_ms + poll_ms > 0)",
        **quantiles("net_ms", "net_"),
        net_max_ms="max(net_ms)",
        slowest_packet="arg_min(request_packet, (coalesce(-net_ms, 1), nth))",
    )
    return select(tables, query)


_SLOWEST: Final = f"""
  select * replace (array_to_string(topics, ', ') as topics), {endpoint("broker")} as broker
  from {{rows}} order by net_ms desc, nth limit {{count}}"""
