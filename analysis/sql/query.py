"""Queries of answers, over tables in memory or on disk.

Tables are those that `analysis.load` or `Capture.tables` returns, or a connection to DuckDB with
tables as views (`analysis.sql.stored`, `analysis.connect`). Or they are a capture, open or by its
paths: then the tables that are needed are read to disk. A query names the columns and rows that
it needs. DuckDB reads only these from disk, and the result is as large as the answer, not as the
capture.

In a query, times are TIMESTAMP_NS in UTC, and every table has the additional column `NTH`: a number
that increases in the order of `analysis.sql.row_order`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from analysis.answers import Tables
from analysis.input.open import open_input
from analysis.reading import streamed, warn_of_clusters
from analysis.sql.context import create_context
from analysis.sql.databases import open_database, within_memory
from analysis.sql.expressions import By, column_names
from analysis.sql.intermediate import create_intermediate_tables
from analysis.sql.intervals import create_function
from analysis.sql.row_order import NTH, SMALL, SMALL_THREADS, register_numbered
from dissector.capture import Capture
from dissector.errors import DissectorError
from dissector.tables import TABLES, TIME, TableColumn
from dissector.tables.arrow import with_times

if TYPE_CHECKING:
    import pandas as pd

Row: TypeAlias = dict[str, Any]

_FILTERS: Final = Lock()
"""`warnings.catch_warnings` changes the filters of all threads."""


@contextmanager
def connected(tables: Tables, names: Collection[str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to DuckDB with the tables `names`, each with the column `NTH`.

    Raises DissectorError if a table or a column of it is missing, CaptureError if a capture cannot
    be read.
    """
    if isinstance(tables, duckdb.DuckDBPyConnection) and _OPEN.get(tables, set()).issuperset(names):
        yield tables
        return
    with _opened(tables, names) as connection:
        _OPEN[connection] = {*names}
        try:
            yield connection
        finally:
            _OPEN.pop(connection, None)


_OPEN: Final[dict[duckdb.DuckDBPyConnection, set[str]]] = {}
"""The tables of each connection inside `connected`. To look them up again for each answer that
`diagnose` needs takes a sixth of its time."""


