"""New databases of DuckDB, in memory, and their settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

import duckdb

from dissector.errors import DissectorError

T = TypeVar("T")

_GROWTH: Final = 4
"""Factor by which a memory limit that is exceeded is raised."""


def open_database(**settings: str | bool | int) -> duckdb.DuckDBPyConnection:
    """A new database with these settings. It downloads no extension, and prints no progress."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": False, **settings})
    # In an interactive Python, DuckDB prints a progress bar to standard output. A notebook without
    # ipywidgets has no bar, and refuses the setting.
    with suppress(duckdb.InvalidInputException):
        connection.execute("set enable_progress_bar = false")
    return connection


def within_memory(connection: duckdb.DuckDBPyConnection, work: Callable[[], T]) -> T:
    """The result of `work`, which runs again with a larger memory limit if it exceeds the limit.

    Some state, as of a quantile or a sort of very many rows, cannot be written to disk. Raises
    DissectorError if there is not enough memory, the disk is full, or a value in a table, which may
    be an edited export, is out of range.
    """
    try:
        try:
            return work()
        except duckdb.OutOfMemoryException:
            with restored_setting(connection, "memory_limit"):
                while _raise_limit(connection):
                    with suppress(duckdb.OutOfMemoryException):
                        return work()
            raise
    except (duckdb.OperationalError, duckdb.DataError) as error:
        raise DissectorError(str(error).splitlines()[0]) from error


def _raise_limit(connection: duckdb.DuckDBPyConnection) -> bool:
    """Multiply the memory limit, at most to DuckDB's default: most of the memory of the machine.
    Returns whether it was lower."""
    limit = _memory_limit(connection)
    connection.execute("reset memory_limit")
    most = _memory_limit(connection)
    if limit * _GROWTH < most:
        connection.execute(f"set memory_limit = '{limit * _GROWTH}B'")
    return limit < most


def _memory_limit(connection: duckdb.DuckDBPyConnection) -> int:
    """The memory limit in bytes."""
    query = "select parse_formatted_bytes(current_setting('memory_limit'))"
    ((limit,),) = connection.sql(query).fetchall()
    return int(limit)


@contextmanager
def restored_setting(connection: duckdb.DuckDBPyConnection, name: str) -> Iterator[None]:
    """Restore a setting of DuckDB when the context ends."""
    ((before,),) = connection.sql(f"select current_setting('{name}')::text").fetchall()
    try:
        yield
    finally:
        connection.execute(f"set {name} = '{before}'")
