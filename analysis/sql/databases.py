"""New databases of DuckDB, in memory, and their settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import duckdb

from dissector.errors import DissectorError

T = TypeVar("T")


def open_database(**settings: str | bool | int) -> duckdb.DuckDBPyConnection:
    """A new database with these settings. It downloads no extension, and prints no progress."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": False, **settings})
    # In an interactive Python, DuckDB prints a progress bar to standard output. A notebook without
    # ipywidgets has no bar, and refuses the setting.
    with suppress(duckdb.InvalidInputException):
        connection.execute("set enable_progress_bar = false")
    return connection


def within_memory(connection: duckdb.DuckDBPyConnection, work: Callable[[], T]) -> T:
    """The result of `work`, which runs again without the memory limit if it exceeds the limit.

    Some state, as of a quantile or a sort of very many rows, cannot be written to disk. Raises
    DissectorError if there is not enough memory, the disk is full, or a value in a table, which may
    be an edited export, is out of range.
    """
    try:
        try:
            return work()
        except duckdb.OutOfMemoryException:
            with changed_setting(connection, "memory_limit", None):
                return work()
    except (duckdb.OperationalError, duckdb.DataError) as error:
        raise DissectorError(str(error).splitlines()[0]) from error


@contextmanager
def changed_setting(
    connection: duckdb.DuckDBPyConnection, name: str, value: str | None
) -> Iterator[None]:
    """Change a setting of DuckDB while the context lasts; None: to its default."""
    ((before,),) = connection.sql(f"select current_setting('{name}')::text").fetchall()
    connection.execute(f"reset {name}" if value is None else f"set {name} = '{value}'")
    try:
        yield
    finally:
        connection.execute(f"set {name} = '{before}'")