@contextmanager
def _opened(tables: Tables, names: Collection[str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """See `connected`."""
    if isinstance(tables, str | os.PathLike | Sequence | Iterator | Capture):
        from analysis.input.clusters import CLUSTERS, ENDPOINTS
        from analysis.sql.stored import stored

        opened = tables if isinstance(tables, Capture) else open_input(tables)
        if has_clusters := opened.has_table(CLUSTERS):
            names = {*names, CLUSTERS}
        with stored(streamed(opened, names), names) as connection:
            if has_clusters:
                warn_of_clusters(connection.sql(ENDPOINTS).to_arrow_table())
            yield connection
        return
    if isinstance(tables, duckdb.DuckDBPyConnection):
        views = _views(tables, names)
        if all(NTH in view.columns for view in views.values()):
            yield tables
            return
        tables = {name: view.to_arrow_table() for name, view in views.items()}
    _check(tables, names)
    given = {name: arrow_table(name, tables[name]) for name in names}
    are_small = all(table.nbytes < SMALL for table in given.values())
    with _small_database(os.getpid()).cursor() if are_small else open_database() as connection:
        for name, table in given.items():
            if are_small and not len(table):
                connection.execute(f"create temp view {name} as from {_EMPTY}.{name}")
            else:
                register_numbered(connection, name, table)
        create_context(connection, names)
        create_function(connection)
        yield connection


@cache
def _small_database(process: int) -> duckdb.DuckDBPyConnection:
    """A database with all tables, empty, for connections with temporary tables that are small.

    To open another database takes 20 ms, and to create an empty table 2 ms: longer than many
    queries.
    """
    database = open_database(threads=SMALL_THREADS)
    database.execute(f"create schema {_EMPTY}")
    for name, table in TABLES.items():
        rows = arrow_table(name, table.schema.empty_table())
        database.from_arrow(rows.append_column(NTH, pa.array([], pa.int64()))).create(
            f"{_EMPTY}.{name}"
        )
    return database


_EMPTY: Final = "empty"
"""Schema of the empty tables of `_small_database`."""


def select(tables: Tables, query: str) -> pa.Table:
    """The rows of a query. Times have the type `TIME`, sums of integers are int64, NaN is null.

    `tables`: a connection of `connected`. Raises DissectorError if there is not enough memory, or
    a sum has more than 64 bits.
    """
    if not isinstance(tables, duckdb.DuckDBPyConnection):
        raise TypeError(f"tables must be a connection of connected(), not {type(tables).__name__}")
    table = fetch(tables, query)
    for index, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):
            table = table.set_column(index, field.name, _without_nan(table[index]))
    fields = [field.with_type(_type(field.type)) for field in table.schema]
    try:
        return table.cast(pa.schema(fields))
    except pa.ArrowInvalid as error:  # a sum of values of an edited export
        raise DissectorError(f"a result is out of range: {error}") from error


def row_dicts(table: pa.Table) -> list[Row]:
    """The rows as dicts. Times are integers, in ns."""
    return cast("list[Row]", with_times(table, pa.int64()).to_pylist())


def table_of(rows: Iterable[Row], columns: Iterable[TableColumn]) -> pa.Table:
    """The table of `row_dicts`; keys without a column are left out."""
    schema = pa.schema([(column.name, column.type) for column in columns])
    return pa.Table.from_pylist(list(rows), schema)


def no_tables(names: Iterable[str]) -> Tables:
    """The tables of an empty capture."""
    return {name: TABLES[name].schema.empty_table() for name in names}


def shaped(rows: pa.Table, columns: Iterable[TableColumn], by: By = ()) -> pa.Table:
    """The columns of `by`, then the other declared columns, in their types."""
    by = column_names(by)
    declared = [(column.name, column.type) for column in columns if column.name not in by]
    schema = pa.schema([*(rows.schema.field(name) for name in by), *declared])
    return rows.select(schema.names).cast(schema)


def _views(
    connection: duckdb.DuckDBPyConnection, names: Collection[str]
) -> dict[str, duckdb.DuckDBPyRelation]:
    views = {}
    for name in names:
        try:
            views[name] = connection.table(name)
        except duckdb.CatalogException as error:
            raise missing_table(name, names) from error
    return views


def _check(tables: Mapping[str, pd.DataFrame | pa.Table], names: Collection[str]) -> None:
    """Raises DissectorError if these are not tables, or a table is missing."""
    if not isinstance(tables, Mapping):
        raise DissectorError(
            f"pass a capture, or tables of kafka_dissector.load(), not a {type(tables).__name__}"
        )
    for name in names:
        if name not in tables:
            raise missing_table(name, names)


def missing_table(
    name: str, names: Collection[str], load: str = "pass the paths of the capture instead, or "
    "all tables that are needed: kafka_dissector.load(paths, "
) -> DissectorError:  # fmt: skip
    """The error that a table is missing; `load`: the call that loads tables, without its last
    argument, their `names`."""
    return DissectorError(f"the table {name} is missing; {load}{list(names)})")


def arrow_table(name: str, rows: pd.DataFrame | pa.Table) -> pa.Table:
    """A table for DuckDB, which has few functions for times with a zone; see `checked_table`."""
    return with_times(checked_table(name, rows), pa.timestamp("ns"))


def checked_table(name: str, rows: pd.DataFrame | pa.Table) -> pa.Table:
    """The rows in the schema of a table.

    Raises DissectorError if these are not rows, or a column is missing or has another type.
    """
    if not (isinstance(rows, pa.Table) or _is_frame(rows)):
        raise DissectorError(
            f"the table {name} must be a DataFrame or an Arrow table, not a {type(rows).__name__}"
        )
    schema = TABLES[name].schema
    columns = rows.column_names if isinstance(rows, pa.Table) else rows.columns
    if absent := [column for column in schema.names if column not in columns]:
        raise DissectorError(
            f"the table {name} has no column {absent[0]}; "
            "pass all columns of kafka_dissector.load()"
        )
    try:
        return _in_schema(rows, schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        reason = "; ".join(map(str, error.args))  # pandas adds the name of the column
        raise DissectorError(f"the table {name} has a column of another type: {reason}") from error


def _is_frame(rows: object) -> bool:
    import pandas as pd

    return isinstance(rows, pd.DataFrame)


def _in_schema(rows: pd.DataFrame | pa.Table, schema: pa.Schema) -> pa.Table:
    if isinstance(rows, pa.Table):
        table: pa.Table = rows
        return table.select(schema.names).cast(schema)
    return pa.Table.from_pandas(rows, schema, preserve_index=False)


def fetch(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    """The rows of a query. Raises DissectorError if there is not enough memory.

    The connection gets the intermediate tables that the query names.
    """

    def run() -> pa.Table:
        create_intermediate_tables(connection, query)
        result = connection.execute(query)
        # `sql` has no warning, but plans a query twice: a tenth of the time of `diagnose`.
        with _FILTERS, warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Arrow output on a DB-API result", UserWarning)
            return result.to_arrow_table()

    return within_memory(connection, run)


def _without_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    is_nan = pc.is_nan(column)
    return pc.if_else(is_nan, None, column) if pc.any(is_nan).as_py() else column


def _type(type: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type):
        return TIME
    return pa.int64() if pa.types.is_decimal(type) else type  # DuckDB sums in 128 bits
