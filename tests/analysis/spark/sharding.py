"""Recordings divided into several files, and the rows of one process for comparison."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import SparkSession

from analysis.spark import job
from analysis.spark.options import Request
from analysis.spark.output import Output
from analysis.spark.schemas import to_spark
from analysis.spark.writing import RunFiles
from bench import inputs
from dissector.capture import open_capture
from tests.captures.recorded import CAPTURES
from tests.robustness.robustness_damage import recording

QUOTAS, QUORUM = (CAPTURES / f"kafka-4-{name}.pcap.zst" for name in ("quotas", "quorum"))
TABLES = (
    "exchanges", "errors", "connections", "topics", "partitions", "memberships", "transactions",
    "brokers", "clusters", "batches", "decompressed_batches", "records",
)  # fmt: skip
TEST_TABLES = ("exchanges", "errors", "batches", "connections")


def split_capture(path: Path, folder: Path, files: int, *, shuffled: bool = False) -> list[str]:
    """Divide the packets of a capture among files, in sequence or at random."""
    whole = recording(path)
    file_index = np.arange(len(whole.begin)) * files // max(len(whole.begin), 1)
    if shuffled:
        random.Random(files).shuffle(file_index)
    paths = [folder / f"{path.name}.{files}.{index}" for index in range(files)]
    for index, target in enumerate(paths):
        target.write_bytes(whole.made_of(np.flatnonzero(file_index == index)))
    return [*map(str, paths)]


def make_capture(kind: str, folder: Path) -> Path:
    """A capture of 100 MB with many connections, blocks and splits."""
    source, connections = {"chatter": ("chatter-mock", 200), "bulk": ("bulk-tansu", 8)}[kind]
    large = inputs.Input(
        str(folder / "large"), CAPTURES / f"{source}.pcap.zst", connections, bytes=100_000_000
    )
    inputs.make(large)
    return large.path


def write_with_one_process(
    paths: Sequence[str], tables: Sequence[str], output: Path, *, keylog: str | None = None
) -> None:
    """Write the rows of one process in Spark's schema, one Parquet folder per table."""
    with RunFiles(str(output), "part") as files:
        for name, batch in open_capture(paths, keylog=keylog).stream(tables):
            files.write(name, to_spark(name, batch))
        files.finish()


def write_with_spark(spark: SparkSession, request: Request, output: Path) -> dict[str, int]:
    """Write the tables of a job; returns their numbers of rows."""
    with Output(str(output), request).opened() as opened:
        return {name: rows for name, rows, _ in job.run(spark, request, opened)}


def assert_same_rows(actual: Path, expected: Path, *, without: str = "") -> int:
    """Assert that two Parquet folders have the same rows in any order; returns their number.

    `without`: a column that is not compared.
    """
    files = [[*map(str, folder.rglob("*.parquet"))] for folder in (actual, expected)]
    if not files[1]:
        assert duckdb.read_parquet(files[0]).count("*").fetchall() == [(0,)]
        return 0
    tables = [duckdb.read_parquet(paths) for paths in files]
    if without:
        tables = [table.project(f"* exclude ({without})") for table in tables]
    count, *differences = (
        duckdb.sql(query).fetchall()
        for query in (
            "select count(*) from a", "from a except all from b limit 2",
            "from b except all from a limit 2",
        )
        for a, b in [tables]
    )  # fmt: skip
    assert differences == [[], []], f"{actual.name}: {differences}"
    return int(count[0][0])


def texts(batches: Sequence[pa.RecordBatch]) -> list[str]:
    """Rows as sorted text."""
    return sorted(repr(row) for batch in batches for row in batch.to_pylist())


def exact(rows: pa.Table, expected: pd.DataFrame) -> pd.DataFrame:
    """The rows with the nanoseconds of times, in the dtypes of the expected answer."""
    columns = {}
    for name in expected.columns:
        column = rows[name]
        if pa.types.is_timestamp(column.type):
            column = rows[f"{name}_ns"].cast(pa.timestamp("ns", "UTC"))
        columns[name] = column
    assert len(rows.schema) == len(columns) + sum(n.endswith("_ns") for n in rows.schema.names)
    return pa.table(columns).to_pandas().astype(expected.dtypes.to_dict())
