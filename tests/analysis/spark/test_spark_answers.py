"""Every answer on Spark has the rows of the answer on one machine, in the same order."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the dependency group spark is not installed")

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import analysis.spark
from analysis.answers import ANSWERS
from analysis.cli import main
from analysis.spark import answers
from analysis.spark.schemas import to_arrow, to_spark
from dissector.capture import open_capture
from dissector.errors import DissectorError
from tests.analysis.spark.sharding import CAPTURES, exact

RECORDINGS = (
    "kafka-4-quotas", "kafka-4-group-eager", "kafka-4-errors", "kafka-4-group-share",
    "kafka-4-transactions", "kafka-4-cut-midway",
)  # fmt: skip
NAMES = tuple({table: None for answer in ANSWERS.values() for table in answer.tables})
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("latency", {"slowest": 5}),
    ("errors", {"by": "client"}),
    ("lag", {"show": "all"}),
    ("producers", {"show": "transactions"}),
]


ON_SPARK: list[tuple[str, dict[str, Any]]] = [
    ("latency", {"by": ("broker", "software")}),
    ("leadership", {}),
]
"""Answers that Spark itself computes here: of several tables, and with lists and times."""


@pytest.fixture(scope="module")
def rows() -> dict[str, pa.Table]:
    """Tables of several recordings."""
    return open_capture([CAPTURES / f"{name}.pcap.zst" for name in RECORDINGS]).tables(NAMES)


@pytest.fixture(scope="module")
def reversed_rows(rows: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The same rows in the schema of the data source, in another order."""
    return {
        name: pa.Table.from_batches([to_spark(name, batch) for batch in table.to_batches()])[::-1]
        for name, table in rows.items()
    }


@pytest.fixture(scope="module")
def on_spark(reversed_rows: Mapping[str, pa.Table], spark: SparkSession) -> dict[str, DataFrame]:
    return {name: spark.createDataFrame(table).coalesce(2) for name, table in reversed_rows.items()}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "options"), [*((name, {}) for name in ANSWERS), *VARIANTS], ids=str
)
def test_an_answer_in_a_task_is_that_of_one_machine(
    rows: Mapping[str, pa.Table], reversed_rows: Mapping[str, pa.Table], name: str,
    options: dict[str, Any],
) -> None:  # fmt: skip
    """The functions of the tasks, without Spark, for all answers."""
    declared = ANSWERS[name]
    schema = to_arrow(answers.columns(declared, options))
    parts = chain.from_iterable(
        answers.pack(table, iter(reversed_rows[table].to_batches(max_chunksize=1000)))
        for table in declared.tables_for(options)
    )
    actual = pa.Table.from_batches(answers.answered(name, options, schema, parts), schema)
    expected = declared.function(rows, **options)
    pd.testing.assert_frame_equal(exact(actual, expected), expected)


@pytest.mark.parametrize(("name", "options"), ON_SPARK, ids=str)
def test_an_answer_on_spark_is_that_of_one_machine(
    rows: Mapping[str, pa.Table], on_spark: Mapping[str, DataFrame], name: str,
    options: dict[str, Any],
) -> None:  # fmt: skip
    function = ANSWERS[name].function
    expected = function(rows, **options)
    actual = function(on_spark, **options)
    assert isinstance(actual, DataFrame)
    pd.testing.assert_frame_equal(exact(actual.toArrow(), expected), expected)


def test_spark_reads_exported_tables_with_times_as_longs(
    spark: SparkSession, tmp_path: Path
) -> None:
    capture = CAPTURES / "kafka-4-transactions.pcap.zst"
    declared = ANSWERS["errors"]
    words = [word for name in declared.tables for word in ("--table", name)]
    assert main(["export", str(capture), *words, "-o", str(tmp_path)]) == 0
    spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    try:
        read = spark.read.parquet
        tables = {name: read(str(tmp_path / f"{name}.parquet")) for name in declared.tables}
        actual = declared.function(tables).toArrow()
    finally:
        spark.conf.unset("spark.sql.legacy.parquet.nanosAsLong")
    expected = declared.function(capture)
    assert len(expected) > 1
    pd.testing.assert_frame_equal(exact(actual, expected), expected)


def test_an_answer_of_tables_without_rows_has_its_columns(
    on_spark: Mapping[str, DataFrame],
) -> None:
    empty = {name: table.limit(0) for name, table in on_spark.items()}
    rows = ANSWERS["throttle"].function(empty).toArrow()
    assert len(rows) == 0
    assert rows.schema.names[:4] == ["client_id", "broker", "api", "responses"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("latency", {"by": ("nothing",)}, "no column nothing to group by"),
        ("lag", {"show": "nothing"}, "show='nothing' is not one of last, all"),
    ],
)
def test_wrong_options_are_refused_before_a_job(
    on_spark: Mapping[str, DataFrame], name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DissectorError, match=message):
        ANSWERS[name].function(on_spark, **options)


def test_a_missing_table_is_named(on_spark: Mapping[str, DataFrame]) -> None:
    with pytest.raises(DissectorError, match="the table batches is missing"):
        analysis.latency({"exchanges": on_spark["exchanges"]})
