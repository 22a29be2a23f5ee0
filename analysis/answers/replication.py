"""Replication: how far followers are behind, and how long producers wait for them.

A follower fetches from the leader as a consumer does, and its fetch offset confirms all records
before it. With acks=all, the leader responds when all in-sync replicas have confirmed the records,
so a slow follower slows producers down until the leader removes it from the in-sync replicas
(replica.lag.time.max.ms).

    $ kafka-dissector replication captures/kafka-4-replicated.pcap.zst
    $ kafka-dissector replication captures/kafka-4-replicated.pcap.zst --show producers

**How to read it.** In the first table, a row is a follower of a partition. The delay is the time
from a Produce request, or from the response to an earlier request of its connection, until the
follower confirmed the records: a broker reads a request when it has responded to the one before.
`pause_max_ms` is the longest time between two Fetches of the follower. `without` counts Produce
requests with acks=all that were acknowledged before this follower had their records: it was out of
sync from `first_without` to `last_without`. In the second table, `follower_percent` is the share of
the latency of Produce requests that was spent waiting for followers.

**What to do.** If one follower is slow, its broker or its network is slow. If all followers are
slow, raise num.replica.fetchers, and see the `latency` of Fetch. A large share of waiting with
short delays is normal for acks=all. A follower that is out of sync cannot replace a failed leader,
so set up an alert for this.

**How it is computed.** Fetches with a replica id are those of followers. The first one whose fetch
offset is after the last record of a Produce request confirms it. The wait for followers begins when
the broker reads the request and ends with the last confirmation before the response, so it includes
the leader's own write: it is about LocalTimeMs + RemoteTimeMs of the broker. The latency begins
at the same time. A follower that becomes the leader no longer counts as a follower: `brokers` and
`topics` show which broker gets a Produce request. A replica counts from its first Fetch that shows
it in sync, or, if it was the leader before, from the first Metadata with it as leader. One that a
reassignment removes counts until Metadata no longer names it.

**Limitations.** The capture must contain the connections between brokers, for example because it
was taken at the leader, and they must not be encrypted. Since Fetch 15 a follower names its replica
id only when it changes, so a capture must contain the start of its connection. `without` does not
count a Produce if the capture lost a Fetch of the follower before the response.
"""

from __future__ import annotations

from typing import Final

from analysis.answers import ArrowTable, Option, Tables, Variant, answer, select
from analysis.columns import Column, columns_of, first_and_last
from analysis.sql.expressions import (
    EXCHANGE,
    endpoint,
    ms_between,
    not_negative,
    quantiles,
    sum_of_ms,
)
from analysis.sql.intermediate import intermediate_table
from analysis.sql.topic_logs import with_log
from analysis.sql.zones import ENDPOINTS

PRODUCER_COLUMNS: Final = (
    *columns_of("partitions", "client_id", "topic"),
    Column("requests", "int64", "Produce requests with acks=all that followers confirmed"),
    Column("latency_p50_ms", "double", "median of their latency outside the queue", "ms"),
    Column("latency_p99_ms", "double", "0.99 quantile of that latency", "ms"),
    Column("follower_p50_ms", "double", "median of the wait for followers", "ms"),
    Column("follower_p99_ms", "double", "0.99 quantile of the wait for followers", "ms"),
    Column("follower_percent", "double", "share of the wait in the latency", "%"),
)


