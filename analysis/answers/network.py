"""Network or broker: the round trip's share of the latency, and the quality of the network.

    $ kafka-dissector network captures/kafka-4-net-delay.pcap.zst

    $ kafka-dissector network captures/kafka-4-net-loss.pcap.zst

    $ kafka-dissector network captures/kafka-4-unbalanced.pcap.zst --show failures

**How to read it.** `broker_p50_ms` is the time of the broker, and `network_percent` is the share of
the round trip in the wait of the client. Retransmitted and reordered packets, and zero windows,
with which a receiver stops its sender, show why a connection is slow. A connection counts for the
client id of its first request. `--show failures` lists brokers whose connections fail:

    refused                   a reset (RST) instead of a handshake: no process listens on the port
    no reply                  no packet from the other side
    closed before a response  the broker closed the connection at once, without sending any data
    TLS: ...                  the handshake failed, or an alert ended the connection

**What to do.** If the network has the larger share, move the client closer to the broker, or send
fewer and larger requests (`batching`, `fetches`). Retransmissions above one per cent indicate a
fault in the network. Zero windows of a client mean that its application does not read its data. For
failed connections, `diagnose` has advice.

**How it is computed.** A capture is taken somewhere between a client and its broker. Its latencies
include the round trip from there to the broker. This round trip is measured in each connection with
segments that are acknowledged at once (`streams.connections.roundtrips`); if there are none, with
the handshake, minus the round trip to the client. A receiver may delay acknowledgements, but never
those of a handshake. Therefore, a round trip is ignored if it is 35 ms longer than that of the
handshake, or 10 ms longer than twice that. No response is faster than the round trip to the broker,
so short latencies of the connection also limit the round trip. The time of the broker is the net
latency (`analysis.sql.latency_breakdown`) minus this round trip. The wait of the client is longer
by the round trip between the client and the capture point.

**Limitations.** In a capture taken next to the clients, the time of the broker is a small
difference of long times: it is wrong by as much as the round trip varies, and may be 0. A proxy
that terminates TCP connections hides the network behind it. Packets that are missing from the
capture look like packets that the network lost, and packets that the capture contains twice, as
with `tcpdump -i any` on a host with bridges, count as retransmitted: see `quality`. Segmentation in
the network card hides small retransmissions. If the capture contains neither the handshake nor a
fast response, delayed acknowledgements look like a long round trip. An end that sends its next
message at once acknowledges with that message, so only its late acknowledgements are measured: next
to a busy client or broker, a round trip may be up to 10 ms too long. If neither side sends data, a
connection is a failure only if the number of packets shows that the broker ended it.
"""

from __future__ import annotations

from typing import Final

from analysis.answers import ArrowTable, Option, Tables, Variant, answer, grouped_by, select
from analysis.columns import Column, first_and_last
from analysis.sql.expressions import (
    BROKER,
    CLIENT_IDS,
    By,
    by_frequency,
    column_names,
    endpoint,
    grouped,
    not_negative,
    quantiles,
    quoted,
    with_columns,
)
from analysis.sql.failures import FAILED_ENDPOINTS
from analysis.sql.intermediate import intermediate_table
from analysis.sql.latency_breakdown import exchanges_with_parts
from analysis.sql.round_trips import with_round_trips

_COLUMNS: Final = (
    Column("connections", "int64", "connections"),
    Column("handshake_rtt_ms", "double", "median round-trip time of the handshakes", "ms"),
    Column("rtt_ms", "double", "median round-trip time between client and broker", "ms"),
    Column("client_rtt_ms", "double", "part of rtt_ms between capture point and client", "ms"),
    Column("broker_rtt_ms", "double", "part of rtt_ms between capture point and broker", "ms"),
    Column("packets", "int64", "packets in both directions"),
    Column("retransmitted", "int64", "retransmitted packets"),
    Column("retransmitted_percent", "double", "share of retransmitted packets", "%"),
    Column("out_of_order", "int64", "packets that were captured after a later one"),
    Column("client_zero_windows", "int64", "packets from clients with a zero window"),
    Column("broker_zero_windows", "int64", "packets from brokers with a zero window"),
    Column("requests", "int64", "requests with a net latency"),
    Column("latency_p50_ms", "double", "median of the net latency", "ms"),
    Column("latency_p99_ms", "double", "0.99 quantile of the net latency", "ms"),
    Column("broker_p50_ms", "double", "median of the broker's time", "ms"),
    Column("broker_p99_ms", "double", "0.99 quantile of the broker's time", "ms"),
    Column("network_percent", "double", "median share of the round trip in the client's wait", "%"),
)

