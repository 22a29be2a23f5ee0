"""Stored tables: the numbers of rows, whatever the order in which rows are read."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.sql import row_order as row_order_module
from analysis.sql import stored as module
from analysis.sql.row_order import NTH, row_order
from analysis.sql.stored import stored
from dissector.tables import TABLES


@pytest.fixture(autouse=True)
def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No table is small."""
    monkeypatch.setattr(module, "SMALL", 0)


KEYS = st.tuples(st.integers(0, 9) | st.none(), st.integers(0, 3), st.integers(0, 3))
"""Time, connection and partition; few values, so that rows are equal in some of them."""


def batches(keys: list[tuple[int | None, int, int]]) -> pa.RecordBatch:
    """Rows of `batches`; `last_offset` is the place of a row."""
    rows = [
        {"time": time, "connection_id": connection, "partition": partition, "last_offset": place}
        for place, (time, connection, partition) in enumerate(keys)
    ]
    schema = TABLES["batches"].schema
    return pa.RecordBatch.from_pylist(
        [dict.fromkeys(schema.names) | row for row in rows], schema=schema
    )


def numbered(batch: pa.RecordBatch) -> list[tuple[int, int]]:
    """The number and the `last_offset` of each row, by number."""
    with stored([("batches", batch)], ("batches",)) as connection:
        query = f"select {NTH}, last_offset from batches order by {NTH}"
        return connection.execute(query).fetchall()


def expected(batch: pa.RecordBatch) -> list[int]:
    """The order of rows by another engine: Arrow sorts by the columns of the row order."""
    time_first = ["time", "connection_id", "partition", "last_offset"]
    places = pc.sort_indices(batch, [(name, "ascending") for name in time_first])
    return [int(place) for place in places.to_numpy()]


def test_the_row_order_begins_with_time_and_connection() -> None:
    assert row_order("batches").startswith('coalesce(time), "time", "connection_id",')
    assert row_order("batches", keys_only=True).endswith('"partition", "base_offset"')
    assert row_order("exchanges", keys_only=True).endswith('"connection_id", "correlation_id"')


@settings(max_examples=8)  # each writes a database
@given(
    most=st.sampled_from([0, 3, 100]),
    batch=st.sampled_from([1, 7, 100]),
    keys=st.lists(KEYS, max_size=30),
)
def test_rows_are_numbered_in_the_row_order(
    most: int, batch: int, keys: list[tuple[int | None, int, int]]
) -> None:
    """With any number of late rows; the table is sorted if there are more than `most`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MOST_LATE", most)
        patch.setattr(module, "BATCH_ROWS", batch)
        patch.setattr(row_order_module, "BATCH_ROWS", batch)
        rows = numbered(batches(keys))
    assert [place for _, place in rows] == expected(batches(keys))
    numbers = [number for number, _ in rows]
    assert len(set(numbers)) == len(numbers)


def test_queries_without_the_number_of_rows_do_not_join_the_late_ones() -> None:
    rows = batches([(2, 0, 0), (1, 0, 0)])
    with stored([("batches", rows)], ("batches",)) as connection:
        plans = [
            connection.execute(f"explain select sum({column}) from batches").fetchall()[0][1]
            for column in (NTH, "last_offset")
        ]
    assert ["Join" in plan for plan in plans] == [True, False]


@pytest.mark.parametrize("late", [1, 3, 4, 9])
def test_late_rows_before_all_others_or_in_one_place(
    late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_LATE", 3)
    monkeypatch.setattr(module, "_STEP", 4)
    for first in (0, 6):
        keys = [(5, 1, 1), (7, 1, 1), (8, 1, 1), *[(first, 1, 1)] * late]
        assert [place for _, place in numbered(batches(keys))] == expected(batches(keys))


def test_more_rows_than_the_memory_budget_can_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 1_500_000
    schema = TABLES["brokers"].schema
    columns = {name: pa.nulls(count, schema.field(name).type) for name in schema.names}
    numbers = pa.array(range(count), pa.int64())
    columns["connection_id"] = pc.subtract(count, numbers)  # as late as possible
    columns["time"] = pc.divide(numbers, 2).cast(schema.field("time").type)
    rows = pa.RecordBatch.from_pydict(columns, schema=schema)
    monkeypatch.setattr(module, "MEMORY", 16 << 20)
    with stored([("brokers", rows)], ("brokers",)) as connection:
        query = f"select connection_id from brokers order by {NTH} limit 3"
        assert connection.execute(query).fetchall() == [(count - 1,), (count,), (count - 3,)]
    monkeypatch.setattr(module, "within_memory", lambda _, work: work())
    with (
        pytest.raises(duckdb.OutOfMemoryException),
        stored([("brokers", rows)], ("brokers",)),
    ):
        pass
