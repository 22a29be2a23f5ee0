"""Intermediate tables: rows that queries need several times, computed once for each connection.

Some take longer than the answers that read them. Others are few rows of many, such as failed
connections. `diagnose` and `report` run many answers on one connection; the first query that names
an intermediate table creates it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import duckdb

_QUERIES: Final[dict[str, str | Callable[[], str]]] = {}
"""The SQL of the rows, or a function that returns it, by the name of the table."""


def intermediate_table(name: str, query: str | Callable[[], str]) -> str:
    """Declare an intermediate table; return its name, for SQL that `analysis.sql.query` runs.

    `query`: SQL, or a function that returns it, if it depends on the definitions of the protocol,
    which take long to read. The name in SQL differs from all texts that a user may pass.
    """
    quoted = f'"intermediate {name}"'
    _QUERIES[quoted] = query
    return quoted


def create_intermediate_tables(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    """Create the tables that a query names, directly or by others, unless the connection has
    them."""
    for name, declared in _QUERIES.items():
        # "if not exists" would plan the query of a table that exists: 30 ms.
        if name in query and not _exists(connection, name):
            rows = declared if isinstance(declared, str) else declared()
            create_intermediate_tables(connection, rows)
            connection.execute(f"create temp table {name} as {rows}")


def _exists(connection: duckdb.DuckDBPyConnection, name: str) -> bool:
    import duckdb

    try:
        connection.table(name)
    except duckdb.CatalogException:
        return False
    return True
