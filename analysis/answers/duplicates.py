"""Duplicates: batches that producers sent again, and the duplicate records in the log.

A producer that gets no response sends the batch again. An idempotent producer (KIP-98) numbers its
batches, so the broker stores each of them once. Without idempotence, the broker also stores the
second copy, and a retry may be stored after later batches.

    $ kafka-dissector duplicates captures/kafka-4-resent.pcap.zst
    $ kafka-dissector duplicates captures/kafka-4-resent.pcap.zst --show batches

**How to read it.** In the first table, a row is a producer of a partition with such batches;
producers without any have no row. `resent` counts copies of batches that were sent before, and
`duplicate_records` counts records that are in the log more than once, without their first copy.
`out_of_order` are batches that are in the log after a batch of the same producer with later
timestamps. In the second table, a row is a batch with all its copies; `offsets` are their offsets
in the log.

**What to do.** Set enable.idempotence=true and acks=all in producers with duplicate records or
batches out of order. Retries without duplicates are harmless, but they mean that responses were
late or connections broke: see `latency`, `unanswered` and `network`. New epochs are new
transactions, or a second producer with the same transactional id: see `producers`, which also lists
gaps in sequence numbers.

**How it is computed.** Copies of a batch have the same checksum, number of records, size and first
timestamp, in the same partition. With an idempotent producer, they also have the same sequence
number, and `evidence` is seen. With other producers, `evidence` is inferred: a batch counts as sent
again if the previous copy was on another connection, or had an error. Producers that get no
response retry on a new connection; with acks=0 they do not retry. Offsets of copies are taken from
Produce responses and fetched batches.

**Limitations.** The application may send equal records itself; they count as duplicates only if
they are in equal batches that also look like a retry. A copy that has no response, and that no
consumer fetched in the capture, may be in the log without being counted. librdkafka may put the
records of a failed batch into another batch; such copies are not found. Batches look out of order
if the application sets timestamps itself or produces from several threads, or if the log lost
batches in a truncation (see the rule lost_records of diagnose). A capture of both sides of a proxy
or of address translation shows each batch twice: see `quality`.
"""

from __future__ import annotations

from typing import Final

from analysis.answers import ArrowTable, Option, Tables, Variant, answer, select
from analysis.columns import Column, columns_of, first_and_last
from analysis.sql.topic_logs import with_log

_PLACE: Final = columns_of("batches", "client_id", "topic", "partition")

BATCH_COLUMNS: Final = (
    *_PLACE,
    *first_and_last("copy"),
    Column("sent", "int64", "copies that were sent"),
    Column("stored", "int64", "copies that are in the log, if known"),
    Column("offsets", "string", "first offsets of the copies in the log"),
    Column("records", "int64", "records in the batch"),
    *columns_of("batches", "bytes", "producer_id", "base_sequence"),
    Column("evidence", "string", "seen or inferred"),
)