@answer(
    question="How far are followers behind, and how long do producers wait for them?",
    place=22,
    tables=("partitions", "exchanges", "connections", "topics", "brokers"),
    options=(Option("show", "Show followers, or what producers wait for"),),
    rows="Fetches of followers",
    columns=(
        *columns_of("partitions", "topic", "partition", "replica_id"),
        Column("leaders", "string", "addresses of the brokers that it fetches from"),
        Column("fetches", "int64", "Fetches that name the partition"),
        Column("bytes", "int64", "size of the replicated batches", "bytes"),
        Column("confirmed", "int64", "Produce requests whose records it confirmed"),
        Column("delay_p50_ms", "double", "median time from a Produce to its confirmation", "ms"),
        Column("delay_p99_ms", "double", "0.99 quantile of that time", "ms"),
        Column("delay_max_ms", "double", "longest such time", "ms"),
        Column("lag_max", "int64", "largest number of records by which it was behind a Produce"),
        Column("pause_max_ms", "double", "longest time between two Fetches of the follower", "ms"),
        Column("without", "int64", "Produces acknowledged before this follower had the records"),
        Column("first_without", "time", "time of the first of these responses"),
        Column("last_without", "time", "time of the last of these responses"),
        *first_and_last("Fetch"),
    ),
    variants=(Variant("show", "producers", PRODUCER_COLUMNS, rows="waits for followers"),),
    essential=(
        "client_id topic partition replica_id delay_p50_ms delay_max_ms lag_max without "
        "follower_percent follower_p99_ms latency_p99_ms requests"
    ),
    useful="pause_max_ms delay_p99_ms first_without follower_p50_ms latency_p50_ms confirmed",
)
def replication(tables: Tables, *, show: str = "followers") -> ArrowTable:
    """Followers of partitions, the longest delay first; or the waits of producers."""
    return select(tables, _FOLLOWERS if show == "followers" else _PRODUCERS)


def _quantiles(column: str) -> str:
    """SQL for the median and the 0.99 quantile of a time."""
    each = quantiles(f"{column}_ms", f"{column}_", (0.5, 0.99))
    return ", ".join(f"{sql} as {name}" for name, sql in each.items())


_REPLICATED_TOPICS: Final = intermediate_table(
    "replicated_topics", "select distinct topic from partitions where replica_id >= 0"
)
_REPLICATED: Final = f"(from partitions semi join {_REPLICATED_TOPICS} using (topic))"
"""SQL: rows of `partitions` of the topics that followers fetch."""

_PARTITIONS: Final = with_log(_REPLICATED)

_FETCHES: Final = intermediate_table("fetches_of_followers", f"""
  select connection_id, topic, partition, log, replica_id, time, "offset", high_watermark, bytes,
    partitions.nth, {endpoint("broker")} as leader
  from {_PARTITIONS} as partitions join connections using (connection_id)
  where api = 'Fetch' and replica_id >= 0 and topic != '__cluster_metadata'
    and partition is not null""")  # fmt: skip
"""SQL: partitions in Fetches of followers. KRaft replicates its metadata in another way."""

_GAPS: Final = f"""(
  with links as (select distinct connection_id, topic, partition, replica_id from {_FETCHES}),
  requests as (
    select connection_id, correlation_id, request_time as since,
      lead(request_time) over following as until, lead(correlation_id) over following as next_id
    from exchanges semi join (from connections where client_lost_bytes > 0) using (connection_id)
    where request_time is not null and status is distinct from 'undecoded'
    window following as (partition by connection_id order by request_time, correlation_id))
  select topic, partition, replica_id, since, until
  from requests join links using (connection_id) where next_id > correlation_id + 1)"""
"""SQL: times in which the capture lost a Fetch of a follower; a client numbers its requests."""

_REQUESTS: Final = f"""(
  select *, max(response_time) over (partition by connection_id order by request_end_time, nth
    rows between unbounded preceding and 1 preceding) as earlier_time
  from exchanges semi join {_REPLICATED} using (connection_id))"""
"""SQL: exchanges of connections with these topics, and the last response to earlier requests of the
connection. Then the broker reads the request (kafka.network.SocketServer)."""

