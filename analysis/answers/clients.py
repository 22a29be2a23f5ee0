"""Clients: one row for each client, with its load, its errors, and its configuration.

The configuration of all clients of a cluster is rarely known, but much of it is in their requests.
A client is a client id at an address.

    $ kafka-dissector clients captures/kafka-4-tuned.pcap.zst
    $ kafka-dissector clients captures/kafka-4-tuned.pcap.zst --show settings

**How to read it.** The first table shows the load and the health of each client. `reconnects` are
connections to a broker to which an earlier connection of the client had ended. A connection counts
for the client id of its first request. Brokers are clients, too, such as `1` and
`broker-1-fetcher-0`: see the [glossary](../glossary.md). The second table has a row for each
setting. `evidence` is *seen* if requests contain the value, and *inferred* if it is computed from
the behaviour of the client. Settings have the names of the Java client. Several values mean that
several clients have the same client id, or that the value changed.

**What to do.** Look for acks=0 or acks=1 where records must not be lost; for compression.type=none
and linger.ms=0 in producers with many requests (`batching`); for a short session.timeout.ms in
groups that often rebalance (`groups`); for isolation.level=read_uncommitted in consumers of
transactional topics; for PLAINTEXT (`security`); for old software (`versions`). If a client
reconnects every few minutes, its idle connections are closed (connections.max.idle.ms); if it
reconnects all the time, it creates a new client object for each request, or it fails.

**How it is computed.** Seen: acks and the limits of Fetch are fields of requests; batches show
compression and idempotence; JoinGroup and the heartbeats of newer groups contain the timeouts of a
member. The rebalance timeout is max.poll.interval.ms in Java clients, librdkafka and kafka-python.
Otherwise it is shown as rebalance.timeout.ms, a setting of Kafka Connect: aiokafka, franz-go,
KafkaJS and Sarama have a separate setting for it. partition.assignment.strategy, or
connect.protocol, is the one that the group has chosen. Inferred: batch.size is at least the size of
the largest batch with several records; linger.ms is about the lower quartile of the age of the
first record in the oldest batch of a request when it is sent, if most of these batches are smaller
than the largest; heartbeat.interval.ms is about the median time between the Heartbeats of a member;
max.in.flight.requests.per.connection is at least the largest number of Produce requests in flight;
compression.type is none if no batch has a codec, unless the software is the Java client. Other
clients, such as librdkafka, franz-go and kafka-python, send a batch uncompressed if it does not
shrink. `net_p99_ms` is the latency excluding waits, as in `latency`. `errors` are responses with an
error that is not part of normal operation.

**Limitations.** Clients with the same client id and address are one row, even on different hosts
(NAT). linger.ms includes the time in the queue of a producer that is too slow, or that has sent
only a few requests: the first ones wait for metadata. It is correct only if the clocks of the
producer and the capture agree. It is omitted if the age is longer than two minutes (the default of
delivery.timeout.ms), or if the clock of the producer is more than a second ahead. Requests about
groups from administrators (clients that list or describe groups) do not count.
"""

from __future__ import annotations

from typing import Final

from analysis.answers import ArrowTable, Option, Tables, Variant, answer, select
from analysis.columns import Column, columns_of, first_and_last
from analysis.sql.client_settings import SETTINGS
from analysis.sql.expressions import (
    CLIENT_IDS,
    PER_SECOND,
    PER_SECOND_COLUMN,
    PROBLEM_RESPONSES,
    SECURITY_PROTOCOL,
    SOFTWARE,
    by_frequency,
    endpoint,
)
from analysis.sql.latency_breakdown import exchanges_with_parts

_CLIENT: Final = (
    *columns_of("exchanges", "client_id"),
    Column("client", "string", "address of the client"),
)

SETTING_COLUMNS: Final = (
    *_CLIENT,
    Column("setting", "string", "name of the setting in the Java client"),
    Column("value", "string", "value, the most frequent first"),
    Column("evidence", "string", "seen or inferred"),
)


