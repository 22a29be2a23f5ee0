"""What many answers on one connection need is made once: tables, and the check of their columns."""

from __future__ import annotations

import duckdb
import pytest

from analysis.sql import intermediate as module
from analysis.sql import query as query_module
from analysis.sql.intermediate import create_intermediate_tables, intermediate_table
from analysis.sql.latency_breakdown import exchanges_with_parts
from analysis.sql.query import connected, no_tables, select
from dissector.errors import DissectorError
from tests.analysis.answering import made
from tests.analysis.made_rows import exchange


def tables(connection: duckdb.DuckDBPyConnection) -> list[str]:
    return [name for (name,) in connection.sql("select table_name from duckdb_tables()").fetchall()]


def test_the_first_query_creates_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_QUERIES", {})
    name = intermediate_table("fives", lambda: "select 5 as x")
    with duckdb.connect() as connection:
        create_intermediate_tables(connection, "select 'fives'")
        assert tables(connection) == []
        create_intermediate_tables(connection, f"from {name}")
        connection.execute(f"update {name} set x = 6")
        monkeypatch.setitem(module._QUERIES, name, lambda: pytest.fail("planned again"))
        create_intermediate_tables(connection, f"from {name}")
        assert connection.sql(f"from {name}").fetchall() == [(6,)]


def test_a_table_may_read_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_QUERIES", {})
    sums = intermediate_table("sums", lambda: f"select sum(x) as x from {fives}")
    fives = intermediate_table("fives", lambda: "select 5 as x")
    with duckdb.connect() as connection:
        create_intermediate_tables(connection, f"from {sums}")
        assert connection.sql(f"from {sums}").fetchall() == [(5,)]


def test_answers_share_the_parts_of_latencies() -> None:
    made_tables = made(exchanges=[exchange(latency_ms=3.0)])
    with connected(made_tables, ("exchanges", "batches", "connections")) as tables:
        query = f"select net_ms from {exchanges_with_parts()}"
        assert select(tables, query)["net_ms"].to_pylist() == [3.0]
        tables.execute('update "intermediate latency_parts" set net_ms = 4')
        assert select(tables, query)["net_ms"].to_pylist() == [4.0]


def test_the_tables_of_an_open_connection_are_not_looked_up_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lookups: list[tuple[str, ...]] = []
    look_up = query_module._views
    monkeypatch.setattr(
        query_module, "_views", lambda c, names: lookups.append((*names,)) or look_up(c, names)
    )
    with connected(no_tables(["exchanges", "errors"]), ("exchanges", "errors")) as tables:
        for _ in range(2):
            with connected(tables, ("errors",)) as same:
                assert same is tables
        with (
            pytest.raises(DissectorError, match="the table batches is missing"),
            connected(tables, ("errors", "batches")),
        ):
            pass
        assert lookups == [("errors", "batches")]
