"""New databases of DuckDB, in memory."""

from __future__ import annotations

from contextlib import suppress

import duckdb


def open_database(**settings: str | bool | int) -> duckdb.DuckDBPyConnection:
    """A new database with these settings. It downloads no extension, and prints no progress."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": False, **settings})
    # In an interactive Python, DuckDB prints a progress bar to standard output. A notebook without
    # ipywidgets has no bar, and refuses the setting.
    with suppress(duckdb.InvalidInputException):
        connection.execute("set enable_progress_bar = false")
    return connection
