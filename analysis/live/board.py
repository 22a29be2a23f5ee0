"""The board: what went on in the last seconds, by client, API, broker or topic.

The exchanges of the last `SECONDS` are kept as columns, as many as `ROWS` of them, and grouped anew
whenever somebody looks: so quantiles are exact, and nothing has to be forgotten piece by piece.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.live.lines import Choice
from dissector.tables import EXCHANGES

SECONDS: Final = 10.0
ROWS: Final = 200_000
"""About as many exchanges are kept at most; of a busier time, the latest."""
LAST: Final = 200
"""Exchanges of one row that can be looked at."""

DIMENSIONS: Final = ("client", "API", "broker", "topic")

_KEPT: Final = (
    *("request_time", "response_time", "client_id", "api", "api_version", "client_ip"),
    *("client_port", "broker_ip", "broker_port", "topics", "latency_ms", "error", "error_count"),
    *("throttle_time_ms", "status", "request_bytes", "response_bytes"),
)

_SCHEMA: Final = pa.schema([EXCHANGES.schema.field(name) for name in _KEPT])


@dataclass(frozen=True, slots=True)
class Line:
    """One client, API, broker or topic in the last seconds."""

    name: str
    requests_s: float
    """Requests a second."""
    p50_ms: float | None
    p99_ms: float | None
    errors: int
    """Exchanges with an error code that is not 0."""
    throttled: int
    unanswered: int
    bytes_s: float
    """Of requests and responses, a second."""


class Board:
    """Keeps the last exchanges. May be asked from another thread than it is fed from."""

    tables = frozenset({"exchanges"})

    def __init__(
        self, chosen: Choice = lambda rows: rows, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`chosen` leaves some of the rows. `clock`: seconds, by which exchanges grow old."""
        self._chosen = chosen
        self._clock = clock
        self._began = clock()
        self._lock = threading.Lock()
        self._batches: deque[tuple[float, pa.RecordBatch]] = deque()
        self._rows = 0
        self.exchanges = 0
        """All that were seen."""

    def read(self, name: str, rows: pa.RecordBatch) -> None:
        rows = self._chosen(rows)
        with self._lock:
            self._batches.append((self._clock(), rows.select(_KEPT)))
            self._rows += len(rows)
            self.exchanges += len(rows)
            self._forget()

    def tick(self) -> None:
        """Nothing is put off."""

    def close(self) -> None:
        """What was seen last can still be looked at."""

    def _forget(self) -> None:
        oldest = self._clock() - SECONDS
        while self._batches and (self._rows > ROWS or self._batches[0][0] < oldest):
            self._rows -= len(self._batches.popleft()[1])

    def lines(self, dimension: str) -> list[Line]:
        """A line for each value of one of `DIMENSIONS`, those with the most requests first."""
        table, seconds = self._kept(dimension)
        if not len(table):
            return []
        found = table["name"].combine_chunks().dictionary_encode()
        index = found.indices.to_numpy()
        order = np.argsort(index, kind="stable")
        latency = table["latency_ms"].to_numpy()[order]
        count = len(found.dictionary)
        parts = np.split(latency, np.searchsorted(index[order], np.arange(1, count)))

        def total(values: pa.ChunkedArray) -> list[int]:
            weights = pc.fill_null(values.cast(pa.int64()), 0).to_numpy()
            sums: list[int] = np.bincount(index, weights, count).astype(np.int64).tolist()
            return sums

        bytes_ = pc.add(
            pc.fill_null(table["request_bytes"], 0), pc.fill_null(table["response_bytes"], 0)
        )
        columns = zip(
            found.dictionary.to_pylist(),
            np.bincount(index, minlength=count).tolist(),
            parts,
            zip(
                total(pc.greater(table["error_count"], 0)),
                total(pc.greater(table["throttle_time_ms"], 0)),
                total(pc.equal(table["status"], "unanswered")),
                strict=True,
            ),
            total(bytes_),
            strict=True,
        )
        lines = [
            Line(name, requests / seconds, *_quantiles(part), *counts, size / seconds)
            for name, requests, part, counts, size in columns
        ]
        return sorted(lines, key=lambda line: -line.requests_s)

    def last(self, dimension: str, name: str) -> list[dict[str, Any]]:
        """The last exchanges of one line, the latest first; times in ns."""
        table, _ = self._kept(dimension)
        table = table.filter(pc.equal(table["name"], name))
        table = table.slice(max(len(table) - LAST, 0))
        for column in ("request_time", "response_time"):
            at = table.schema.get_field_index(column)
            table = table.set_column(at, column, table[column].cast(pa.int64()))
        rows: list[dict[str, Any]] = table.to_pylist()[::-1]
        return rows

    def _kept(self, dimension: str) -> tuple[pa.Table, float]:
        """What is kept, with a column `name`, and how many seconds that are."""
        with self._lock:
            self._forget()
            batches = [rows for _, rows in self._batches]
            is_full = self._rows > ROWS // 2  # then the oldest were let go before their time
            begin = self._batches[0][0] if is_full else max(self._began, self._clock() - SECONDS)
            seconds = self._clock() - begin
        table = pa.Table.from_batches(batches, _SCHEMA)
        table = table.append_column("name", _names(table, dimension))
        return _by_topic(table) if dimension == "topic" else table, max(seconds, 1.0)


def _names(table: pa.Table, dimension: str) -> pa.ChunkedArray:
    """What each exchange is called; of topics, still a list."""
    if dimension == "topic":
        return table["topics"]
    if dimension == "broker":
        port = table["broker_port"].cast(pa.string())
        return pc.binary_join_element_wise(table["broker_ip"], port, ":")
    column = table["client_id" if dimension == "client" else "api"]
    return pc.fill_null(column, "-")


def _by_topic(table: pa.Table) -> pa.Table:
    """An exchange for each topic that it has; those without any are left out."""
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