@answer(
    question="Which clients are there, how do they behave, and how are they configured?",
    place=17,
    tables=(
        "exchanges", "errors", "connections", "batches", "partitions", "memberships",
        "transactions",
    ),
    options=(Option("show", "Show clients, or their settings"),),
    rows="clients",
    columns=(
        *_CLIENT,
        Column("software", "string", "name and version of the client's software, if known"),
        Column("security", "string", "security protocol and SASL mechanism"),
        Column("connections", "int64", "connections whose first request has this client id"),
        Column("reconnects", "int64", "connections to a broker after an earlier one had ended"),
        Column("requests", "int64", "requests"),
        PER_SECOND_COLUMN,
        Column("sent_bytes", "int64", "size of the requests", "bytes"),
        Column("received_bytes", "int64", "size of the responses", "bytes"),
        Column("net_p99_ms", "double", "0.99 quantile of the latency excluding waits", "ms"),
        Column("errors", "int64", "responses with an error that is not part of normal operation"),
        Column("throttled", "int64", "responses with a throttle time"),
        Column("unanswered", "int64", "requests without a response"),
        Column("versions", "string", "APIs with the versions of the requests"),
        Column("settings", "string", "settings with values; those not seen are inferred"),
        *first_and_last("request"),
    ),
    variants=(Variant("show", "settings", SETTING_COLUMNS, rows="settings of clients"),),
    essential="client_id client software per_second net_p99_ms errors setting value evidence",
    useful="reconnects security requests throttled unanswered connections",
)  # fmt: skip
def clients(tables: Tables, *, show: str = "clients") -> ArrowTable:
    """Clients, those with the most requests first; or a row for each of their settings."""
    if show == "settings":
        return select(tables, f"from {SETTINGS} order by client_id, client, setting")
    query = f"""
      with requests as ({_REQUESTS}), links as ({_LINKS}), configured as (
        select client_id, client, string_agg(setting || '=' || value
          || case when evidence = 'seen' then '' else ' (inferred)' end, ', ' order by setting)
          as settings
        from {SETTINGS} group by all)
      select requests.*, links.* exclude (client_id, client), settings from requests
        left join links on {_same("links")}
        left join configured on {_same("configured")}
      order by requests desc, requests.nth"""
    return select(tables, query)


def _same(right: str) -> str:
    return " and ".join(
        f"requests.{name} is not distinct from {right}.{name}" for name in ("client_id", "client")
    )


_REQUESTS: Final = f"""
  select client_id, client_ip as client, count(*) as requests,
    {PER_SECOND} as per_second,
    coalesce(sum(request_bytes), 0) as sent_bytes,
    coalesce(sum(response_bytes), 0) as received_bytes,
    quantile_cont(net_ms, 0.99) as net_p99_ms,
    count(is_problem) as errors,
    count(*) filter (throttle_time_ms > 0) as throttled,
    count(*) filter (status = 'unanswered') as unanswered,
    array_to_string([each.api || ' ' || each.api_version for each in list_sort(
      list(distinct {{'api': api, 'api_version': api_version}}))], ', ') as versions,
    min(request_time) as first_time, max(request_time) as last_time, min(nth) as nth
  from {exchanges_with_parts()} left join {PROBLEM_RESPONSES}
    using (connection_id, correlation_id, response_time)
  where status != 'request_missing' group by all"""
"""A query for the requests and responses of each client."""

_LINKS: Final = f"""
  with linked as (
    select connections.*, client_id, client_software as software, client_ip as client,
      {SECURITY_PROTOCOL} as protocol_name,
      opened and coalesce(first_time > min(case when closed is not null then last_time end) over (
        partition by client_id, client_ip, {endpoint("broker")} order by first_time
        rows between unbounded preceding and 1 preceding), false) as is_again
    from connections join {CLIENT_IDS} using (connection_id)
      left join {SOFTWARE} using (connection_id))
  select client_id, client, {by_frequency("software")} as software,
    {by_frequency("protocol_name || coalesce(' ' || sasl_mechanism, '')")} as security,
    count(*) as connections, count(*) filter (is_again) as reconnects
  from linked group by all"""
"""A query for the connections of each client."""
