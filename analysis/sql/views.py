"""A capture in SQL: its tables and answers as views of DuckDB, over Arrow.

A view is an object of Arrow's C data interface. DuckDB requests its schema when it binds a query,
and its rows when it runs the query. So the capture is read when a query names a table, and tables
that no query names are never built. DuckDB uses the buffers of Arrow without a copy.

A table is kept for later queries in an unlinked file that is mapped into memory, so the system can
evict its pages. A query that reads one table once (`CaptureTables.pass_on`) streams the rows while
the capture is read. DuckDB spills sorts and similar state to the folder for temporary files
(``TMPDIR``) when it exceeds four fifths of the machine's memory.

The answers of `analysis.answers` are views of the schema ``answers``, which is searched after the
tables: ``from latency``; but ``from answers.errors``, because ``errors`` is a table. They have the
default options. `analysis.sql.exchange_columns` has the additional columns of `exchanges`.

Times are ``TIMESTAMP_NS`` in UTC, without a time zone: DuckDB has few functions for nanoseconds
with a time zone, and other types would round them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from threading import RLock
from typing import TYPE_CHECKING, Unpack

import duckdb
import pyarrow as pa
from duckdb.func import PythonUDFType

from analysis.answers import ANSWERS, Answer
from analysis.input.open import Opened, open_input, with_context
from analysis.mapped import mapped
from analysis.reading import streamed
from analysis.sql import exchange_columns
from analysis.sql.context import ALL_EXCHANGES, CONTEXT, IS_SELECTED, create_context
from analysis.sql.databases import open_database
from analysis.sql.exchange_columns import LOOKUPS, Lookup
from analysis.sql.intermediate import create_intermediate_tables
from analysis.sql.row_order import register_numbered, row_numbers
from analysis.temporary import system_folder
from dissector.arrays import value
from dissector.errors import DissectorError
from dissector.tables import TABLES

if TYPE_CHECKING:
    from dissector.capture import OpenOptions, Paths


def connect(paths: Paths, **options: Unpack[OpenOptions]) -> duckdb.DuckDBPyConnection:
    """A connection to DuckDB in which every table is a view: ``connect("x.pcap").sql("…").df()``.

    `paths` and `options` are those of `load`. A query reads the tables that no earlier query has
    used, in one pass over the capture, and issues warnings as `load` does. The rows are then stored
    in temporary files, not in memory. Times are TIMESTAMP_NS, in UTC.

    Raises CaptureError if nothing can be read. DuckDB raises errors in a query, with the reason in
    their text.
    """
    return views(CaptureTables(open_input(paths, **options), warns=True))


def views(tables: CaptureTables) -> duckdb.DuckDBPyConnection:
    """A connection to DuckDB with a view for each table and each answer."""
    connection = _connection()
    for lookup in LOOKUPS:
        connection.create_function(
            lookup.name,
            partial(tables.looked_up, lookup),
            ["BIGINT"],
            connection.struct_type(exchange_columns.struct(lookup)),
            type=PythonUDFType.ARROW,
        )
    for name in TABLES:
        view = _View(tables, (name,), _scanned_schema(name), partial(tables.rows, name))
        rows = connection.from_arrow(view)
        if name == "exchanges":
            rows = rows.project(exchange_columns.PROJECTION)
        rows.create_view(name)
    connection.execute("create schema answers; use answers")
    for name, answer in ANSWERS.items():
        view = _View(tables, answer.tables, answer_schema(answer), partial(tables.answer, answer))
        connection.from_arrow(view).create_view(name)
    connection.execute("set search_path = 'main,answers'")
    tables.named.clear()
    return connection


def _connection() -> duckdb.DuckDBPyConnection:
    connection = open_database(temp_directory=system_folder())
    connection.execute("set timezone = 'UTC'")
    return connection


@cache
def schema(name: str) -> pa.Schema:
    """The schema of a table or a context, without the additional columns of `exchanges` in SQL."""
    if name in CONTEXT:
        fields = schema(CONTEXT[name])
        return fields.append(pa.field(IS_SELECTED, pa.bool_())) if name == ALL_EXCHANGES else fields
    return _without_zones(TABLES[name].schema)


def name_of(answer: Answer) -> str:
    """The name of the answer's view in a query."""
    return f"answers.{answer.name}" if answer.name in TABLES else answer.name


@cache
def answer_schema(answer: Answer) -> pa.Schema:
    """The schema of an answer with its default options."""
    fields = [field for table in TABLES.values() for field in table.schema]
    # Rows that are grouped by a list have its names as one text.
    types = {field.name: field.type for field in fields if not pa.types.is_list(field.type)}
    declared = {column.name: column.type for column in answer.columns}
    by = (option.default for option in answer.options if option.name == "by")
    columns = {
        name: declared.get(name, types.get(name, pa.string()))
        for names in by
        if isinstance(names, tuple)
        for name in names
    }
    return _without_zones(pa.schema(list((columns | declared).items())))


