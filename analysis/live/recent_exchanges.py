"""Statistics of the last seconds, by client, API, broker or topic.

The exchanges of the last `SECONDS`, at most `ROWS`, are kept as columns and grouped again for each
query. So quantiles are exact, and expired rows need no bookkeeping. As in the summary, errors of
normal operation do not count.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from analysis.kafka.normal import are_normal
from analysis.live.lines import RowFilter
from analysis.live.session import Watcher
from analysis.sql.conditions import database
from analysis.sql.expressions import endpoint
from dissector.tables import EXCHANGES, TABLES
from dissector.tables.arrow import with_times

SECONDS: Final = 10.0
ROWS: Final = 200_000
"""Approximate limit of kept exchanges; the oldest are dropped first."""
DIMENSIONS: Final = ("client", "API", "broker", "topic")

_COLUMNS: Final = (
    *("connection_id", "correlation_id", "response_time", "client_id", "api", "broker_ip"),
    *("broker_port", "topics", "latency_ms", "error_count", "throttle_time_ms", "status"),
    *("request_bytes", "response_bytes"),
)
_RESPONSE: Final = ("connection_id", "correlation_id", "time")
"""Columns of `errors` that identify a response."""
_EXCHANGES: Final = pa.schema([EXCHANGES.schema.field(name) for name in _COLUMNS])
_ERRORS: Final = pa.schema([TABLES["errors"].schema.field(name) for name in _RESPONSE])

_NAMES: Final = {
    "client": "coalesce(client_id, '-')",
    "API": "coalesce(api, '-')",
    "broker": endpoint("broker"),
    "topic": "coalesce(unnest(topics), '-')",
}
"""SQL: the name of the group of an exchange, by dimension. Exchanges without topics have none."""

_GROUPS: Final = """
  with numbered as (select *, row_number() over () as nth from exchanges),
  named as (
    select *, {name} as name, (connection_id, correlation_id, response_time) in (
      select (connection_id, correlation_id, time) from problems) as is_problem
    from numbered)
  select name as "{dimension}", count(*) / $seconds as "requests/s",
    quantile_cont(latency_ms, 0.5) as "p50 ms", quantile_cont(latency_ms, 0.99) as "p99 ms",
    count(*) filter (is_problem) as errors, count(*) filter (throttle_time_ms > 0) as throttled,
    count(*) filter (status = 'unanswered') as unanswered,
    round_even(
      sum(coalesce(request_bytes, 0) + coalesce(response_bytes, 0)) / $seconds, 0
    )::bigint as "bytes/s"
  from named group by name order by count(*) desc, min((nth, list_position(topics, name)))"""
"""SQL: the rates of each group. Errors are those that are not part of normal operation; bytes are
those of requests and responses."""


class RecentExchanges(Watcher):
    """Keeps the last exchanges. Reading and querying may happen in different threads."""

    tables = frozenset({"exchanges", "errors"})

    def __init__(
        self, row_filter: RowFilter = lambda rows: rows, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock` returns seconds; exchanges expire by it."""
        self._row_filter = row_filter
        self._clock = clock
        self._started = clock()
        self._lock = threading.Lock()
        self._batches: deque[tuple[float, pa.RecordBatch]] = deque()
        self._problems: deque[tuple[float, pa.Table]] = deque()
        """Responses with an error that is not part of normal operation."""
        self._rows = 0
        self.exchanges = 0
        """Number of all exchanges since the start."""

    def read(self, name: str, rows: pa.RecordBatch) -> None:
        if name == "errors":
            self._read_errors(pa.table(rows))
            return
        rows = self._row_filter(rows)
        with self._lock:
            self._batches.append((self._clock(), rows.select(_COLUMNS)))
            self._rows += len(rows)
            self.exchanges += len(rows)
            self._expire()

    def _read_errors(self, errors: pa.Table) -> None:
        problems = errors.filter(pc.invert(are_normal(errors))).select(_RESPONSE)
        with self._lock:
            self._problems.append((self._clock(), problems))
            self._expire()

    def _expire(self) -> None:
        oldest = self._clock() - SECONDS
        while self._batches and (self._rows > ROWS or self._batches[0][0] < oldest):
            self._rows -= len(self._batches.popleft()[1])
        while self._problems and self._problems[0][0] < oldest:
            self._problems.popleft()

    def groups(self, dimension: str) -> pa.Table:
        """A row for each value of one of `DIMENSIONS`, by descending number of requests."""
        with self._lock:
            self._expire()
            batches = [rows for _, rows in self._batches]
            problems = [rows for _, rows in self._problems]
            is_full = self._rows > ROWS // 2  # rows may have been dropped before they expired
            begin = self._batches[0][0] if is_full else max(self._started, self._clock() - SECONDS)
            seconds = max(self._clock() - begin, 1.0)
        exchanges = pa.Table.from_batches(batches, _EXCHANGES)
        errors = pa.concat_tables([_ERRORS.empty_table(), *problems])
        with database().cursor() as connection:
            connection.register("exchanges", with_times(exchanges, pa.int64()))
            connection.register("problems", with_times(errors, pa.int64()))
            query = _GROUPS.format(name=_NAMES[dimension], dimension=dimension)
            return connection.sql(query, params={"seconds": seconds}).to_arrow_table()
