"""Inputs: log segments next to captures, and several tables in one plan."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the dependency group spark is not installed")

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

import analysis.spark
from analysis.cli import main
from analysis.spark import job
from analysis.spark.options import Request
from analysis.spark.schemas import to_spark
from dissector.capture import open_capture
from dissector.errors import DissectorError
from dissector.runs import planning
from tests.analysis.spark.sharding import QUOTAS, split_capture, texts, write_with_spark

SEGMENT = "00000000000000000000.log"
SEGMENT_TABLES = ("batches", "records", "problems")
LATENCY = ("exchanges", "batches", "connections")


def rows_of_one_process(paths: Path | list[str], table: str) -> list[str]:
    rows = open_capture(paths).tables([table])[table]
    return texts([to_spark(table, batch) for batch in rows.to_batches()])


def test_segments_next_to_captures(registered: SparkSession, brokers: Path, tmp_path: Path) -> None:
    split_capture(QUOTAS, tmp_path, 2)
    for partition in ("orders-0", "__consumer_offsets-0"):
        shutil.copytree(brokers / "kafka-3" / partition, tmp_path / partition)
    damaged = tmp_path / "orders-0" / SEGMENT
    damaged.write_bytes(damaged.read_bytes() + bytes(1000))
    tables = analysis.spark.load(registered, str(tmp_path), SEGMENT_TABLES)
    for name in SEGMENT_TABLES:
        expected = rows_of_one_process(tmp_path, name)
        assert len(expected) > len(rows_of_one_process(QUOTAS, name))
        assert texts(tables[name].toArrow().to_batches()) == expected


def test_segments_without_captures(kept_spark: SparkSession, brokers: Path, tmp_path: Path) -> None:
    segments = brokers / "kafka-3"
    words = ["spark", str(segments), "--table", "records", "--table", "exchanges", "--jobs", "2"]
    assert main([*words, "-o", str(tmp_path / "tables")]) == 0
    by = ds.partitioning(pa.schema({"date": pa.date32()}), flavor="hive")
    actual = ds.dataset(tmp_path / "tables" / "records", partitioning=by).to_table()
    expected = open_capture(segments).tables(["records"])["records"]
    assert len(actual) == len(expected) > 0
    assert ds.dataset(tmp_path / "tables" / "exchanges").count_rows() == 0


def test_several_tables_share_one_plan(
    registered: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[tuple[str, ...]] = []
    run = job.run

    def counted(spark: SparkSession, request: job.Request, output: job.Output):
        plans.append(tuple(request.tables))
        return run(spark, request, output)

    monkeypatch.setattr(job, "run", counted)
    paths = split_capture(QUOTAS, tmp_path, 3)
    tables = analysis.spark.load(registered, paths, LATENCY)
    assert plans == []  # nothing is read before a table is used
    actual = {name: tables[name].toArrow() for name in ("connections", *LATENCY)}
    assert [{*names} for names in plans] == [{*LATENCY}]
    for name in LATENCY:
        assert texts(actual[name].to_batches()) == rows_of_one_process(paths, name)
    # Another load reads the captures again, because they may have changed.
    assert analysis.spark.load(registered, paths[:1], LATENCY)["exchanges"].count() < len(
        actual["exchanges"]
    )
    assert len(plans) == 2


@pytest.mark.parametrize("run_bytes", [50_000, 0], ids=["several runs", "a run"])
@pytest.mark.parametrize("files", [1, 3])
def test_a_file_that_is_removed_meanwhile_stops_the_job(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int,
    run_bytes: int,
) -> None:  # fmt: skip
    """Manifests would otherwise report runs as complete whose rows are missing."""
    paths = split_capture(QUOTAS, tmp_path, files)
    write = job._write

    def write_without_a_file(*arguments: Any) -> None:
        Path(paths[-1]).unlink()
        write(*arguments)

    monkeypatch.setattr(planning, "LEAST_RUN", 1)
    monkeypatch.setattr(job, "_write", write_without_a_file)
    request = Request(paths, ["exchanges"], run_bytes=run_bytes)
    with pytest.raises(DissectorError, match="No such file or directory"):
        write_with_spark(spark, request, tmp_path / "tables")
    assert not [*tmp_path.glob("tables/*/_SUCCESS")]
