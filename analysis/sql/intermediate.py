"""Intermediate tables: rows that queries need several times, computed once for each connection.

Some take longer than the answers that read them. Others are few rows of many, such as failed
connections. `diagnose` and `report` run many answers on one connection; the first query that names
an intermediate table creates it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import duckdb

_QUERIES: Final[dict[str, str | Callable[[], str]]] = {}
"""The SQL of the rows, or a function that returns it, by the name of the table."""
_CREATED: Final[WeakKeyDictionary[duckdb.DuckDBPyConnection, set[str]]] = WeakKeyDictionary()
"""The names of the intermediate tables that each connection has."""


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
    created = _CREATED.setdefault(connection, set())
    for name, declared in _QUERIES.items():
        if name in query and name not in created:
            rows = declared if isinstance(declared, str) else declared()
            create_intermediate_tables(connection, rows)
            connection.execute(f"create temp table {name} as {rows}")
            created.add(name)