def _without_zones(schema: pa.Schema) -> pa.Schema:
    """The schema with times without a time zone."""
    return pa.schema(
        [
            field.with_type(pa.timestamp("ns")) if pa.types.is_timestamp(field.type) else field
            for field in schema
        ]
    )


def _scanned_schema(name: str) -> pa.Schema:
    """The schema of the rows that DuckDB scans for a table."""
    return exchange_columns.with_keys(schema(name)) if name == "exchanges" else schema(name)


class CaptureTables:
    """The tables of one capture; each is read when a query needs it."""

    def __init__(self, capture: Opened, *, warns: bool = False) -> None:
        """`capture`: see `analysis.input.open`; `warns`: as `analysis.reading` does."""
        self._capture = capture
        self._warned: set[str] | None = set() if warns else None
        """Warnings of all passes; None: without warnings."""
        self._kept: dict[str, pa.Table] = {}
        self._looked_up: dict[str, pa.Array] = {}
        self._lock = RLock()  # several threads of DuckDB request tables
        self.named: Counter[str] = Counter()
        """How often queries named each table."""
        self.pass_on = False
        """Do not keep the rows of a table that is named once, and alone. The caller clears
        `named` between the binding and the run of a query."""
        self.used: set[str] = set()
        """Tables that the query's lookups need; see `exchange_columns.tables_used`."""
        self.failure: DissectorError | OSError | None = None
        """The error that stopped reading. DuckDB's error has only its text."""

    def rows(self, name: str) -> pa.RecordBatchReader:
        """The rows of a table. All named tables that are not kept yet are read in one pass."""
        with self._lock:
            if name in self._kept:
                return _reader(name, self._kept[name].to_batches())
            if self.pass_on and self.named == {name: 1} and not self.used:
                return _reader(name, (batch for _, batch in self._stream([name])))
            self.read({*self.named, *self.used})
            return _reader(name, self._kept[name].to_batches())

    def answer(self, answer: Answer) -> pa.RecordBatchReader:
        """The rows of an answer with its default options."""
        with self._connected(answer.tables) as connection:
            rows = answer.arrow(connection)
        return rows.cast(answer_schema(answer)).to_reader()

    def looked_up(self, lookup: Lookup, rows: pa.Array) -> pa.Array:
        """The values of a lookup for these rows of `exchanges`."""
        with self._lock, self.recorded_failure():
            if lookup.name not in self._looked_up:
                # DuckDB may run a query without `used`; then read the tables of all lookups.
                if not self._kept.keys() >= set(lookup.tables):
                    self.read({name for each in LOOKUPS for name in each.tables})
                with self._connected(lookup.tables) as connection:
                    create_intermediate_tables(connection, lookup.query)
                    values = connection.sql(lookup.query).to_arrow_table()
                    numbers = row_numbers(connection, "exchanges", self._kept["exchanges"])
                in_order = values.to_struct_array().combine_chunks()
                self._looked_up[lookup.name] = in_order.take(numbers)
        return self._looked_up[lookup.name].take(rows)

    @contextmanager
    def _connected(self, names: Collection[str]) -> Iterator[duckdb.DuckDBPyConnection]:
        """A separate connection with these tables and `NTH`, for answers."""
        with self._lock:
            self.read({*self.named, *self.used, *names})
            with _connection() as connection:
                needed = {*names, *(each for each in CONTEXT if each in self._kept)}
                for name in needed:
                    register_numbered(connection, name, self._kept[name])
                create_context(connection, needed)
                yield connection

    def read(self, names: Collection[str]) -> None:
        """Read the tables that are not kept yet, in one pass, into mapped files."""
        needed = with_context(self._capture, {*names, *self._kept})
        names = [n for n in (*TABLES, *CONTEXT) if n in needed and n not in self._kept]
        if not names:
            return
        without_rows = {name: schema(name).empty_table() for name in names}
        self._kept |= without_rows | mapped(self._stream(names))

    def _stream(self, names: Collection[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        with self.recorded_failure():
            if self._warned is None:
                rows = self._capture.stream(names)
            else:
                rows = streamed(self._capture, names, self._warned)
            for name, batch in rows:
                yield name, batch.cast(schema(name))

    @contextmanager
    def recorded_failure(self) -> Iterator[None]:
        """Record the error that stops reading."""
        try:
            yield
        except (DissectorError, OSError) as error:
            self.failure = error
            raise


def _reader(name: str, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatchReader:
    """The rows that DuckDB scans for a table."""
    scanned = _scanned_schema(name)
    if name == "exchanges":
        batches = exchange_columns.keyed(batches, scanned)
    return pa.RecordBatchReader.from_batches(scanned, batches)


@value
class _View:
    """A table for DuckDB (Arrow's PyCapsule interface)."""

    tables: CaptureTables
    names: Sequence[str]
    """Names of the tables that the rows need."""
    schema: pa.Schema
    rows: Callable[[], pa.RecordBatchReader]

    def __arrow_c_schema__(self) -> object:
        self.tables.named.update(self.names)
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        with self.tables.recorded_failure():
            return self.rows().__arrow_c_stream__(requested_schema)
