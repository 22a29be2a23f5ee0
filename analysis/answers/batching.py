"""Batching: how well producers fill and compress their batches, and which acks they request.

The cost of a request to a broker hardly depends on its size, so small batches are the main cause of
load on a busy cluster. The producer controls them with linger.ms and batch.size.

    $ kafka-dissector batching captures/bulk-tansu.pcap.zst

    $ kafka-dissector batching captures/chatter-mock.pcap.zst

**How to read it.** `records_p50` and `bytes_p50` are medians over batches; one record per batch is
the worst case. `ratio` is the size without compression divided by the size on the wire.
`age_p50_ms` is the time that the first record of a batch waited in the producer.

**What to do.** For small batches at a high rate, set linger.ms to 5 or more, and raise batch.size
if batches reach it. Without a codec, set compression.type to lz4 or zstd. Clients that flush after
each record defeat both settings.

**How it is computed.** The time to fill a batch is not on the wire, but the timestamp of its first
record is. The age of this record when the request was sent is linger.ms plus the time in the queue
of the producer.

Before Kafka 0.11, producers sent message sets. The messages of a request for a partition are one
batch here, but a row each in the table `batches`.

**Limitations.** The age depends on the clock of the producer: it is null if this clock is more than
a second ahead, and too long if it is behind. It is measured only if the timestamps of records are
their creation times. If an application sets timestamps itself, for example those of old events, the
age is wrong.
"""

from __future__ import annotations

from typing import Final

from analysis.answers import ArrowTable, Tables, answer, grouped_by, select
from analysis.columns import Column
from analysis.sql.expressions import (
    EXCHANGE,
    By,
    by_frequency,
    first_record_age_ms,
    grouped,
    of_exchange,
    with_columns,
)


@answer(
    question="Do producers batch and compress well, and which acks do they request?",
    place=13,
    tables=("decompressed_batches", "exchanges", "connections"),
    options=(grouped_by("any column of batches, or broker, client, software, minute, 10s"),),
    rows="produced batches",
    columns=(
        Column("batches", "int64", "produced batches"),
        Column("requests", "int64", "requests that carried them"),
        Column("records", "int64", "records in the batches; null if no header has their count"),
        Column("records_p50", "double", "median number of records in a batch"),
        Column("bytes", "int64", "total size of the batches", "bytes"),
        Column("bytes_p50", "double", "median size of a batch", "bytes"),
        Column("bytes_max", "int64", "size of the largest batch", "bytes"),
        Column("codecs", "string", "codecs, separated by commas, the most frequent first"),
        Column("ratio", "double", "compression ratio: uncompressed size / compressed size"),
        Column("acks", "string", "requested acks, separated by commas; -1 is all"),
        Column("age_p50_ms", "double", "median age of the first record when it was sent", "ms"),
        Column("age_max_ms", "double", "largest age of a first record", "ms"),
    ),
    essential="batches records_p50 bytes_p50 codecs",
    useful="ratio acks age_p50_ms",
)
def batching(tables: Tables, *, by: By = ("client_id", "topic")) -> ArrowTable:
    """Batches in Produce requests, in groups; the group with the most batches first."""
    query = grouped(
        with_columns(_PRODUCED, by, "decompressed_batches", *_ENDS, "acks"),
        by,
        "count(*) desc, min(nth)",
        batches="count(*)",
        requests=f"count(distinct ({EXCHANGE}))",
        records="sum(record_count)",
        records_p50="median(record_count)",
        bytes="sum(bytes)",
        bytes_p50="median(bytes)",
        bytes_max="max(bytes)",
        codecs=by_frequency("codec"),
        ratio="sum(uncompressed_bytes) / "
        "nullif(sum(bytes) filter (uncompressed_bytes is not null), 0)",
        acks=by_frequency("acks"),
        age_p50_ms="median(age_ms)",
        age_max_ms="max(age_ms)",
    )
    return select(tables, query)


_ENDS: Final = ("client_ip", "client_port", "broker_ip", "broker_port")

_MESSAGE_SETS: Final = f"""
  select * replace (
    cast(sum(record_count) over messages as bigint) as record_count,
    cast(sum(bytes) over messages as bigint) as bytes,
    cast(sum(uncompressed_bytes) over messages as bigint) as uncompressed_bytes,
    min(base_timestamp) over messages as base_timestamp)
  from decompressed_batches where api = 'Produce' and magic < 2
  window messages as (partition by {EXCHANGE}, topic, partition)
  qualify row_number() over messages = 1"""
"""SQL: message sets, as batches."""

_PRODUCED: Final = f"""(
  with produced as (
    from decompressed_batches where api = 'Produce' and (magic < 2) is not true
    union all by name {_MESSAGE_SETS})
  select produced.*, {", ".join(_ENDS)}, acks,
    {first_record_age_ms("produced.time")} as age_ms
  from produced left join connections using (connection_id)
    left join {of_exchange("acks", "request_time", "produced")} using ({EXCHANGE}))"""
"""SQL: produced batches, with the addresses of their connection, the acks of their request, and the
age of their first record when it was sent."""
