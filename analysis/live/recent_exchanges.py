"""Statistics of the last seconds, by client, API, broker or topic.

The exchanges of the last `SECONDS`, at most `ROWS`, are kept as columns and grouped again for each
query. So quantiles are exact, and expired rows need no bookkeeping. As in the summary, errors of
normal operation do not count.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.live.lines import RowFilter
from analysis.live.session import Watcher
from analysis.names.addresses import broker_endpoints
from analysis.summary.counts import are_normal
from dissector.arrays import value
from dissector.tables import EXCHANGES
from dissector.tables.arrow import row_keys

SECONDS: Final = 10.0
ROWS: Final = 200_000
"""Approximate limit of kept exchanges; the oldest are dropped first."""
DIMENSIONS: Final = ("client", "API", "broker", "topic")

_RESPONSE: Final = ("connection_id", "correlation_id", "response_time")
"""What identifies a response; in `errors`, its time is the column `time`."""
_COLUMNS: Final = (
    *_RESPONSE,
    *("request_time", "client_id", "api", "api_version", "client_ip", "client_port", "broker_ip"),
    *("broker_port", "topics", "latency_ms", "error", "error_count", "throttle_time_ms", "status"),
    *("request_bytes", "response_bytes"),
)

_SCHEMA: Final = pa.schema([EXCHANGES.schema.field(name) for name in _COLUMNS])


@value
class GroupStats:
    """Statistics of one client, API, broker or topic in the last seconds."""

    name: str
    requests_s: float
    """Requests per second."""
    p50_ms: float | None
    p99_ms: float | None
    errors: int
    """Exchanges with an error that is not part of normal operation."""
    throttled: int
    unanswered: int
    bytes_s: float
    """Bytes of requests and responses per second."""


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
        self._problems: deque[tuple[float, pa.Array]] = deque()
        """Keys of responses with an error that is not part of normal operation."""
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
        problems = errors.filter(pc.invert(are_normal(errors)))
        keys = _keys([problems[name] for name in (*_RESPONSE[:2], "time")])
        with self._lock:
            self._problems.append((self._clock(), keys))
            self._expire()

    def _expire(self) -> None:
        oldest = self._clock() - SECONDS
        while self._batches and (self._rows > ROWS or self._batches[0][0] < oldest):
            self._rows -= len(self._batches.popleft()[1])
        while self._problems and self._problems[0][0] < oldest:
            self._problems.popleft()

    def groups(self, dimension: str) -> list[GroupStats]:
        """Statistics per value of one of `DIMENSIONS`, by descending number of requests."""
        table, seconds = self._snapshot(dimension)
        if not len(table):
            return []
        names = table["name"].combine_chunks().dictionary_encode()
        index = names.indices.to_numpy()
        order = np.argsort(index, kind="stable")
        latency = table["latency_ms"].to_numpy()[order]
        count = len(names.dictionary)
        parts = np.split(latency, np.searchsorted(index[order], np.arange(1, count)))

        def total(values: pa.ChunkedArray) -> list[int]:
            weights = pc.fill_null(values.cast(pa.int64()), 0).to_numpy()
            sums: list[int] = np.bincount(index, weights, count).astype(np.int64).tolist()
            return sums

        bytes_ = pc.add(
            pc.fill_null(table["request_bytes"], 0), pc.fill_null(table["response_bytes"], 0)
        )
        columns = zip(
            names.dictionary.to_pylist(),
            np.bincount(index, minlength=count).tolist(),
            parts,
            zip(
                total(table["is_problem"]),
                total(pc.greater(table["throttle_time_ms"], 0)),
                total(pc.equal(table["status"], "unanswered")),
                strict=True,
            ),
            total(bytes_),
            strict=True,
        )
        groups = [
            GroupStats(name, requests / seconds, *_quantiles(part), *counts, size / seconds)
            for name, requests, part, counts, size in columns
        ]
        return sorted(groups, key=lambda group: -group.requests_s)

    def _snapshot(self, dimension: str) -> tuple[pa.Table, float]:
        """The kept exchanges with columns `name` and `is_problem`, and the seconds that they
        cover."""
        with self._lock:
            self._expire()
            batches = [rows for _, rows in self._batches]
            problems = pa.chunked_array([keys for _, keys in self._problems], pa.string())
            is_full = self._rows > ROWS // 2  # rows may have been dropped before they expired
            begin = self._batches[0][0] if is_full else max(self._started, self._clock() - SECONDS)
            seconds = self._clock() - begin
        table = pa.Table.from_batches(batches, _SCHEMA)
        table = table.append_column("name", _names(table, dimension))
        table = table.append_column("is_problem", _are_problems(table, problems))
        return _explode_topics(table) if dimension == "topic" else table, max(seconds, 1.0)


def _keys(response: Sequence[pa.ChunkedArray]) -> pa.Array:
    """`_RESPONSE` as one text."""
    return row_keys(*(column.cast(pa.int64()) for column in response))


def _are_problems(exchanges: pa.Table, problems: pa.ChunkedArray) -> pa.Array:
    """Whether each of the exchanges has a response with one of these keys."""
    with_error = np.flatnonzero(pc.fill_null(exchanges["error_count"], 0).to_numpy())
    response = exchanges.select(_RESPONSE).take(with_error)
    are_problems = np.zeros(len(exchanges), np.bool_)
    are_problems[with_error] = pc.is_in(_keys(response.columns), problems)
    return pa.array(are_problems)


def _names(table: pa.Table, dimension: str) -> pa.ChunkedArray:
    """The group name of each exchange; for topics, a list of names."""
    if dimension == "topic":
        return table["topics"]
    if dimension == "broker":
        return broker_endpoints(table)
    column = table["client_id" if dimension == "client" else "api"]
    return pc.fill_null(column, "-")


def _explode_topics(table: pa.Table) -> pa.Table:
    """One row per exchange and topic; exchanges without topics are dropped."""
    topics = table["name"].combine_chunks()
    owner = pc.list_parent_indices(topics)
    plain = table.drop_columns(["name"]).take(owner)
    return plain.append_column("name", pc.fill_null(pc.list_flatten(topics), "-"))


def _quantiles(latency: Any) -> tuple[float | None, float | None]:
    known = latency[~np.isnan(latency)]
    if not len(known):
        return None, None
    p50, p99 = np.quantile(known, (0.5, 0.99)).tolist()
    return p50, p99
