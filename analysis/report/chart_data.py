"""Data of charts: a capture, aggregated by SQL to as many rows as fit on a screen.

Times are binned with a round width. The most frequent names are kept, and the others become
`OTHER`. So the size of a chart does not depend on the size of the capture. Each function takes a
connection with the capture's tables (`analysis.sql.stored`) and returns rows as dicts. Columns
`time` and `until` are the ends of a bin, in ms since 1970.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import duckdb

from analysis.answers.lag import STATES
from analysis.answers.producers import TRANSACTIONS
from analysis.sql.expressions import PROBLEM_RESPONSES, endpoint, extents, quantiles
from analysis.sql.query import fetch
from dissector.arrays import value

Rows: TypeAlias = list[dict[str, Any]]

BINS: Final = 120
"""Maximum number of time bins."""
NAMES: Final = 8
"""Maximum number of names with a colour of their own."""
LINES: Final = 40
"""Maximum number of names on an axis."""
SPANS: Final = 1000
"""Maximum number of bars in a chart of spans; the longest are kept."""
OTHER: Final = "others"

_MS: Final = 10**6
_SECONDS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200)
_STEPS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, *(seconds * 1000 for seconds in _SECONDS))
"""Round widths of a bin, in ms; above them, whole days."""

_QUANTILES: Final = ", ".join(
    f"{quantile} as {name}" for name, quantile in quantiles("latency_ms", of=(0.5, 0.99)).items()
)


@value
class Span:
    """The time range of the exchanges of a capture, and the width of a bin; ns."""

    first: int
    last: int
    bin: int

    @property
    def edges(self) -> tuple[float, float]:
        """From the start of the first bin to the end of the last, in ms since 1970."""
        start, end = (time // self.bin * self.bin for time in (self.first, self.last))
        return start / _MS, (end + self.bin) / _MS

    def of(self, time: str) -> str:
        """SQL for columns `time` and `until`: the ends of the bin of a time, in ms."""
        start = f"epoch_ns({time}) // {self.bin} * {self.bin}"
        return f"{start} / {_MS} as time, ({start} + {self.bin}) / {_MS} as until"


def span(connection: duckdb.DuckDBPyConnection) -> Span | None:
    """The time range; None for a capture without exchanges."""
    first, last = connection.sql(
        "select min(epoch_ns(coalesce(request_time, response_time))), "
        "max(epoch_ns(coalesce(response_time, request_time))) from exchanges"
    ).fetchall()[0]
    if first is None:
        return None
    return Span(first, last, width((last - first) / BINS))


def traffic(connection: duckdb.DuckDBPyConnection, span: Span) -> Rows:
    """time, until, api, requests, bytes, rate (requests/s)."""
    query = f"""
      select {span.of("request_time")}, {_named("api", "exchanges", "request_time")}
        as api, count(*) as requests,
        sum(coalesce(request_bytes, 0) + coalesce(response_bytes, 0))::bigint as bytes,
        count(*) * 1e9 / {span.bin} as rate
      from exchanges where request_time is not null group by all order by all"""
    return _rows(connection, query)


def latency_over_time(connection: duckdb.DuckDBPyConnection, span: Span) -> Rows:
    """time, until, api, responses, and latency quantiles p50_ms, p99_ms, max_ms."""
    query = f"""
      select {span.of("request_time")}, {_named("api", "exchanges", "latency_ms")}
        as api, count(*) as responses, {_QUANTILES}, max(latency_ms) as max_ms
      from exchanges where latency_ms is not null group by all order by all"""
    return _rows(connection, query)


def latency_distribution(connection: duckdb.DuckDBPyConnection) -> Rows:
    """api, from_ms and to_ms (a fifth of a power of ten), responses, share (of the API's)."""
    query = f"""
      with latencies as (
        select {_named("api", "exchanges", "latency_ms", LINES)} as api,
          floor(log10(greatest(latency_ms, 0.001)) * 5)::int as bin
        from exchanges where latency_ms is not null)
      select api, pow(10, bin / 5) as from_ms, pow(10, (bin + 1) / 5) as to_ms,
        count(*) as responses, count(*) / sum(count(*)) over (partition by api) as share
      from latencies group by api, bin order by api, bin"""
    return _rows(connection, query)


def clients_and_brokers(connection: duckdb.DuckDBPyConnection) -> Rows:
    """client, broker, responses, p50_ms, p99_ms, errors; of the busiest clients and brokers."""
    query = f"""
      with ends as (
        select coalesce(client_id, '(none)') as client,
          {endpoint("broker")} as broker, latency_ms, is_problem
        from exchanges
          left join {PROBLEM_RESPONSES} using (connection_id, correlation_id, response_time)
        where latency_ms is not null)
      select {_named("client", "ends", "latency_ms", LINES)} as client,
        {_named("broker", "ends", "latency_ms", LINES)} as broker, count(*) as responses,
        {_QUANTILES}, count(*) filter (is_problem) as errors
      from ends group by 1, 2 order by 1, 2"""
    return _rows(connection, query)


def throttle(connection: duckdb.DuckDBPyConnection, span: Span) -> Rows:
    """time, until, client_id, responses, total_ms, longest_ms."""
    query = f"""
      with throttled as (
        select coalesce(client_id, '(none)') as client_id, response_time, throttle_time_ms
        from exchanges where throttle_time_ms > 0 and response_time is not null)
      select {span.of("response_time")},
        {_named("client_id", "throttled", "client_id")} as client_id, count(*) as responses,
        sum(throttle_time_ms)::bigint as total_ms, max(throttle_time_ms) as longest_ms
      from throttled group by all order by all"""
    return _rows(connection, query)


def errors(connection: duckdb.DuckDBPyConnection, span: Span) -> Rows:
    """time, until, error, count."""
    query = f"""
      select {span.of("time")}, {_named("error", "errors", "time")} as error,
        count(*) as count
      from errors where time is not null group by all order by all"""
    return _rows(connection, query)


def unanswered(connection: duckdb.DuckDBPyConnection, span: Span) -> Rows:
    """time, until, api, requests."""
    query = f"""
      with unanswered as (select * from exchanges
        where status = 'unanswered' and request_time is not null)
      select {span.of("request_time")}, {_named("api", "unanswered", "api")} as api,
        count(*) as requests
      from unanswered group by all order by all"""
    return _rows(connection, query)


def batch_sizes(connection: duckdb.DuckDBPyConnection) -> Rows:
    """from_bytes and to_bytes (a power of two), codec, batches, records; of produced batches."""
    query = """
      with produced as (
        select floor(log2(greatest(bytes, 1)))::int as bin, codec, record_count
        from batches where api = 'Produce' and bytes is not null)
      select pow(2, bin)::bigint as from_bytes, pow(2, bin + 1)::bigint as to_bytes,
        coalesce(codec, '(unknown)') as codec, count(*) as batches,
        sum(record_count)::bigint as records
      from produced group by all order by all"""
    return _rows(connection, query)


def lag(connection: duckdb.DuckDBPyConnection, span: Span) -> Rows:
    """time, reader (group, topic and partition), lag (maximum per bin); of the largest lags."""
    query = f"""
      with known as (
        select time, lag, coalesce(group_id, '(no group)') || ' / ' || topic || ' ' || partition
          as reader from {STATES} where lag is not null)
      select epoch_ns(arg_max(time, lag)) / {_MS} as time, reader, max(lag) as lag
      from known where reader in (
        select reader from known group by all order by max(lag) desc, reader limit {NAMES})
      group by reader, epoch_ns(known.time) // {span.bin} order by all"""
    return _rows(connection, query)


def transactions(connection: duckdb.DuckDBPyConnection) -> Rows:
    """row (a producer), start_time, end_time, duration_ms, outcome, client_id, partitions, records,
    bytes; the longest transactions of the busiest producers. An open one lasts until the capture
    ends, and has no duration."""
    query = f"""
      with named as (
        select *, coalesce(transactional_id, 'producer ' || producer_id) as row
        from {TRANSACTIONS}),
      longest as (
        from named where row in (
          select row from named group by all order by count(*) desc, row limit {LINES})
        order by duration_ms desc nulls first, place limit {SPANS}),
      whole as (select max(coalesce(response_time, request_time)) as last from exchanges)
      select row, epoch_ns(start_time) / {_MS} as start_time,
        epoch_ns(coalesce(end_time, last)) / {_MS} as end_time, duration_ms, outcome, client_id,
        partitions, records::bigint as records,
        bytes::bigint as bytes
      from longest, whole order by place"""
    return _rows(connection, query)


def totals(connection: duckdb.DuckDBPyConnection, *, is_filtered: bool = False) -> dict[str, Any]:
    """One row over the whole capture, for the head of the report.

    `is_filtered`: see `extents`. Errors are responses with an error that is not part of normal
    operation, as in the summary.
    """
    query = f"""
      select * from
        (select count(*) as exchanges, count(distinct client_id) as clients,
           count(distinct (broker_ip, broker_port)) as brokers,
           count(*) filter (where throttle_time_ms > 0) as throttled,
           count(*) filter (where status = 'unanswered') as unanswered,
           count(*) filter (where status = 'undecoded') as undecoded from exchanges),
        (select count(*) as errors from {PROBLEM_RESPONSES}),
        (select count(*) as connections from connections),
        (select coalesce(sum(client_bytes + broker_bytes), 0)::bigint as bytes,
           epoch_ns(min(first_time)) as first, epoch_ns(max(last_time)) as last
         from {extents(is_filtered=is_filtered)}),
        (select count(*) as problems from problems)"""
    return _rows(connection, query)[0]


def width(ns: float) -> int:
    """The smallest round width that is at least this; ns."""
    for step in _STEPS:
        if step * _MS >= ns:
            return step * _MS
    day = 24 * 3600 * 10**9
    return -int(-ns // day) * day


def _named(column: str, table: str, counted: str, limit: int = NAMES) -> str:
    """SQL for a name if it is one of the most frequent in rows with `counted`, else `OTHER`."""
    return f"""case when {column} in (
      select {column} from {table} where {counted} is not null and {column} is not null
      group by {column} order by count(*) desc, {column} limit {limit}) then {column}
      else '{OTHER}' end"""


def _rows(connection: duckdb.DuckDBPyConnection, query: str) -> Rows:
    rows: Rows = fetch(connection, query).to_pylist()
    return rows
