"""Queries of answers, over tables in memory or on disk.

Tables are those that `analysis.load` or `Capture.tables` returns, or a connection to DuckDB with
tables as views (`analysis.sql.stored`, `analysis.connect`). A query names the columns and rows that
it needs. DuckDB reads only these from disk, and the result is as large as the answer, not as the
capture.

In a query, times are TIMESTAMP_NS in UTC, and every table has the additional column `NTH`: the
number of the row in the order of the capture.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

import duckdb
import numpy as np
import pyarrow as pa

from analysis.frames import frame
from dissector.errors import DissectorError
from dissector.tables import TABLES, TIME

if TYPE_CHECKING:
    import pandas as pd

Tables: TypeAlias = "Mapping[str, pd.DataFrame | pa.Table] | duckdb.DuckDBPyConnection"
Ask: TypeAlias = Callable[[str], "pd.DataFrame"]
"""A query in SQL to its rows, in the dtypes of `analysis.load`; sums of integers are Int64."""

NTH: Final = "nth"
"""Number of a row in its table, from 0."""


@contextmanager
def asking(tables: Tables, names: Collection[str]) -> Iterator[Ask]:
    """Gives what asks these tables, of which a query may name those of `names`.

    Raises DissectorError where one of these tables, or a column of it, is missing. A query raises
    DissectorError where there is no room for what it needs.
    """
    if isinstance(tables, duckdb.DuckDBPyConnection):
        given, views = tables, _views(tables, names)
        if all(NTH in view.columns for view in views.values()):
            yield lambda query: _rows(given, query)
            return
        tables = {name: view.to_arrow_table() for name, view in views.items()}
    _check(tables, names)
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as connection:
        for name in names:
            connection.register(name, _arrow(name, tables[name]))
        yield lambda query: _rows(connection, query)


def _views(
    connection: duckdb.DuckDBPyConnection, names: Collection[str]
) -> dict[str, duckdb.DuckDBPyRelation]:
    views = {}
    for name in names:
        try:
            views[name] = connection.table(name)
        except duckdb.CatalogException as error:
            raise _missing(name, names) from error
    return views


def _check(tables: Mapping[str, pd.DataFrame | pa.Table], names: Collection[str]) -> None:
    """Raises DissectorError where these are not tables, or not all tables that are needed."""
    if not isinstance(tables, Mapping):
        raise DissectorError(
            f"an answer needs the tables that analysis.load returns, not a {type(tables).__name__}"
        )
    for name in names:
        if name not in tables:
            raise _missing(name, names)


def _missing(name: str, names: Collection[str]) -> DissectorError:
    return DissectorError(
        f"the table {name} is missing. This answer needs the tables {', '.join(names)}: "
        f"analysis.load(paths, tables={list(names)})"
    )


def _arrow(name: str, rows: pd.DataFrame | pa.Table) -> pa.Table:
    """A table for DuckDB. Raises DissectorError where its columns are not those of the schema."""
    schema = TABLES[name].schema
    columns = rows.column_names if isinstance(rows, pa.Table) else rows.columns
    if absent := [column for column in schema.names if column not in columns]:
        raise DissectorError(f"the table {name} has no column {absent[0]}, which answers need")
    try:
        table = _in_schema(rows, schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise DissectorError(f"the table {name} has a column of another type: {error}") from error
    for place, field in enumerate(schema):
        if pa.types.is_timestamp(field.type):  # without a zone, as DuckDB has functions for them
            table = table.set_column(place, field.name, table[place].cast(pa.timestamp("ns")))
    return table.append_column(NTH, pa.array(np.arange(len(table))))


def _in_schema(rows: pd.DataFrame | pa.Table, schema: pa.Schema) -> pa.Table:
    if isinstance(rows, pa.Table):
        table: pa.Table = rows
        return table.select(schema.names).cast(schema)
    return pa.Table.from_pandas(rows, schema, preserve_index=False)


def told(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    """What a query gives. Raises DissectorError where there is no room for what it needs."""
    try:
        try:
            return connection.sql(query).to_arrow_table()
        except duckdb.OutOfMemoryException:
            with _all_memory(connection):
                return connection.sql(query).to_arrow_table()
    except duckdb.OperationalError as error:
        raise DissectorError(str(error).splitlines()[0]) from error


@contextmanager
def _all_memory(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """What cannot be written to disk, as values of a quantile, may take what the machine has."""
    ((limit,),) = connection.sql("select current_setting('memory_limit')").fetchall()
    connection.execute("reset memory_limit")
    try:
        yield
    finally:
        connection.execute(f"set memory_limit = '{limit}'")


def _rows(connection: duckdb.DuckDBPyConnection, query: str) -> pd.DataFrame:
    table = told(connection, query)
    fields = [field.with_type(_type(field.type)) for field in table.schema]
    return frame(table.cast(pa.schema(fields)))


def _type(type: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type):
        return TIME
    return pa.int64() if pa.types.is_decimal(type) else type  # DuckDB sums in 128 bits
