"""The command `kafka-dissector spark`."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the dependency group spark is not installed")

import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from analysis.cli import main
from analysis.spark import job, splits
from analysis.spark.dissection import Task, dissect, unpack
from analysis.spark.options import Request
from dissector.capture import open_capture
from tests.analysis.spark.dealing import CAPTURES, deal

QUOTAS = CAPTURES / "kafka-4-quotas.pcap.zst"


def test_parquet_by_date_and_api(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(SparkSession, "stop", lambda session: None)  # other tests need it
    folder, output = tmp_path / "parts", tmp_path / "tables"
    folder.mkdir()
    deal(QUOTAS, folder, 3)
    words = ["spark", str(folder), "--table", "exchanges", "--table", "connections"]
    words += ["-o", output.as_uri(), "--jobs", "2"]
    assert main(words) == 0
    one = open_capture(folder).tables(["exchanges", "connections"])
    assert capsys.readouterr().out.splitlines() == [
        f"{name}: {len(table):,} rows in {output.as_uri()}/{name}" for name, table in one.items()
    ]
    found = ds.dataset(output / "exchanges", partitioning="hive").to_table()
    assert sorted(found["api"].to_pylist()) == sorted(one["exchanges"]["api"].to_pylist())
    assert {str(each) for each in found["date"].to_pylist()} == {"2026-11-21"}
    assert main(words) == 1  # what is there is not written over
    assert f"{output.as_uri()}/exchanges: exists already" in capsys.readouterr().err


def test_without_java_one_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["spark", str(QUOTAS), "-o", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("Error: Spark needs Java 17 or newer: install it (Debian: ")
    assert said.count("\n") == 1


def test_a_time_that_is_none(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(SparkSession, "stop", lambda session: None)
    assert main(["spark", str(QUOTAS), "-o", str(tmp_path), "--since", "noon"]) == 1
    assert capsys.readouterr().err == "Error: noon is no time in ISO 8601\n"


def test_memory_is_that_of_each_task(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(SparkSession, "stop", lambda session: None)
    monkeypatch.setattr(job, "run", lambda spark, request, output: asked.append(request) or [])
    monkeypatch.setattr(job, "check", lambda spark, output: None)
    assert main(["spark", str(QUOTAS), "-o", str(tmp_path), "--memory", "20"]) == 0
    assert [each.memory for each in asked] == [20 << 20]
    monkeypatch.setattr(splits, "BLOCK_BYTES", 50_000)
    request = Request([str(QUOTAS)], ["problems"], memory=1 << 10)
    (split,), _ = splits.settle([splits.look(each) for each in splits.guess(request.paths)])
    bundles = splits.bundles(split, 1, request.since, request.until)
    task = Task(request, request.paths, frozenset(), [])
    kinds = [
        kind
        for parcel in dissect(task, bundles)
        if parcel["kind"][0].as_py() == "problems"
        for kind in unpack(parcel["content"][0].as_py())["kind"].to_pylist()
    ]
    assert "memory" in kinds
