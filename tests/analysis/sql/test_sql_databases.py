"""New databases of DuckDB."""

from __future__ import annotations

import subprocess
import sys

from analysis.sql.databases import open_database

SETTING = "select value from duckdb_settings() where name = 'enable_progress_bar'"


def test_a_database_prints_no_progress_if_python_is_interactive() -> None:
    """For DuckDB, `python -c` is interactive."""
    code = (
        "import duckdb; from analysis.sql.databases import open_database\n"
        "for each in (duckdb.connect(), open_database()):\n"
        f'    print(*each.sql("{SETTING}").fetchall()[0])'
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["true", "false"]


def test_settings() -> None:
    (threads,) = open_database(threads=1).sql("select current_setting('threads')").fetchall()
    assert threads == (1,)
