"""Inputs: log segments next to captures, and several tables in one plan."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the dependency group spark is not installed")

import pyarrow as pa
import pyarrow.dataset as ds
import zstandard
from pyspark.sql import SparkSession

import analysis.spark
from analysis.cli import main
from analysis.spark import job
from analysis.spark.schemas import to_spark
from dissector.capture import open_capture
from tests.analysis.spark.sharding import CAPTURES, split_capture, texts

QUOTAS = CAPTURES / "kafka-4-quotas.pcap.zst"
SEGMENT = "00000000000000000000.log"
SEGMENT_TABLES = ("batches", "records", "problems")
LATENCY = ("exchanges", "batches", "connections")


@pytest.fixture(scope="module")
def read(spark: SparkSession) -> SparkSession:
    analysis.spark.register(spark)
    return spark


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker's log folder: see tests/data/README.md."""
    folder = tmp_path_factory.mktemp("segments")
    packed = Path(__file__).parents[2] / "data" / "segments.tar.zst"
    data = zstandard.ZstdDecompressor().stream_reader(packed.read_bytes()).read()
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        # Python 3.11.2 of Debian 12 has no `filter`; 3.14 has this one.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return folder / "kafka-3"


def rows_of_one_process(path: Path, table: str) -> list[str]:
    rows = open_capture(path).tables([table])[table]
    return texts([to_spark(table, batch) for batch in rows.to_batches()])


def test_segments_next_to_captures(read: SparkSession, segments: Path, tmp_path: Path) -> None:
    split_capture(QUOTAS, tmp_path, 2)
    for partition in ("orders-0", "__consumer_offsets-0"):
        shutil.copytree(segments / partition, tmp_path / partition)
    damaged = tmp_path / "orders-0" / SEGMENT
    damaged.write_bytes(damaged.read_bytes() + bytes(1000))
    tables = analysis.spark.load(read, str(tmp_path), SEGMENT_TABLES)
    for name in SEGMENT_TABLES:
        expected = rows_of_one_process(tmp_path, name)
        assert len(expected) > len(rows_of_one_process(QUOTAS, name))
        assert texts(tables[name].toArrow().to_batches()) == expected


def test_segments_without_captures(
    spark: SparkSession, segments: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkSession, "stop", lambda session: None)
    words = ["spark", str(segments), "--table", "records", "--table", "exchanges", "--jobs", "2"]
    assert main([*words, "-o", str(tmp_path / "tables")]) == 0
    by = ds.partitioning(pa.schema({"date": pa.date32()}), flavor="hive")
    actual = ds.dataset(tmp_path / "tables" / "records", partitioning=by).to_table()
    expected = open_capture(segments).tables(["records"])["records"]
    assert len(actual) == len(expected) > 0
    assert ds.dataset(tmp_path / "tables" / "exchanges").count_rows() == 0


def test_several_tables_share_one_plan(
    read: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[tuple[str, ...]] = []
    run = job.run

    def counted(spark: SparkSession, request: job.Request, output: job.Output):
        plans.append(tuple(request.tables))
        return run(spark, request, output)

    monkeypatch.setattr(job, "run", counted)
    paths = split_capture(QUOTAS, tmp_path, 3)
    tables = analysis.spark.load(read, paths, LATENCY)
    assert plans == []  # nothing is read before a table is used
    actual = {name: tables[name].toArrow() for name in ("connections", *LATENCY)}
    assert [{*names} for names in plans] == [{*LATENCY}]
    for name in LATENCY:
        rows = open_capture(paths).tables([name])[name]
        expected = pa.Table.from_batches([to_spark(name, batch) for batch in rows.to_batches()])
        assert texts(actual[name].to_batches()) == texts(expected.to_batches())
    # Another load reads the captures again, because they may have changed.
    assert analysis.spark.load(read, paths[:1], LATENCY)["exchanges"].count() < len(
        actual["exchanges"]
    )
    assert len(plans) == 2
