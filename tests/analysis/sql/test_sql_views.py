"""SQL views of a capture have the rows of its tables; a table that no query names is not read."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

import analysis
import dissector
from analysis.answers import ANSWERS
from analysis.sql.query import connected
from analysis.sql.session import Session
from analysis.sql.views import CaptureTables, schema
from dissector.capture import Capture
from dissector.tables import TABLES
from tests.analysis.answering import ANSWER_TABLES, latency_parts
from tests.captures.recorded import CAPTURES

CAPTURE = CAPTURES / "kafka-4-transactions.pcap.zst"
ASKED = list[list[str]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> ASKED:
    """The tables that each pass over a capture reads."""
    passes: ASKED = []
    stream = Capture.stream

    def spy(self: Capture, tables: Collection[str] | None = None) -> Iterator[Any]:
        passes.append(sorted(tables or ()))
        return stream(self, tables)

    monkeypatch.setattr(Capture, "stream", spy)
    return passes


def rows(session: Session, query: str) -> list[tuple[Any, ...]]:
    result = session.rows(query)
    assert result is not None
    table = pa.Table.from_batches(result[1], result[0])
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_every_table_is_a_view_that_holds_its_rows() -> None:
    truth = dissector.open_capture(CAPTURE).tables(list(TABLES))
    connection = analysis.connect(CAPTURE)
    for name, table in truth.items():
        view_rows = connection.sql(f"from {name}").to_arrow_table().select(table.column_names)
        assert view_rows.to_pylist() == table.cast(schema(name)).to_pylist()


def test_exchanges_have_the_columns_that_answers_are_made_of() -> None:
    tables = analysis.load(CAPTURE)
    expected = latency_parts(tables)
    with Session(CaptureTables(dissector.open_capture(CAPTURE))) as session:
        actual = rows(session, f"select {', '.join(expected)} from exchanges")
        assert [tuple(map(_rounded, row)) for row in actual] == [
            tuple(map(_rounded, row)) for row in expected.itertuples(index=False)
        ]
        for column in ("broker", "client", "software"):
            query = (
                f"select {column}, count(*) from exchanges where latency_ms is not null group by 1"
            )
            counts = analysis.latency(tables, by=[column])
            assert sorted(rows(session, query), key=str) == sorted(
                ((name if pd.notna(name) else None, count)
                 for name, count in zip(counts[column], counts["count"], strict=True)),
                key=str,
            )  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None or pd.isna(value) else round(value, 9)


@pytest.fixture(scope="module")
def views() -> Iterator[tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection]]:
    """A connection with the views, and one with the tables of the same capture."""
    tables = dissector.open_capture(CAPTURE).tables(ANSWER_TABLES)
    with connected(tables, ANSWER_TABLES) as connection:
        yield analysis.connect(CAPTURE), connection


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_is_a_view(
    name: str, views: tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection]
) -> None:
    connection, tables = views
    expected = ANSWERS[name].function(tables)
    view = f"answers.{name}"
    assert connection.sql(f"from {view}").columns == list(expected.columns)
    actual = connection.sql(f"from {view}").df()
    assert len(actual) == len(expected)
    for column in expected:
        if pd.api.types.is_integer_dtype(expected[column]):
            assert actual[column].fillna(-1).tolist() == expected[column].fillna(-1).tolist()
    if name not in TABLES:
        assert connection.sql(f"select count(*) from {name}").fetchall() == [(len(expected),)]


@pytest.mark.parametrize(
    ("query", "passes"),
    [
        ("select latency_ms, client, broker from exchanges", [["exchanges"]]),
        ("select count(*) from exchanges", [["exchanges"]]),
        ("select software from exchanges", [["connections", "exchanges"]]),
        ("select api from exchanges where net_ms > 1", [["batches", "connections", "exchanges"]]),
        ("select * from exchanges", [["batches", "connections", "exchanges"]]),
        ("from latency", [["batches", "connections", "exchanges"]]),
        ("from delay, problems", [["partitions", "problems"]]),
        ("describe latency", []),
    ],
)
def test_a_column_or_an_answer_reads_what_it_needs_in_one_pass(
    query: str, passes: ASKED, asked: ASKED
) -> None:
    tables = CaptureTables(dissector.open_capture(CAPTURE))
    tables.pass_on = True
    with Session(tables) as session:
        rows(session, query)
    assert asked == passes


def test_looked_up_columns_take_a_second_pass(asked: ASKED) -> None:
    connection = analysis.connect(CAPTURE)
    connection.sql("select software, net_ms from exchanges").fetchall()
    connection.sql("select max(poll_ms) from exchanges").fetchall()
    assert asked == [["exchanges"], ["batches", "connections"]]


def test_times_keep_their_nanoseconds_and_can_be_counted_with() -> None:
    connection = analysis.connect(CAPTURE)
    time = dissector.open_capture(CAPTURE).tables(["exchanges"])["exchanges"]["request_time"]
    assert connection.sql("select epoch_ns(request_time) from exchanges").fetchall() == [
        (each.value,) for each in time
    ]
    seconds = "select time_bucket(interval '1 second', request_time) from exchanges group by all"
    assert len(connection.sql(seconds).fetchall()) == len({each.value // 10**9 for each in time})


def test_a_pass_builds_the_tables_that_the_query_names(asked: ASKED) -> None:
    connection = analysis.connect(CAPTURE)
    assert asked == []
    # `topics` is a table, too, but here a column; and `errors` is hidden by another.
    connection.sql(
        "with errors as (select 1) select topics, x.* from exchanges, errors x"
    ).fetchall()
    assert asked == [["exchanges"]]
    connection.sql("select latency_ms from exchanges").fetchall()
    assert asked == [["exchanges"]]
    connection.sql(
        "select latency_ms, codec from exchanges join batches using (connection_id)"
    ).fetchall()
    connection.sql("from topics union all from topics").fetchall()
    assert asked == [["exchanges"], ["batches"], ["topics"]]


def test_a_query_that_is_wrong_reads_nothing(asked: ASKED) -> None:
    connection = analysis.connect(CAPTURE)
    for query in ("from exchangs", "select foo from exchanges", "selec 1"):
        with pytest.raises(duckdb.Error):
            connection.sql(query)
    connection.sql("describe exchanges").fetchall()
    assert asked == []


@pytest.mark.parametrize(
    ("query", "passes"),
    [
        ("select count(*) from exchanges", [["exchanges"]]),
        ("select count(*) from exchanges x, exchanges y", [["exchanges"]]),
        ("with q as not materialized (select api from exchanges) from q, q as r", [["exchanges"]]),
        ("select count(*) from exchanges where api in (select api from errors)",
         [["errors", "exchanges"]]),
    ],
)  # fmt: skip
def test_rows_that_pass_by_are_the_same_rows(query: str, passes: ASKED, asked: ASKED) -> None:
    expected = sorted(analysis.connect(CAPTURE).sql(query).fetchall(), key=str)
    asked.clear()
    tables = CaptureTables(dissector.open_capture(CAPTURE))
    tables.pass_on = True
    with Session(tables) as session:
        assert len(rows(session, query)) == len(expected)
    assert asked == passes


def test_stored_rows_take_neither_memory_nor_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    connection = analysis.connect(CAPTURE)
    before = pa.total_allocated_bytes()
    held = connection.sql("select count(*) from exchanges, batches, partitions").fetchall()
    size = sum(t.nbytes for t in dissector.open_capture(CAPTURE).tables(["exchanges"]).values())
    assert held[0][0] > 0
    assert pa.total_allocated_bytes() - before < size // 2
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    threading.Thread(target=lambda: pipe.write_bytes(CAPTURE.read_bytes()), daemon=True).start()
    with Session(CaptureTables(dissector.open_capture(pipe))) as session:
        assert rows(session, "select count(*) > 0 from exchanges, batches") == [(True,)]
        with pytest.raises(dissector.DissectorError, match="read again"):
            session.rows("from errors")


def test_an_error_of_the_capture_is_raised_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Capture, tables: object) -> Iterator[Any]:
        raise dissector.CaptureError("the disk is gone")
        yield

    monkeypatch.setattr(Capture, "stream", broken)
    tables = CaptureTables(dissector.open_capture(CAPTURE))
    for tables.pass_on in (True, False):
        with (
            Session(tables) as session,
            pytest.raises(dissector.CaptureError, match=r"^the disk is gone$"),
        ):
            rows(session, "from exchanges")
    with pytest.raises(duckdb.Error, match="the disk is gone"):
        analysis.connect(CAPTURE).sql("from exchanges").fetchall()


def test_an_interrupted_query_does_not_affect_the_next_one() -> None:
    endless = "select sum(a * b) from range(10_000_000_000) x(a), range(1_000_000) y(b)"
    with Session(CaptureTables(dissector.open_capture(CAPTURE))) as session:
        timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            rows(session, endless)
        assert rows(session, "select 1") == [(1,)]


def test_an_interruption_before_a_query_begins_ends_it() -> None:
    """A query of minutes."""
    ends = []

    def query() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        try:
            session._duckdb.execute("select sum(sqrt(range)) from range(100000000000)")
        except duckdb.InterruptException:
            ends.append("interrupted")

    with Session(CaptureTables(dissector.open_capture(CAPTURE))) as session:
        rows(session, "select 1")  # the thread begins
        with pytest.raises(KeyboardInterrupt):
            session._wait(query)
        assert ends == ["interrupted"]


def test_an_error_of_the_buffer_file_is_raised_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.ipc.new_file", full)
    with (
        Session(CaptureTables(dissector.open_capture(CAPTURE))) as session,
        pytest.raises(OSError, match="No space left"),
    ):
        rows(session, "from exchanges")


def test_a_file_that_is_not_a_capture_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "x.pcap").write_bytes(b"not a capture")
    with pytest.raises(dissector.CaptureError):
        analysis.connect(tmp_path / "x.pcap")
