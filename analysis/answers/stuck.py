"""Stuck: partitions whose last stable offset does not advance, and the transaction that blocks it.

A consumer with isolation.level=read_committed reads up to the last stable offset: the start of the
oldest open transaction. A transaction that does not end blocks all of these consumers, even for
records of other producers. Their lag grows, although neither they nor the broker report an error.

    $ kafka-dissector stuck captures/kafka-4-stuck.pcap.zst
    $ kafka-dissector stuck captures/kafka-4-stuck.pcap.zst --show lag

**How to read it.** In the first table, a row is an offset at which the last stable offset of a
partition stayed for at least `--min-ms`. `is_open` is true if it was still there at the end of the
capture. `held` is the number of offsets after it that read_committed consumers cannot read yet. In
the second table, `stable_lag` is what a read_committed consumer can still read, and `lag` is the
distance to the end. A stable lag of 0 with a large lag indicates a stuck partition.

**What to do.** Find the application by its transactional id and client. It may have stopped: the
broker then aborts the transaction after `timeout_ms`, if this is known (transaction.timeout.ms). To
abort it at once, use `kafka-transactions.sh abort` with the topic, the partition and `offset`. If
no producer is shown, the transaction began before the capture: `kafka-transactions.sh find-hanging`
lists transactions that the coordinator does not know. Long transactions that do end are due to a
setting of the application, for example the commit interval of Kafka Streams or Flink.

**How it is computed.** Each Fetch response has the high watermark and the last stable offset of its
partitions, also for read_uncommitted consumers and followers. A fetch session (KIP-227) omits
partitions without new records, whose offsets have not changed. The transaction is that of the
produced or fetched batch at the offset. `start_time` is the time of its Produce request or, if the
capture does not contain it, of the first response with this offset. `end_time` is the time of the
response to EndTxn or WriteTxnMarkers, or of the first response with a later offset.

**Limitations.** A partition without a Fetch in the capture is missing. So is a partition that only
clients older than Kafka 0.11 fetch, because their responses have no last stable offset. If the
capture does not contain the end of the transaction, only the next Fetch shows it. The duration is
then too long by at most the time between two Fetches.
"""

from __future__ import annotations

from typing import Final

from analysis.answers import ArrowTable, Option, Tables, Variant, answer, select
from analysis.answers.lag import LAST
from analysis.answers.producers import NAMES
from analysis.columns import Column, columns_of
from analysis.sql.expressions import ms_between, not_negative
from analysis.sql.intermediate import intermediate_table
from analysis.sql.topic_logs import with_log

_PARTITION: Final = columns_of("partitions", "topic", "partition")

LAG_COLUMNS: Final = (
    Column("group_id", "string", "id of the group; null for a reader without a group"),
    *columns_of("partitions", "client_id"),
    *_PARTITION,
    Column(
        "isolation_level", "string",
        "isolation level of the client's Fetches of the topic; null in old versions",
    ),
    Column("offset", "int64", "committed offset; without one, the offset that it fetches next"),
    Column("last_stable_offset", "int64", "last stable offset of the partition; null if unknown"),
    Column("end_offset", "int64", "end of the partition"),
    Column(
        "stable_lag", "int64", "records from the offset to the last stable offset; null if unknown"
    ),
    Column("lag", "int64", "records from the offset to the end"),
)  # fmt: skip


@answer(
    question="Which partitions does an open transaction hold back, since when, and for whom?",
    place=18,
    tables=("partitions", "exchanges", "batches", "transactions"),
    options=(
        Option("show", "Show held offsets, or the lag of readers"),
        Option(
            "min_ms",
            "Show offsets that did not advance for at least this time, in ms",
            needs=("show", "offsets"),
        ),
    ),
    rows="partitions with a last stable offset that stands still",
    columns=(
        *_PARTITION,
        Column("offset", "int64", "last stable offset: start of the transaction"),
        Column("is_open", "bool", "whether the offset was still there at the end of the capture"),
        Column("held", "int64", "offsets from there to the high watermark"),
        Column("duration_ms", "double", "time from start to end, or to the last Fetch", "ms"),
        Column("transactional_id", "string", "transactional id of the producer"),
        Column("producer_id", "int64", "producer id"),
        Column("producer_epoch", "int64", "producer epoch"),
        Column("client_id", "string", "client id of the producer"),
        Column("timeout_ms", "int64", "transaction timeout of the producer", "ms"),
        Column("readers", "string", "read_committed clients that fetched meanwhile"),
        Column("start_time", "time", "time of the first write, or first Fetch with this offset"),
        Column("end_time", "time", "time of the end, or of the first Fetch with a later offset"),
    ),
    variants=(Variant("show", "lag", LAG_COLUMNS, rows="readers of partitions"),),
    essential="group_id topic partition stable_lag lag is_open held duration_ms transactional_id",
    useful="offset client_id start_time readers isolation_level producer_id",
    lists_problems=True,
)
def stuck(tables: Tables, *, show: str = "offsets", min_ms: int = 1000) -> ArrowTable:
    """Last stable offsets that stood still; those that still do first, then the longest.

    With ``show="lag"``, a row for each reader of a partition, the largest lag first.
    """
    if show == "lag":
        return select(tables, _LAG)
    return select(
        tables,
        f"from {_HELD} where duration_ms >= {min_ms} "
        "order by is_open desc, duration_ms desc, topic, partition",
    )


