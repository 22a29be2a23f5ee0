"""A capture for the screen: its exchanges in a mapped file, and what further passes compute.

The first pass writes the exchanges with the bytes of their messages to a temporary file that is
mapped into memory, so that each row is available. The file is as large as the messages. Answers,
findings and timelines are passes of their own, when they are requested.

The methods block, so the screen calls them in threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from threading import Lock
from typing import Any, Final, TypeVar

import duckdb
import numpy as np
import pyarrow as pa

from analysis.answers import ANSWERS
from analysis.browse.rows import TIME, Numbers, Order, Rows, exchange_columns
from analysis.browse.source import Reading
from analysis.diagnosis.catalog import limits
from analysis.diagnosis.run import ANALYSIS_TABLES, Diagnosis, diagnosed
from analysis.display import presentation
from analysis.input.clusters import CLUSTERS, Endpoints, listed
from analysis.input.exported import ExportedTables, is_exported
from analysis.input.filters import Filter
from analysis.input.open import open_input, with_context
from analysis.input.passes import check_files, first_time
from analysis.mapped import mapped
from analysis.sql.stored import stored
from analysis.timeline.connection import connection_timeline
from analysis.timeline.exchange import Event
from dissector.capture import Capture
from dissector.errors import DissectorError
from dissector.exchanges.exchange import Exchange
from dissector.tables.finalizer import NamedBatch

BROKERS: Final = "brokers"
NEAR: Final = 250
"""Maximum number of exchanges before and after the chosen one in the timeline of its connection."""
NEAR_BYTES: Final = 1 << 29
"""Maximum number of bytes of these exchanges before it, and after it."""

_INTERRUPT_INTERVAL: Final = 0.05
"""Seconds between interrupts of a computation."""

T = TypeVar("T")


class CaptureSource:
    """Captures, or exported tables, which contain no messages."""

    def __init__(self, paths: Sequence[str], options: dict[str, Any]) -> None:
        """`options`: of `open_capture`. Raises CaptureError if the input cannot be opened, or can
        be read only once."""
        if not is_exported(paths):
            check_files(paths)
        self.reading = Reading()
        self.start: int | None = None
        """Time of the first packet, ns; None: unknown."""
        self.clusters = 0
        """Number of known clusters."""
        self._paths = paths
        self._options = options | {"progress": self.reading.show}
        self._capture = open_input(paths, **self._options)
        self._results: dict[str, Any] = {}
        self._filter: tuple[str, ...] | None = None
        """The filter of the stored tables and the results."""
        self._stored: duckdb.DuckDBPyConnection | None = None
        self._stack = ExitStack()
        self._lock = Lock()

    def close(self) -> None:
        """End what is computed, and remove the stored tables."""
        self.reading.cancel()
        while not self._lock.acquire(timeout=_INTERRUPT_INTERVAL):
            if (running := self._stored) is not None:
                running.interrupt()  # an answer may have several queries
        self._stored = None
        self._stack.close()
        self._lock.release()

    def rows(self) -> Rows:
        """Read the exchanges. Raises DissectorError, and OSError if the disk is full."""
        endpoints = Endpoints()
        tables = mapped(self._without_brokers(endpoints.taken(self._first_pass())))
        presentation.names().learn_hosts(self._capture.host_names)
        self.clusters = len(listed(endpoints.table))
        batches = tables["exchanges"].to_batches() if tables else []
        return Rows(batches, exchange_columns())

    def _without_brokers(self, rows: Iterable[NamedBatch]) -> Iterator[NamedBatch]:
        """The other rows; learn the names of brokers."""
        for name, batch in rows:
            if name == BROKERS:
                presentation.names().learn_brokers(batch)
            else:
                yield name, batch

    def _first_pass(self) -> Iterator[NamedBatch]:
        """The rows of exchanges, with messages if there are any, of brokers and of clusters."""
        if isinstance(self._capture, Capture):
            self.start = first_time(self._capture.paths)
            return self._capture.stream(["exchanges", BROKERS, CLUSTERS], with_messages=True)
        if isinstance(self._capture, ExportedTables):
            self.start = self._capture.first_time
        also = [name for name in (BROKERS, CLUSTERS) if self._capture.has_table(name)]
        return self._capture.stream(["exchanges", *also])

    def exchange(self, row: pa.RecordBatch) -> Exchange | None:
        """The exchange of a row; None without the bytes of its messages."""
        if not isinstance(self._capture, Capture):
            return None
        return next(self._capture.as_exchanges(row))

    def answer(self, name: str, chosen: Filter, is_cancelled: Callable[[], bool]) -> pa.Table:
        """The rows of an answer about the selected exchanges. Raises as `rows`."""
        answer = ANSWERS[name]
        return self._result(name, chosen, answer.arrow, is_cancelled)

    def diagnosis(self, chosen: Filter, is_cancelled: Callable[[], bool]) -> Diagnosis:
        """The findings about the selected exchanges. Raises as `rows`."""
        return self._result(
            "diagnose",
            chosen,
            lambda tables: diagnosed(tables, limits({}), is_filtered=bool(chosen)),
            is_cancelled,
        )

    def _result_filter(self, chosen: Filter) -> Filter:
        """The filter of the rows from which results are computed; `chosen`: that of the screen."""
        return chosen

    def _result(
        self,
        name: str,
        chosen: Filter,
        compute: Callable[[duckdb.DuckDBPyConnection], T],
        is_cancelled: Callable[[], bool],
    ) -> T:
        """The result of a computation on the tables of the selected exchanges, computed once.

        A computation that is cancelled while it waits for another one does not begin.
        """
        chosen = self._result_filter(chosen)
        with self._lock:  # a connection to DuckDB runs one query after the other
            if is_cancelled():
                raise DissectorError("cancelled")
            if self._filter != tuple(chosen.options):
                self._stored = self._filter = None
                self._stack.close()
                self._results.clear()
                opened = open_input(self._paths, chosen or None, **self._options)
                names = with_context(opened, ANALYSIS_TABLES)
                self._stored = self._stack.enter_context(stored(opened.stream(names), names))
                self._filter = tuple(chosen.options)
            assert self._stored is not None
            if name not in self._results:
                self._results[name] = compute(self._stored)
            result: T = self._results[name]
            return result

    def connection_timeline(self, rows: Rows, number: int) -> tuple[list[Exchange], list[Event]]:
        """The exchanges around a row on its connection, and their packets. Raises as `rows`."""
        near = [self.exchange(rows.row(each)) for each in _near(rows, number).tolist()]
        exchanges = [each for each in near if each is not None]
        if not exchanges:
            raise DissectorError("exported tables do not contain packets: open the capture")
        options = {name: self._options.get(name) for name in ("ports", "keylog", "progress")}
        memory = self._options["memory"]
        return exchanges, connection_timeline(self._paths, exchanges, memory=memory, **options)


def _near(rows: Rows, number: int) -> Numbers:
    """The exchanges around a row on its connection, in order of time."""
    connection = rows.take("connection_id", np.array([number]))[0]
    same = rows.numbers[rows.all("connection_id") == connection.as_py()]
    same = rows.ordered(same, Order(TIME))
    at = int(np.flatnonzero(same == number)[0])
    request, response = (rows.take(f"{name}_bytes", same) for name in ("request", "response"))
    total = np.cumsum(request.fill_null(0).to_numpy() + response.fill_null(0).to_numpy())
    is_near = np.abs(total - total[at]) < NEAR_BYTES
    is_near &= np.abs(np.arange(len(same)) - at) <= NEAR
    is_near[at] = True
    return np.asarray(same[is_near])
