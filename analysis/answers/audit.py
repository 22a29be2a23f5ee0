"""Audit: which client wrote and read which offsets of each partition.

Only offsets and counts are used, never a key or a value.

    $ kafka-dissector audit captures/kafka-4-java.pcap.zst | head -8

**How to read it.** Each row is a range of adjacent offsets that one client wrote or read. A record
was read by the clients whose ranges contain its offset.

**What to do.** If a consumer misses records, compare its ranges with those of the producers:
offsets outside its ranges were never delivered to it. Overlapping ranges were read twice, for
example after a rebalance without a commit.

**How it is computed.** Adjacent and overlapping offsets are joined into one range. Records that
were fetched or sent twice count twice. Produced ranges are taken from the responses of the broker:
a Produce with acks=0, or without a response, has no offsets, and a refused one is omitted. Fetched
records include transaction markers, which applications do not get, and aborted records, which they
get only with read_uncommitted. If a topic was deleted and created again, each of its logs has its
own ranges.

**Limitations.** Compressed message sets of Kafka 0.x have no count of their messages, so a produced
range may end too early. Gaps due to compaction and transaction markers are not losses.
"""

from __future__ import annotations

from typing import Final

from analysis.answers import ArrowTable, Tables, answer, select
from analysis.columns import Column, columns_of, first_and_last
from analysis.sql.expressions import grouped
from analysis.sql.record_flow import RECORD_FLOW
from analysis.sql.topic_logs import with_log

_KEY: Final = ("topic", "partition", "action", "client_id", "groups", "client", "software")

_RANGES: Final = f"""(
  with offsets as (
    select *, coalesce(last_offset, "offset") as ends,
      -- A ShareFetch has no offset: it gets records that the group has not seen.
      coalesce("offset", try(ends - record_count + 1)) as begins
    from {with_log(RECORD_FLOW)} where bytes > 0 and coalesce(error_code, 0) = 0),
  reached as (
    select *, try(begins - 1) <= max(ends) over (
      partition by {", ".join(_KEY)}, log order by begins, nth
      rows between unbounded preceding and 1 preceding) as follows
    from offsets)
  -- Batches without known offsets are one range of their own.
  select *, case when begins is null then -1 else sum((not coalesce(follows, false))::int) over (
    partition by {", ".join(_KEY)}, log order by begins, nth rows unbounded preceding) end as range
  from reached)"""
"""SQL: batches in flow, each with the number of its range of offsets within `_KEY`."""


@answer(
    question="Which offsets of each partition were written and read, and by which clients?",
    place=14,
    tables=("partitions", "exchanges", "connections"),
    rows="offsets that were written or read",
    columns=(
        *columns_of("partitions", "topic", "partition"),
        Column("action", "string", "produces, consumes or replicates"),
        Column("first_offset", "int64", "first offset of the range; null if unknown"),
        Column("last_offset", "int64", "last offset of the range"),
        Column("records", "int64", "records in the range; null if no header has their count"),
        Column("bytes", "int64", "size of their batches", "bytes"),
        Column("requests", "int64", "requests that carried them"),
        *columns_of("partitions", "client_id"),
        Column("groups", "string", "groups in which the client consumes, separated by commas"),
        Column("client", "string", "address of the client"),
        Column("software", "string", "name and version of the client's software, if known"),
        *first_and_last("request"),
    ),
    essential="topic partition action first_offset last_offset client_id",
    useful="records groups",
)
def audit(tables: Tables) -> ArrowTable:
    """Ranges of offsets that one client wrote or read, in order of partition."""
    query = grouped(
        _RANGES,
        (*_KEY, "log", "range"),
        ", ".join((*_KEY, "first_offset", "first_time")),
        first_offset="min(begins)",
        last_offset="max(ends)",
        records="sum(record_count)",
        bytes="sum(bytes)",
        requests="count(*)",
        first_time="min(time)",
        last_time="max(time)",
    )
    return select(tables, query)
