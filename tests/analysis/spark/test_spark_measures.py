"""Measures on Spark have the columns and rows of the pandas answers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

pytest.importorskip("pyspark", reason="the dependency group spark is not installed")

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import analysis
import analysis.spark
from analysis.answers import ANSWERS
from analysis.frames import frame
from analysis.spark.schemas import to_spark
from dissector.capture import open_capture
from dissector.errors import DissectorError
from tests.analysis.spark.sharding import CAPTURES

RECORDINGS = ("kafka-4-quotas", "kafka-4-group-eager", "kafka-4-errors", "kafka-4-group-consumer")
NAMES = ("exchanges", "errors", "batches", "connections", "partitions", "memberships")
CALLS = [
    ("latency", {}),
    ("latency", {"by": ("broker", "software")}),
    ("throttle", {}),
    ("throttle", {"by": ("software",)}),
    ("errors", {}),
    ("errors", {"by": ("client", "error")}),
    ("topology", {}),
    ("groups", {}),
]


@pytest.fixture(scope="module")
def rows() -> dict[str, pa.Table]:
    """Tables of several recordings."""
    return open_capture([CAPTURES / f"{name}.pcap.zst" for name in RECORDINGS]).tables(NAMES)


@pytest.fixture(scope="module")
def on_spark(rows: Mapping[str, pa.Table], spark: SparkSession) -> dict[str, DataFrame]:
    """The same tables in the schema of the data source."""
    return {
        name: spark.createDataFrame(
            pa.Table.from_batches([to_spark(name, batch) for batch in table.to_batches()])
        )
        for name, table in rows.items()
    }


@pytest.mark.parametrize(("name", "options"), CALLS, ids=str)
def test_a_measure_equals_its_answer(
    rows: Mapping[str, pa.Table], on_spark: Mapping[str, DataFrame], name: str, options: dict
) -> None:
    tables = {table: frame(values) for table, values in rows.items()}
    expected = getattr(analysis, name)(tables, **options)
    actual = getattr(analysis.spark, name)(on_spark, **options).toArrow()
    assert actual.schema.names == [*expected.columns]
    assert len(expected) > 0
    assert plain(frame(actual)) == plain(expected)


def plain(rows: pd.DataFrame) -> list[str]:
    """Rows as text: times to the microsecond, null as "-"; sorted.

    Numbers in ms have one digit more than nanoseconds, because a median may be a half.
    """
    lines = []
    for row in rows.to_dict("records"):
        cells = []
        for value in row.values():
            if pd.isna(value):
                cells.append("-")
            elif isinstance(value, pd.Timestamp):
                cells.append(str(value.floor("us").tz_convert("UTC")))
            elif isinstance(value, float):
                cells.append(f"{value:.7f}")
            else:
                cells.append(str(value))
        lines.append(" ".join(cells))
    return sorted(lines)


def test_an_unknown_column(on_spark: Mapping[str, DataFrame]) -> None:
    with pytest.raises(DissectorError, match="no column nothing to group by"):
        analysis.spark.latency(on_spark, by=("nothing",))


def test_measures_are_answers() -> None:
    assert {*analysis.spark.MEASURES} <= {*ANSWERS}
