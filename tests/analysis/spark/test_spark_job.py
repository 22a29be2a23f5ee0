"""The command `kafka-dissector spark`."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the dependency group spark is not installed")

import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from analysis.cli import main
from analysis.spark import job
from analysis.spark.options import Request
from dissector.capture import open_capture
from tests.analysis.commands import Ran
from tests.analysis.spark.sharding import QUOTAS, split_capture, write_with_spark


def test_parquet_by_date(kept_spark: SparkSession, tmp_path: Path, ran: Ran) -> None:
    folder, output = tmp_path / "parts", tmp_path / "tables"
    folder.mkdir()
    split_capture(QUOTAS, folder, 3)
    words = ["spark", str(folder), "--table", "exchanges", "--table", "connections"]
    words += ["-o", output.as_uri(), "--jobs", "2"]
    lines = ran(*words).out.splitlines()
    expected = open_capture(folder).tables(["exchanges", "connections"])
    assert lines == [
        f"{name}: {len(table):,} rows in {output.as_uri()}/{name}"
        for name, table in expected.items()
    ]
    rows = ds.dataset(output / "exchanges", partitioning="hive").to_table()
    assert sorted(rows["api"].to_pylist()) == sorted(expected["exchanges"]["api"].to_pylist())
    assert {str(date) for date in rows["date"].to_pylist()} == {"2026-11-21"}
    err = ran(*words, "--api", "Fetch", status=1).err  # tables of another job are not overwritten
    assert f"{output.as_uri()}/exchanges already exists" in err


def test_missing_java_prints_one_message_with_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Ran
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    message = ran("spark", str(QUOTAS), "-o", str(tmp_path), status=1).err
    assert message.startswith("Error: Spark needs Java 17 or newer: install it (Debian: ")
    assert message.count("\n") == 1


def test_missing_captures_are_reported_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Ran
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # without Java
    message = ran("spark", str(tmp_path / "nowhere"), "-o", str(tmp_path / "tables"), status=1).err
    assert message == f"Error: {tmp_path / 'nowhere'}: No such file or directory\n"
    assert not (tmp_path / "tables").exists()


def test_files_that_cannot_be_read_are_reported(
    kept_spark: SparkSession, tmp_path: Path, ran: Ran
) -> None:
    text, missing = tmp_path / "text.pcap", tmp_path / "missing.pcap"
    text.write_text("no packets")
    words = ["spark", str(QUOTAS), str(missing), "-o", str(tmp_path / "tables")]
    assert ran(*words, status=1).err == (
        f"Warning: {missing}: No such file or directory. The result does not include it.\n"
    )
    folder = tmp_path / "captures"
    folder.mkdir()
    split_capture(QUOTAS, folder, 2)
    text.rename(folder / text.name)
    err = ran("spark", str(folder), "-o", str(tmp_path / "more")).err  # the user names the folder
    assert err.startswith(f"Warning: {folder / text.name} is text, not a pcap")


def test_an_invalid_time(tmp_path: Path, ran: Ran) -> None:
    err = ran("spark", str(QUOTAS), "-o", str(tmp_path), "--since", "noon", status=1).err
    assert "'noon' is not a time; use ISO 8601" in err


def test_memory_is_per_task(
    kept_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = []
    with monkeypatch.context() as patch:
        patch.setattr(job, "run", lambda spark, request, *_: requests.append(request) or [])
        assert main(["spark", str(QUOTAS), "-o", str(tmp_path), "--memory", "20"]) == 0
    assert [request.memory for request in requests] == [20 << 20]
    request = Request([str(QUOTAS)], ["problems"], memory=1 << 10)
    write_with_spark(kept_spark, request, tmp_path / "tables")
    assert "memory" in ds.dataset(tmp_path / "tables" / "problems").to_table()["kind"].to_pylist()
