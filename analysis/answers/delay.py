"""Delay: the time from the produce request of a record to the first fetch that returns it.

Records are produced and fetched on different connections, by different clients, often on different
hosts of a cluster. Topic, partition and offset identify a record.

    $ kafka-dissector delay captures/kafka-4-net-delay.pcap.zst

**How to read it.** The delay is the time that an event takes to pass through Kafka. `produced`
counts batches, and `fetched` those that a reader fetched in the capture. A reader is a client:
`--by topic,reader` has a row for each, and `--by minute` shows when the delay grew.

**What to do.** If the delay is large although the `latency` of Produce is small, the reader is
slow: see `lag` and `fetches`. If all readers have a large delay, see `replication`. Transactions
delay readers with read_committed until they commit: see `stuck`.

**How it is computed.** The delay begins with the first byte of the Produce request. It ends with
the first byte of the response with which a reader receives the last record of the request. It
includes the replication, before which no broker returns the record, the time until the reader
fetches it, and for a read_committed reader also the rest of the transaction. Repeated fetches of a
record do not count, nor do fetches of replicas.

**Limitations.** The capture must contain both connections, with one clock. Records that were
produced with acks=0 have no offset and are omitted. A record that was lost (rule `lost_records` of
`diagnose`) counts as fetched if a reader receives the record that has its offset now. The time in
the queue of the producer is not included: see `batching`.
"""

from __future__ import annotations

from typing import Final

from analysis.answers import ArrowTable, Tables, answer, grouped_by, select
from analysis.columns import Column, first_and_last
from analysis.sql.expressions import By, column_names, grouped, ms_between, quantiles, with_columns
from analysis.sql.topic_logs import with_log

BY: Final = ("topic", "partition", "producer", "reader")
"""Columns to group by; `producer` and `reader` are client ids. With `reader`, every reader of a
partition counts; without it, only the first reader of a record. An interval, such as ``minute``, is
that of the produce request."""


@answer(
    question="How long does a record take from its produce request to its first fetch?",
    place=9,
    tables=("partitions",),
    options=(grouped_by(f"{', '.join(BY)}, or an interval such as minute"),),
    rows="produce requests with an acknowledged offset",
    columns=(
        Column("produced", "int64", "batches that were acknowledged with an offset"),
        Column("fetched", "int64", "batches whose records a reader received"),
        Column("p50_ms", "double", "median of the delay", "ms"),
        Column("p95_ms", "double", "0.95 quantile of the delay", "ms"),
        Column("p99_ms", "double", "0.99 quantile of the delay", "ms"),
        Column("max_ms", "double", "longest delay", "ms"),
        Column("slowest_offset", "int64", "offset of the record with the longest delay"),
        *first_and_last("produce request"),
    ),
    essential="p50_ms p99_ms max_ms",
    useful="produced fetched",
)
def delay(tables: Tables, *, by: By = ("topic", "partition")) -> ArrowTable:
    """The delay, in groups; the longest median first."""
    has_readers = "reader" in column_names(by)
    rows, columns = (_PAIRS, BY) if has_readers else (_FIRSTS, BY[:-1])
    query = grouped(
        with_columns(rows, by, "", *columns, "time"),
        by,
        "p50_ms desc, min(nth)",
        produced="count(*)",
        fetched="count(delay_ms)",
        **quantiles("delay_ms"),
        max_ms="max(delay_ms)",
        slowest_offset="arg_min(last_offset, (-delay_ms, nth)) filter (delay_ms is not null)",
        first_time="min(time)",
        last_time="max(time)",
    )
    return select(tables, query)


_PAIRS: Final = f"""(
  with successful as (
    from {with_log("partitions")} where error_code = 0 and topic is not null),
  fetches as (
    select topic, partition, log, coalesce(client_id, '') as reader, response_time as fetch_time,
      last_offset, coalesce("offset", try(last_offset - record_count + 1), 0) as first_offset
    from successful
    where api in ('Fetch', 'ShareFetch') and replica_id is null and last_offset is not null
      and response_time is not null
    -- Fetches that advance the reader, without those of earlier offsets.
    qualify last_offset > coalesce(max(last_offset) over (
      partition by topic, partition, log, reader order by response_time, nth
      rows between unbounded preceding and 1 preceding), -1)),
  produced as (
    select successful.* replace (coalesce(last_offset, "offset") as last_offset), reader
    from successful
      left join (select distinct topic, partition, log, reader from fetches)
        using (topic, partition, log)
    where api = 'Produce' and "offset" is not null)
  select produced.nth, produced.topic, produced.partition, produced.client_id as producer,
    produced.reader, time, produced.last_offset,
    case when first_offset <= produced.last_offset and fetch_time > time
      then {ms_between("time", "fetch_time")} end as delay_ms
  from produced asof left join fetches
    on produced.topic = fetches.topic and produced.partition = fetches.partition
      and produced.log = fetches.log and produced.reader = fetches.reader
      and produced.last_offset <= fetches.last_offset)"""
"""SQL: produce requests, a row for each reader of the partition, with the delay until the reader
received the last record; null if it did not receive it, or had it before."""

_FIRSTS: Final = f"""(
  select nth, topic, partition, producer, time, last_offset, min(delay_ms) as delay_ms
  from {_PAIRS} group by all)"""
"""SQL: the same, with only the first reader of the record."""