@answer(
    question="Which batches were sent again, and which records are in the log twice or out of "
    "order?",
    place=20,
    tables=("batches",),
    options=(Option("show", "Show producers, or the batches sent again"),),
    rows="batches that were sent again or are out of order",
    columns=(
        *_PLACE,
        Column("idempotent", "bool", "whether the producer is idempotent"),
        Column("batches", "int64", "sent batches, without copies"),
        Column("resent", "int64", "copies of batches that were sent before"),
        Column("unacknowledged", "int64", "batches of which no copy has a response without error"),
        Column("duplicate_batches", "int64", "copies in the log, besides the first of each batch"),
        Column("duplicate_records", "int64", "records in these copies"),
        Column("out_of_order", "int64", "batches in the log after one with later timestamps"),
        Column("epochs", "int64", "producer epochs"),
        Column("evidence", "string", "seen or inferred"),
        *first_and_last("batch"),
    ),
    variants=(Variant("show", "batches", BATCH_COLUMNS, rows="batches that were sent again"),),
    essential=(
        "client_id topic partition duplicate_records resent out_of_order sent stored offsets "
        "records"
    ),
    useful="idempotent duplicate_batches batches unacknowledged evidence first_time",
    lists_problems=True,
)
def duplicates(tables: Tables, *, show: str = "producers") -> ArrowTable:
    """Producers of a partition with batches sent again or out of order, most duplicates first.

    With ``show="batches"``, a row for each batch that was sent again, in order of time.
    """
    if show == "batches":
        return select(
            tables, f"from {_COPIES} where sent > 1 or stored > 1 order by first_time, nth"
        )
    query = f"""
      with copies as (
        select *, first_offset is not null and timestamp_type = 'create_time'
          and base_timestamp < max(base_timestamp) over (
            partition by topic, partition, log, client_id, producer_id order by first_offset, nth
            rows between unbounded preceding and 1 preceding) as is_late
        from {_COPIES})
      select client_id, topic, partition, producer_id is not null as idempotent,
        count(*) as batches, sum(sent - 1) as resent, count(*) filter (not acknowledged)
          as unacknowledged,
        sum(greatest(stored - 1, 0)) as duplicate_batches,
        sum(greatest(stored - 1, 0) * records) as duplicate_records,
        count(*) filter (is_late) as out_of_order,
        count(distinct producer_epoch) as epochs, min(evidence) as evidence,
        min(first_time) as first_time, max(last_time) as last_time
      from copies group by all
      having resent > 0 or duplicate_batches > 0 or out_of_order > 0
      order by duplicate_records desc, out_of_order desc, resent desc, min(nth)"""
    return select(tables, query)


_CONTENT: Final = "topic, partition, crc, record_count, bytes, base_timestamp"
"""Columns that are equal in all copies of a batch."""

_COPIES: Final = f"""(
  with sent as (
    select *, lag(connection_id) over copies as previous_connection,
      lag(error_code) over copies as previous_error, row_number() over copies as number
    from batches
    where api = 'Produce' and topic is not null and partition is not null and not truncated
    window copies as (partition by {_CONTENT} order by time, nth)),
  numbered as (
    -- Without idempotence, equal batches that do not look like a retry are different batches.
    select *, sum((number = 1 or (producer_id is null and previous_connection = connection_id
        and coalesce(previous_error, 0) = 0))::int) over (
      partition by {_CONTENT} order by time, nth rows unbounded preceding) as original
    from sent),
  originals as (select {_CONTENT}, max(original) as originals from numbered group by all),
  places as (
    -- The id of a fetched copy is better than that of another row.
    select {_CONTENT}, base_offset, coalesce(min(topic_id), min(log)) as log
    from {with_log("batches", "time", "batches")}
    where base_offset is not null and topic is not null and not truncated
      and (api != 'Produce' or error_code = 0)
    group by all),
  stored as (
    select {_CONTENT}, count(*) as stored, min(base_offset) as first_offset,
      arg_min(log, base_offset) as log,
      string_agg(base_offset::varchar, ', ' order by base_offset) as offsets
    from places group by all),
  batches_sent as (
    select {_CONTENT}, original, arg_min(client_id, nth) as client_id,
      arg_min_null(producer_id, nth) as producer_id,
      arg_min_null(producer_epoch, nth) as producer_epoch,
      arg_min_null(base_sequence, nth) as base_sequence,
      arg_min_null(timestamp_type, nth) as timestamp_type,
      count(*) as sent,
      bool_or(coalesce(error_code = 0, false)) as acknowledged,
      min(time) as first_time, max(time) as last_time, min(nth) as nth
    from numbered group by all)
  select batches_sent.* exclude (record_count), record_count as records,
    case when producer_id is not null then 'seen' else 'inferred' end as evidence,
    -- Equal originals cannot be distinguished in the log.
    case when originals = 1 then coalesce(stored, 0) else sent end as stored,
    case when originals = 1 then offsets end as offsets, first_offset, log
  from batches_sent join originals using ({_CONTENT}) left join stored using ({_CONTENT}))"""
"""SQL: each sent batch with the number of its copies, and their places in the log."""
