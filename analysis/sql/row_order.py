"""The order of rows in answers: by time, connection and correlation id, then by all columns.

The order in which rows are read depends on the size of blocks, and on the files of an export. Spark
has no order at all. So answers number rows in this order, which depends on the rows alone: equal
tables have equal answers, wherever they come from.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa

from analysis.sql.context import CONTEXT
from dissector.tables import TABLES

NTH: Final = "nth"
"""Number of a row in its table, from 0."""

_FIRST: Final = (
    "request_time", "response_time", "first_time", "time", "packet", "connection_id",
    "correlation_id",
)  # fmt: skip
_GIVEN: Final = "rows_to_number"
_TIMES: Final = ("request_time", "time", "first_time", "response_time")


@cache
def row_order(name: str) -> str:
    """SQL of an ``order by``: the columns of a table, or of the table of a context."""
    columns = TABLES[CONTEXT.get(name, name)].schema.names
    times = [column for column in _TIMES if column in columns]
    first = [column for column in _FIRST if column in columns]
    return ", ".join(
        [f"coalesce({', '.join(times)})", *(f'"{column}"' for column in (*first, *columns))]
    )


def row_numbers(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> pa.Array:
    """The values of `NTH` for the rows of a table; times without a zone."""
    connection.register(_GIVEN, table.append_column("row", pa.array(np.arange(len(table)))))
    query = f"select row from {_GIVEN} order by {row_order(name)}"
    rows = np.asarray(connection.sql(query).fetchnumpy()["row"])
    connection.unregister(_GIVEN)
    numbers = np.empty(len(rows), np.int64)
    numbers[rows] = np.arange(len(rows))
    return pa.array(numbers)


def register_numbered(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    """Give queries a table with the column `NTH`; times without a zone."""
    connection.register(name, table.append_column(NTH, row_numbers(connection, name, table)))
