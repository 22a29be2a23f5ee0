"""New databases of DuckDB."""

from __future__ import annotations

from analysis.sql.databases import changed_setting, open_database
from tests.programs import printed

SETTING = "select value from duckdb_settings() where name = 'enable_progress_bar'"


def test_a_database_prints_no_progress_if_python_is_interactive() -> None:
    """For DuckDB, `python -c` is interactive."""
    code = (
        "import duckdb; from analysis.sql.databases import open_database\n"
        "for each in (duckdb.connect(), open_database()):\n"
        f'    print(*each.sql("{SETTING}").fetchall()[0])'
    )
    assert printed(code).split() == ["true", "false"]


def test_settings() -> None:
    (threads,) = open_database(threads=1).sql("select current_setting('threads')").fetchall()
    assert threads == (1,)


def test_a_setting_is_changed_for_a_while() -> None:
    connection = open_database(memory_limit="64MiB", preserve_insertion_order=False)

    def settings() -> list[object]:
        names = ("memory_limit", "preserve_insertion_order")
        query = "select " + ", ".join(f"current_setting('{name}')" for name in names)
        return list(connection.sql(query).fetchall()[0])

    before = settings()
    with changed_setting(connection, "preserve_insertion_order", "true"):
        assert settings() == [before[0], True]
    with changed_setting(connection, "memory_limit", None):
        assert settings()[0] != before[0]
    assert settings() == before == ["64.0 MiB", False]
