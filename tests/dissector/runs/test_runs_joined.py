"""Rows of a block that several processes made are in order of time and connection."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from dissector.runs import joined
from dissector.tables.builder import TableRows


def rows(times: list[int], connections: list[int], table: str = "errors") -> TableRows:
    columns = {"time": times, "connection_id": connections, "row": range(len(times))}
    return TableRows(
        table,
        pa.record_batch({name: pa.array(column, pa.int64()) for name, column in columns.items()}),
    )


@pytest.mark.parametrize("seed", range(20))
def test_rows_that_change_places(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows have the same time; their connections have other numbers than in their process."""
    monkeypatch.setattr(joined, "UNMOVED", 5)
    generator = random.Random(seed)
    times = sorted(generator.choices(range(1000), k=generator.choice([2, 100, 1000])))
    connections = [generator.randrange(8) for _ in times]
    number = np.array(generator.sample(range(8), 8))
    parts = [rows(times, connections)]
    if generator.random() < 0.5:  # those that the parent has dissected
        at = generator.randrange(len(times))
        parts = [rows(times[:at], connections[:at]), rows(times[at:], connections[at:])]
        generator.shuffle(parts)
    given = pa.concat_batches([part.batch for part in parts]).to_pylist()
    actual = [row for part in joined.merged(parts, number) for row in part.batch.to_pylist()]
    assert actual == sorted(given, key=lambda row: (row["time"], number[row["connection_id"]]))


def test_rows_in_order_are_not_copied() -> None:
    batch = rows([*range(9000)], [0] * 9000).batch
    times = [*range(3000), 2999, *range(3001, 6000), *range(6000, 9000)]
    given = rows(times, [0] * 2999 + [1, 0] + [0] * 5999)
    first, moved, last = joined.merged([given], None)
    assert [len(each.batch) for each in (first, moved, last)] == [2999, 2, 5999]
    assert moved.batch["connection_id"].to_pylist() == [0, 1]
    for part, source in ((first, given.batch), (last, given.batch)):
        address = part.batch["row"].buffers()[1].address
        assert address == source["row"].buffers()[1].address
    (whole,) = joined.merged([TableRows("errors", batch)], None)
    assert whole.batch.equals(batch)


def test_states_of_topics_in_a_block_are_one_batch() -> None:
    """Which of them are changes depends on the order of their ends, which is not that of times."""
    (batch,) = joined.merged([rows([1, 4], [0, 0], "topics"), rows([3], [1], "topics")], None)
    assert batch.batch["time"].to_pylist() == [1, 3, 4]