def _seen(rows: str = "partitions") -> str:
    """SQL: Fetch responses with the largest last stable offset so far: a follower has an older one.

    A fetch session (KIP-227) omits a partition while its high watermark stays the same. So its
    offsets are the same until `same_until`: the last Fetch of the connection, or the first that
    removes partitions from the session. `rows`: those of `partitions` with some of the topics.
    """
    return f"""(
  with fetches as (
    from exchanges semi join {rows} using (connection_id) where api = 'Fetch'),
  isolation as (
    select connection_id, correlation_id, request_time as time, isolation_level, partition_count
    from fetches),
  sessions as (
    select connection_id, max(response_time) as session_end from fetches
    group by all having bool_or(coalesce(partition_count, 0) = 0)),
  requested as (
    select connection_id, correlation_id, time, count("offset") as named, count(*) as listed
    from partitions semi join fetches using (connection_id) where api = 'Fetch' group by all),
  -- More partitions than the request reads: the others leave the session.
  removals as (
    select connection_id, time as removal from isolation left join requested
      using (connection_id, correlation_id, time)
    where partition_count > case when named > 0 then named else coalesce(listed, 0) end),
  named as (
    select *, max(response_time) over (
      partition by connection_id, topic, partition, log) as last_named
    from {with_log(rows)}
    -- A session's request may name a partition that the response omits.
    where api = 'Fetch' and (error_code != 0 or high_watermark is not null))
  select topic, partition, log, response_time, high_watermark, client_id, isolation_level,
    replica_id, case when response_time = last_named and session_end is not null
      then least(session_end, removal) end as same_until,
    named.nth, max(last_stable_offset) over (
      partition by topic, partition, log order by response_time, named.nth
      rows unbounded preceding) as stable
  from named left join isolation using (connection_id, correlation_id, time)
    left join sessions using (connection_id) asof left join removals
      on named.connection_id = removals.connection_id and last_named < removal
  where error_code = 0 and topic is not null and response_time is not null
    and last_stable_offset is not null and high_watermark is not null)"""


_HELD_TOPICS: Final = intermediate_table("held_topics", """
  select distinct topic from partitions
  where api = 'Fetch' and high_watermark > last_stable_offset""")  # fmt: skip
_HELD_BACK: Final = f"(from partitions semi join {_HELD_TOPICS} using (topic))"
"""SQL: partitions of topics with a last stable offset behind the high watermark."""

_HELD: Final = f"""(
  with seen as {_seen(_HELD_BACK)},
  stops as (
    select topic, partition, log, stable as "offset", max(high_watermark) as highest,
      min(response_time) filter (high_watermark > stable) as first_seen,
      max(coalesce(same_until, response_time)) as last_seen,
      string_agg(distinct client_id, ', ' order by client_id)
        filter (isolation_level = 'read_committed' and replica_id is null) as readers
    from seen group by all),
  firsts as (
    select topic, partition, log, stable as "offset", min(response_time) as since
    from seen group by all),
  ends as (
    select topic, partition, log, "offset",
      lead(since) over (partition by topic, partition, log order by "offset") as end_time
    from firsts),
  writes as (
    select topic, partition, log, base_offset as "offset", arg_min(producer_id, nth) as producer_id,
      arg_min(producer_epoch, nth) as producer_epoch,
      min(case when api = 'Produce' then time end) as written
    from {with_log("batches", "time")} where is_transactional and not is_control group by all),
  timeouts as (
    select given_producer_id as producer_id, max(transaction_timeout_ms) as timeout_ms
    from transactions where api = 'InitProducerId' group by all),
  finished as (
    select producer_id, response_time as finished_time from transactions
    where api in ('EndTxn', 'WriteTxnMarkers') and error_code = 0 and producer_id is not null
      and response_time is not null),
  placed as (
    select stops.*, try(highest - "offset") as held, producer_id, producer_epoch,
      least(first_seen, written) as start_time, end_time as seen_end
    from stops join ends using (topic, partition, log, "offset")
      left join writes using (topic, partition, log, "offset")
    where first_seen is not null),
  ended as (
    select placed.*, least(seen_end, finished_time) as end_time, end_time is null as is_open
    from placed asof left join finished
      on placed.producer_id = finished.producer_id and start_time <= finished_time)
  select *, {ms_between("start_time", "coalesce(end_time, last_seen)")} as duration_ms
  from ended left join {NAMES} using (producer_id) left join timeouts using (producer_id))"""
"""SQL: each last stable offset behind the high watermark, with its transaction."""

_LAG: Final = f"""
  with seen as {_seen()},
  stable_offsets as (
    select topic, partition, arg_max(stable, (response_time, nth)) as last_stable_offset
    from seen group by all),
  levels as (
    select client_id, topic, arg_max(isolation_level, (response_time, nth)) as isolation_level
    from seen group by all)
  select last.* exclude (lag), levels.isolation_level, last_stable_offset,
    coalesce(committed_offset, position) as "offset",
    {not_negative('try(last_stable_offset - "offset")')} as stable_lag,
    {not_negative('try(end_offset - "offset")')} as lag
  from ({LAST}) as last left join stable_offsets using (topic, partition)
    left join levels using (client_id, topic)
  where "offset" is not null
  order by lag desc, last.group_id, last.topic, last.partition, last.client_id"""
"""SQL: the lag of each reader to the last stable offset and to the end."""
