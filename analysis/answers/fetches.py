"""Fetches: whether consumers get their records in few large responses, or in many small ones.

The cost of a Fetch to a broker hardly depends on its size, so empty and small responses are the
main cause of load from consumers. A broker responds when it has fetch.min.bytes for the request, or
after fetch.max.wait.ms; each request contains these settings and the size limits.

    $ kafka-dissector fetches captures/kafka-4-tuned.pcap.zst

**How to read it.** `finding` is the pattern of the requests:

- busy: most responses are empty, more than 10 of them, at more than 10 requests per second;
- small: most responses with records have less than 1,024 bytes of them, at the same rate;
- limited: most responses with records reach a size limit of the request;
- idle: most responses are empty, at a low rate. The topics have no new records.

**What to do.** For busy, set fetch.min.bytes to 1 and fetch.max.wait.ms to 500, their defaults. For
small, raise fetch.min.bytes, for example to 50,000; records may then arrive up to fetch.max.wait.ms
later. For limited, raise max.partition.fetch.bytes or fetch.max.bytes, in particular if `lag`
grows. Idle needs no action.

**How it is computed.** A fetch session (KIP-227) omits partitions without changes, so most empty
Fetches name no topic. `topics` therefore contains all topics that the connection fetched from in
the capture. `wait_p50_ms` is the wait for data, as in `latency`. A response reaches a limit if a
partition has at least max.partition.fetch.bytes, or all of them fetch.max.bytes. Responses without
records that have an error or a throttle time count only in `requests`: a broker does not send the
records with which a client would exceed its quota (KIP-219). Incomplete responses also count only
in `requests`. `records` include transaction markers, which applications do not get, and aborted
records, which they get only with read_uncommitted.

**Limitations.** Two consumers with the same client id are one row, with the sum of their rates.
Brokers also send Fetches, to replicate and to read the metadata of the cluster; their client ids
are broker-ID-fetcher-NUMBER and raft-client-ID.
"""

from __future__ import annotations

from typing import Final

from analysis.answers import ArrowTable, Tables, answer, grouped_by, select
from analysis.columns import Column, first_and_last
from analysis.sql.expressions import (
    EXCHANGE,
    PER_SECOND,
    PER_SECOND_COLUMN,
    By,
    by_frequency,
    grouped,
    quoted,
    with_columns,
)
from analysis.sql.latency_breakdown import exchanges_with_parts

SMALL_BYTES: Final = 1024
"""Responses with fewer bytes of records are small."""

BUSY_PER_S: Final = 10
"""Empty or small responses at this rate are a load: a wait of 100 ms would avoid most of them.
There must be as many of them, because the rate of a few requests has no meaning."""

_FETCHES: Final = "('Fetch', 'ShareFetch')"