_CONFIRMED: Final = f"""(
  with produced as (
    select {EXCHANGE}, partitions.client_id, topic, partition, log, last_offset, response_time,
      acks, request_end_time, broker_id, earlier_time
    from {_PARTITIONS} as partitions join (
      select connection_id, correlation_id, request_time as time, request_end_time, acks,
        broker_id, earlier_time
      from {_REQUESTS} left join {ENDPOINTS} using (broker_ip, broker_port)
      where api = 'Produce') using (connection_id, correlation_id, time)
    where api = 'Produce' and error_code = 0 and topic is not null and last_offset is not null),
  confirmations as (
    select topic, partition, log, replica_id, "offset", min(time) as confirmed_time
    from {_FETCHES} where "offset" is not null group by all),
  leaders as (
    select topic, partition, leader as replica_id, min(time) as led_time from topics group by all),
  followers as (
    select topic, partition, log, replica_id, least(any_value(led_time),
      coalesce(min(time) filter ("offset" >= high_watermark), min(time))) as since
    from {_FETCHES} left join leaders using (topic, partition, replica_id)
    where "offset" is not null group by all),
  states as (select topic, partition, time, replicas from topics where len(replicas) > 0),
  candidates as (
    select produced.*, replica_id from produced join followers using (topic, partition, log)
    where time >= since and replica_id is distinct from broker_id),
  pairs as (
    select candidates.*, coalesce(list_contains(last.replicas, replica_id), true) as was_replica,
      coalesce(list_contains(next.replicas, replica_id), true) as is_replica
    from candidates asof left join states as last
      on candidates.topic = last.topic and candidates.partition = last.partition
        and response_time >= last.time
    asof left join states as next
      on candidates.topic = next.topic and candidates.partition = next.partition
        and response_time < next.time),
  later as (
    select pairs.*, confirmed_time
    from pairs asof left join confirmations
      on pairs.topic = confirmations.topic and pairs.partition = confirmations.partition
        and pairs.log = confirmations.log and pairs.replica_id = confirmations.replica_id
        and pairs.last_offset < confirmations."offset")
  select later.*,
    {not_negative(ms_between("greatest(time, earlier_time)", "later.confirmed_time"))} as delay_ms,
    try(last_offset + 1 - confirmations."offset") as behind,
    coalesce(acks = -1 and coalesce(later.confirmed_time > response_time, is_replica)
      and coalesce(gaps.until < time, true), false) as is_without
  from later asof left join confirmations
    on later.topic = confirmations.topic and later.partition = confirmations.partition
      and later.log = confirmations.log and later.replica_id = confirmations.replica_id
      and time >= confirmations.confirmed_time
    asof left join {_GAPS} as gaps
    on later.topic = gaps.topic and later.partition = gaps.partition
      and later.replica_id = gaps.replica_id and response_time >= gaps.since
  where was_replica or later.confirmed_time is not null)"""
"""SQL: a row for each Produce and follower, with the time of its confirmation, and how many records
the follower was behind when the request was sent."""

_FOLLOWERS: Final = f"""
  with steps as (
    select replica_id, request_time, lag(request_time) over (
      partition by replica_id order by request_time) as previous
    from exchanges join (
      select distinct connection_id, replica_id from {_FETCHES}) using (connection_id)
    where api = 'Fetch'),
  pauses as (
    select replica_id, max({ms_between("previous", "request_time")}) as pause_max_ms
    from steps group by all),
  fetches as (
    select topic, partition, replica_id,
      string_agg(distinct leader, ', ' order by leader) as leaders,
      count(*) as fetches, coalesce(sum(bytes), 0) as bytes, min(time) as first_time,
      max(time) as last_time, min(nth) as nth
    from {_FETCHES} group by all),
  delays as (
    select topic, partition, replica_id, count(confirmed_time) as confirmed,
      {_quantiles("delay")},
      max(delay_ms) as delay_max_ms, max(behind) as lag_max,
      count(*) filter (is_without) as without,
      min(response_time) filter (is_without) as first_without,
      max(response_time) filter (is_without) as last_without
    from {_CONFIRMED} group by all)
  select fetches.*, delays.* exclude (topic, partition, replica_id)
      replace (coalesce(confirmed, 0) as confirmed, coalesce(without, 0) as without), pause_max_ms
  from fetches left join delays using (topic, partition, replica_id)
    left join pauses using (replica_id)
  order by delay_max_ms desc, nth"""

_PRODUCERS: Final = f"""
  with ends as (
    select {EXCHANGE}, client_id, topic, response_time,
      greatest(request_end_time, earlier_time) as read_time, max(confirmed_time) as end_time
    from {_CONFIRMED} where acks = -1 and confirmed_time <= response_time group by all),
  waits as (
    select *, {not_negative(ms_between("read_time", "response_time"))} as latency_ms,
      {not_negative(ms_between("read_time", "end_time"))} as follower_ms
    from ends)
  select client_id, topic, count(*) as requests, {_quantiles("latency")},
    {_quantiles("follower")},
    100 * {sum_of_ms("follower_ms")} / nullif({sum_of_ms("latency_ms")}, 0) as follower_percent
  from waits group by all order by follower_p99_ms desc, client_id, topic"""
