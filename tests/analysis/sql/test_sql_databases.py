"""New databases of DuckDB."""

from __future__ import annotations

import duckdb
import pytest

from analysis.sql.databases import open_database, restored_setting, within_memory
from dissector.errors import DissectorError
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


@pytest.mark.parametrize("name", ["memory_limit", "preserve_insertion_order"])
def test_a_setting_is_restored(name: str) -> None:
    connection = open_database(memory_limit="64MiB", preserve_insertion_order=False)
    query = f"select current_setting('{name}')"
    before = connection.sql(query).fetchall()
    with restored_setting(connection, name):
        connection.execute(f"reset {name}")
        assert connection.sql(query).fetchall() != before
    assert connection.sql(query).fetchall() == before


def test_the_memory_limit_is_raised_until_the_work_succeeds() -> None:
    connection = open_database(memory_limit="64MiB")
    limits: list[str] = []

    def work(enough: str) -> int:
        ((limit,),) = connection.sql("select current_setting('memory_limit')").fetchall()
        limits.append(limit)
        if limit != enough:
            raise duckdb.OutOfMemoryException("not enough")
        return len(limits)

    assert within_memory(connection, lambda: work("1.0 GiB")) == 3
    assert within_memory(connection, lambda: work("64.0 MiB")) == 4
    assert limits == ["64.0 MiB", "256.0 MiB", "1.0 GiB", "64.0 MiB"]
    with pytest.raises(DissectorError, match="not enough"):
        within_memory(connection, lambda: work("none"))
    ((default,),) = open_database().sql("select current_setting('memory_limit')").fetchall()
    assert limits[-1] == default