FAILURE_COLUMNS: Final = (
    BROKER,
    Column("failure", "string", "how they fail: refused, no reply, closed ..., or TLS: reason"),
    Column("ended_by", "string", "side that ended TLS: client or broker"),
    Column("connections", "int64", "failed connections"),
    Column("hosts", "int64", "addresses of clients"),
    Column("client_ids", "string", "client ids, the most frequent first; null if unknown"),
    Column("served", "int64", "other connections to the broker, with data in both directions"),
    Column("worked_time", "time", "time of the last connection that did not fail in this way"),
    Column("after", "int64", "failed connections after that one"),
    Column("after_time", "time", "time of the first of them"),
    *first_and_last("failed connection"),
)

_MEDIANS: Final = ("handshake_rtt_ms", "rtt_ms", "client_rtt_ms", "broker_rtt_ms")
_SUMS: Final = (
    "packets", "retransmitted", "out_of_order", "client_zero_windows", "broker_zero_windows",
)  # fmt: skip


@answer(
    question="Is the network or the broker slow?",
    place=11,
    tables=("connections", "exchanges", "batches"),
    options=(
        grouped_by(
            "any column of connections, or client_id, broker, client, software",
            needs=("show", "connections"),
        ),
        Option("show", "Show connections, or connections that fail"),
    ),
    rows="Kafka connections",
    columns=_COLUMNS,
    variants=(
        Variant("show", "failures", FAILURE_COLUMNS, ("problems", "brokers"), "failed connections"),
    ),
    essential="broker failure broker_p50_ms network_percent rtt_ms",
    useful="after last_time client_ids requests latency_p50_ms retransmitted broker_p99_ms",
)
def network(
    tables: Tables, *, by: By = ("client_id", "broker"), show: str = "connections"
) -> ArrowTable:
    """Kafka connections, in groups; the longest round trip first.

    With ``show="failures"``, a row for each broker and failure; the most connections first.
    """
    if show == "failures":
        return select(tables, _FAILED)
    if measured := {column.name for column in _COLUMNS}.intersection(column_names(by)):
        from dissector.errors import DissectorError

        raise DissectorError(
            f"cannot group by column {measured.pop()}, a result of this answer; "
            "choose a column of connections, or client_id, broker, client, software"
        )
    links = with_columns(LINKS, by, "connections", *_LINK_COLUMNS)
    sums = {name: f"coalesce(sum({name}), 0)" for name in _SUMS}
    medians = {name: f"median({name})" for name in _MEDIANS}
    path = grouped("links", by, connections="count(*)", **sums, **medians, nth="min(nth)")
    time = grouped("requests", by, **_OF_REQUESTS)
    key = ", ".join(quoted(by))
    same = " and ".join(f"path.{name} is not distinct from time.{name}" for name in quoted(by))
    query = f"""
      with links as materialized (from {links}),
      requests as (
        select links.*, net_ms as latency_ms,
          {not_negative("net_ms - broker_rtt_ms")} as broker_ms,
          100 * (1 - broker_ms / nullif(net_ms + client_rtt_ms, 0)) as network_percent
        from {exchanges_with_parts()} as parts join links using (connection_id)
        where net_ms is not null)
      select path.*, time.* exclude ({key}) replace (coalesce(requests, 0) as requests),
        100 * retransmitted / nullif(packets, 0) as retransmitted_percent
      from ({path}) as path left join ({time}) as time on {same}
      order by rtt_ms desc, path.nth"""
    return select(tables, query)


_FAILED: Final = f"""
  select {endpoint("broker")} as broker, failure, ended_by, count(*) as connections,
    count(distinct client_ip) as hosts,
    nullif({by_frequency("client_id")}, '') as client_ids, any_value(served) as served,
    any_value(worked_time) as worked_time, count(*) filter (is_after) as after,
    min(first_time) filter (is_after) as after_time, min(first_time) as first_time,
    max(first_time) as last_time
  from {FAILED_ENDPOINTS} left join {CLIENT_IDS} using (connection_id)
  group by all order by connections desc, broker, failure, ended_by"""

_OF_REQUESTS: Final = {
    "requests": "count(*)",
    **quantiles("latency_ms", "latency_", (0.5, 0.99)),
    **quantiles("broker_ms", "broker_", (0.5, 0.99)),
    "network_percent": "median(network_percent)",
}
"""Columns of the requests with a response in a group."""

_LINK_COLUMNS: Final = ("client_id", "rtt_ms", "packets", "retransmitted", "out_of_order")


LINKS: Final = intermediate_table("links", f"""
  select measured.* exclude (shortest_ms),
    coalesce(client_rtt_ms + broker_rtt_ms, handshake_rtt_ms) as rtt_ms, client_id,
    coalesce(client_packets, 0) + coalesce(broker_packets, 0) as packets,
    coalesce(client_retransmitted, 0) + coalesce(broker_retransmitted, 0) as retransmitted,
    coalesce(client_out_of_order, 0) + coalesce(broker_out_of_order, 0) as out_of_order
  from {with_round_trips("(from connections where protocol = 'kafka')")} as measured
    left join {CLIENT_IDS} using (connection_id)""")  # fmt: skip
"""SQL: Kafka connections; `_LINK_COLUMNS` are the sums over both directions, and the client id."""