@answer(
    question="How efficient are fetches, which are empty or small, and which settings cause this?",
    place=16,
    tables=("exchanges", "partitions", "batches", "connections"),
    options=(grouped_by("any column of exchanges, or broker, client, software, topic"),),
    rows="responses to Fetch and ShareFetch",
    columns=(
        Column("finding", "string", "busy, small, limited or idle; null if none of them"),
        Column("requests", "int64", "requests with a response"),
        PER_SECOND_COLUMN,
        Column("empty", "int64", "responses without records"),
        Column("small", "int64", "responses with records of less than 1,024 bytes"),
        Column("limited", "int64", "responses that reach a size limit of the request"),
        Column(
            "bytes_p50", "double", "median size of the records in a non-empty response", "bytes"
        ),
        Column("bytes", "int64", "size of all records; null if all are unknown", "bytes"),
        Column(
            "cut_bytes",
            "int64",
            "size of batches that a limit truncated; the client fetches them again",
            "bytes",
        ),
        Column("records", "int64", "fetched records; null if no header has their count"),
        Column("overhead_percent", "double", "share of bytes that are not records", "%"),
        Column("wait_p50_ms", "double", "median wait for data", "ms"),
        Column("min_bytes", "string", "fetch.min.bytes, the most frequent value first"),
        Column("max_wait_ms", "string", "fetch.max.wait.ms, the most frequent value first", "ms"),
        Column(
            "partition_max_bytes", "string", "max.partition.fetch.bytes, the most frequent first"
        ),
        Column("max_bytes", "string", "fetch.max.bytes, the most frequent value first"),
        Column("isolation_level", "string", "isolation levels, the most frequent first"),
        *first_and_last("request"),
    ),
    essential="finding per_second empty small limited bytes_p50",
    useful="requests min_bytes max_wait_ms partition_max_bytes overhead_percent",
)
def fetches(tables: Tables, *, by: By = ("client_id", "topics")) -> ArrowTable:
    """Responses to Fetch and ShareFetch, in groups; the group with the most requests first."""
    rows = with_columns(_RESPONSES, by, "exchanges", *_ADDED)
    groups = grouped(
        rows,
        by,
        requests="count(*)",
        per_second=PER_SECOND,
        empty="count(*) filter (size = 0)",
        small=f"count(*) filter (size between 1 and {SMALL_BYTES - 1})",
        filled="count(*) filter (size > 0)",
        limited="count(*) filter (is_limited)",
        bytes_p50="median(size) filter (size > 0)",
        bytes="sum(size)",
        cut_bytes="coalesce(sum(cut_bytes), 0)",
        records="case when sum(size) = 0 then 0 else sum(record_count) end",
        overhead_percent="""100 - 100 * sum(size) / nullif(
          sum(request_bytes + response_bytes) filter (size is not null), 0)""",
        wait_p50_ms="median(poll_ms)",
        min_bytes=by_frequency("min_bytes"),
        max_wait_ms=by_frequency("max_wait_ms"),
        partition_max_bytes=by_frequency("partition_max_bytes"),
        max_bytes=by_frequency("max_bytes"),
        isolation_level=by_frequency("isolation_level"),
        first_time="min(request_time)",
        last_time="max(request_time)",
        nth="min(nth)",
    )
    order = ", ".join(["requests desc", "nth", *quoted(by)])
    return select(tables, f"select *, {_FINDING} from ({groups}) order by {order}")


_FINDING: Final = f"""
  case when 2 * empty >= requests
      then case when least(empty, per_second) > {BUSY_PER_S} then 'busy' else 'idle' end
    when 2 * limited >= filled and limited > 0 then 'limited'
    when 2 * small >= filled and least(small, per_second) > {BUSY_PER_S} then 'small'
  end as finding"""

_ADDED: Final = ("size", "is_limited", "cut_bytes", "partition_max_bytes", "poll_ms")

_RESPONSES: Final = f"""(
  with fetched as (from partitions where api in {_FETCHES}),
  sessions as (
    select connection_id, list_sort(list(distinct topic)) as session_topics,
      max(max_bytes) as partition_max_bytes
    from fetched where topic is not null group by all),
  answered as (
    select parts.* replace (coalesce(session_topics, topics) as topics), request_time as time,
      partition_max_bytes,
      case when record_bytes > 0 then record_bytes
        when error_count = 0 and coalesce(throttle_time_ms, 0) = 0 then 0 end as size
    from {exchanges_with_parts()} as parts left join sessions using (connection_id)
    where api in {_FETCHES} and status = 'answered'),
  filled as (
    select {EXCHANGE}, bool_or(bytes >= max_bytes and max_bytes > 0) as is_full,
      sum(record_count) as read_count
    from fetched where bytes > 0 group by all),
  cut as (
    -- The time of a fetched batch is that of the response.
    select connection_id, correlation_id, time as response_time,
      sum(bytes) filter (not truncated) as whole_bytes
    from batches where api in {_FETCHES} group by all having bool_or(truncated))
  select answered.* replace (read_count as record_count),
    coalesce(is_full, false) or coalesce(record_bytes >= max_bytes and max_bytes > 0, false)
      as is_limited,
    case when cut.response_time is not null then size - coalesce(whole_bytes, 0) else 0 end
      as cut_bytes
  from answered left join filled using ({EXCHANGE})
    left join cut using (connection_id, correlation_id, response_time))"""
"""SQL: exchanges of fetches with a response, with `_ADDED`.

`topics` has all topics that the connection fetched from. `size` is null after an error, without
records because of a quota, and if the response is incomplete.
"""
