"""Tables on disk have the answers of tables in memory, in memory that does not grow with them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

import dissector
from analysis.answers import ANSWERS, Answer
from analysis.sql import query as sql_query
from analysis.sql import stored as module
from analysis.sql.stored import stored
from tests.analysis.answering import ANSWER_TABLES, opened, path_of
from tests.programs import PRINT_PEAK, printed

ROOT = Path(__file__).parents[3]
ALL = pytest.mark.parametrize("answer", ANSWERS.values(), ids=list(ANSWERS))
NAMES = ("kafka-4-quotas", "kafka-4-transactions", "kafka-4-group-static", "librdkafka-mock-errors")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("small", [0, module.SMALL])
@pytest.mark.parametrize("name", NAMES)
def test_stored_tables_have_the_same_answers(
    name: str, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are on disk, or in memory if they are small."""
    monkeypatch.setattr(module, "SMALL", small)
    rows = dissector.open_capture(path_of(name)).stream(ANSWER_TABLES)
    with opened(name) as in_memory, stored(rows, ANSWER_TABLES) as tables:
        for answer in ANSWERS.values():
            expected = answer.function(in_memory)
            pd.testing.assert_frame_equal(answer.function(tables), expected)


@pytest.fixture(scope="module")
def transactions() -> Iterator[duckdb.DuckDBPyConnection]:
    with opened("kafka-4-transactions") as connection:
        yield connection


@ALL
def test_no_more_rows_are_fetched_than_are_answered(
    answer: Answer, transactions: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[int] = []
    fetch = sql_query.fetch

    def spy(*given: object) -> pa.Table:
        table = fetch(*given)
        fetched.append(len(table))
        return table

    monkeypatch.setattr(sql_query, "fetch", spy)
    rows = answer.function(transactions)
    assert fetched
    if answer.name == "groups":  # what members did to rebalance, step by step
        assert max(fetched) < len(transactions.table("memberships"))
    else:
        assert max(fetched) <= len(rows)


PEAK = """
import sys
import pyarrow as pa, pyarrow.compute as pc
import dissector
from analysis.answers import ANSWERS
from analysis.sql import stored as module

module.MEMORY = 64 << 20  # a small budget limits how much its buffers can grow
names = {table for answer in ANSWERS.values() for table in answer.tables}
rows = dissector.open_capture(sys.argv[1]).tables(names)

def repeated():
    "The capture again and again: on other connections, a second later."
    for number in range(int(sys.argv[2])):
        for name, table in rows.items():
            for place, field in enumerate(table.schema):
                if field.name == "connection_id":
                    moved = pc.add(table[place], number * 1000)
                elif pa.types.is_timestamp(field.type):
                    moved = pc.add(table[place], pa.scalar(number * 10**9, pa.duration("ns")))
                else:
                    continue
                table = table.set_column(place, field, moved)
            for batch in table.to_batches():
                yield name, batch

with module.stored(repeated(), names) as tables:
    print(*tables.sql("select count(*) from exchanges").fetchall()[0])
    for answer in ANSWERS.values():
        answer.function(tables)
"""


def test_memory_does_not_grow_with_the_capture() -> None:
    """DataFrames of these exchanges, and what the answers made of them, took 1.6 kB of each."""
    capture = str(path_of("chatter-mock"))
    (few, low), (many, high) = (
        map(int, printed(PEAK + PRINT_PEAK, capture, times).split()) for times in (16, 40)
    )
    assert 2 * many == 5 * few > 400_000
    assert (high - low) << 10 < 800 * (many - few)


def test_rows_that_cannot_be_written_to_disk_take_more_memory() -> None:
    """Such as the values of an exact quantile."""
    query = "select quantile_cont(x, 0.5) as middle from (select range::double as x from range({}))"
    with duckdb.connect(config={"memory_limit": "16MB", "threads": 1}) as connection:
        with pytest.raises(duckdb.OutOfMemoryException):
            connection.sql(query.format(2_000_001)).fetchall()
        for _ in range(2):
            assert sql_query.fetch(connection, query.format(2_000_001))["middle"].to_pylist() == [
                1e6
            ]
            with pytest.raises(duckdb.OutOfMemoryException):
                connection.sql(query.format(2_000_001)).fetchall()


FULL = """
import resource, sys
from analysis.cli import main
from analysis.sql import stored
stored.SMALL = 0  # all tables are written
sys.dont_write_bytecode = True  # a file that is cut would break later imports
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
sys.exit(main(["latency", sys.argv[1], "--jobs", "1"]))
"""


def test_no_room_for_the_tables_is_one_sentence() -> None:
    """A file that may grow no larger stands for a disk that is full."""
    path = str(path_of("kafka-4-quotas"))
    ran = subprocess.run(
        [sys.executable, "-c", FULL, path], capture_output=True, cwd=ROOT, text=True, check=False
    )
    assert ran.returncode == 1
    assert ran.stdout == ""
    file = r"\S+/kafka-dissector-\w+/\w+\.parquet"
    assert re.fullmatch(rf"Error: {file}: File too large\n", ran.stderr)
