"""Spark gives the rows of one process in any order, however packets are divided into files."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the dependency group spark is not installed")

from pyspark.sql import SparkSession

from analysis.spark import plan, splits
from analysis.spark.options import Request
from analysis.spark.writing import Folder
from tests.analysis.spark.sharding import (
    CAPTURES,
    PRUNED_TABLES,
    RECORDINGS,
    TABLES,
    TEST_TABLES,
    assert_same_rows,
    disjoint_groups,
    make_capture,
    plain,
    split_capture,
    split_captures,
    write_with_one_process,
)

KEYS = str(CAPTURES / "kafka-4-tls.keys.log")
DIFFICULT = [
    CAPTURES / name
    for name in (
        "kafka-3-zookeeper.pcap.zst", "kafka-4-cut-midway.pcap.zst", "kafka-4-java.pcap.zst",
        "kafka-4-net-disorder.pcap.zst", "kafka-4-net-vxlan.pcap.zst", "kafka-4-sasl.pcap.zst",
        "kafka-4-tls-secrets.pcapng.zst", "kafka-4-transactions.pcap.zst",
    )
]  # fmt: skip
"""Without SYNs, with loss, in tunnels, encrypted, with topic names after their ids."""


def compare(
    spark: SparkSession, folder: Path, paths: Sequence[str],
    groups: Sequence[Sequence[str]] = (TABLES, PRUNED_TABLES), **options: object,
) -> None:  # fmt: skip
    """Assert that both give the same rows.

    `groups`: tables that are requested together; for one group, record payload is pruned.
    """
    requests = [Request(paths, tables, **options) for tables in groups]
    names = sorted({name for tables in groups for name in tables})
    write_with_one_process(paths, names, folder / "one", keylog=requests[0].keylog)
    for request in requests:
        output = folder / f"spark-{len(request.tables)}"
        with plan.dissect_captures(spark, request) as dissection:
            for name in request.tables:
                rows = dissection.write(name, Folder(str(output / name)).begin())
                assert rows == assert_same_rows(output / name, folder / "one" / name)
                assert rows or name != "exchanges"
    shutil.rmtree(folder)


def test_packets_shuffled_between_files(spark: SparkSession, tmp_path: Path) -> None:
    assert len(disjoint_groups(DIFFICULT)) == 1
    compare(spark, tmp_path / "rows", split_captures(DIFFICULT, tmp_path, 2, True), [TABLES])


def test_files_in_splits(spark: SparkSession, tmp_path: Path) -> None:
    paths = split_captures([*DIFFICULT, CAPTURES / "chatter-mock.pcap.zst"], tmp_path, 1, False)
    compare(spark, tmp_path / "rows", paths, [PRUNED_TABLES], split_bytes=300_000, shards=2)


def test_a_key_log(spark: SparkSession, tmp_path: Path) -> None:
    paths = split_capture(CAPTURES / "kafka-4-tls.pcap.zst", tmp_path, 2)
    compare(spark, tmp_path / "rows", paths, [TEST_TABLES], keylog=KEYS)


@pytest.mark.parametrize("shuffled", [False, True], ids=["rotated", "shuffled"])
@pytest.mark.parametrize("files", [1, 2, 7, 50])
def test_all_recordings(
    slow: None, spark: SparkSession, tmp_path: Path, files: int, shuffled: bool
) -> None:
    for group in disjoint_groups(RECORDINGS):
        compare(spark, tmp_path / "rows", split_captures(group, tmp_path, files, shuffled))


def large(
    spark: SparkSession, folder: Path, kind: str, size: int, files: int, shuffled: bool,
    groups: Sequence[Sequence[str]] = (TABLES, PRUNED_TABLES),
) -> None:  # fmt: skip
    """Compare the rows of a large capture, divided into files."""
    paths = split_capture(make_capture(kind, folder, size), folder, files, shuffled=shuffled)
    compare(spark, folder / "rows", paths, groups, split_bytes=size // 6)


def test_a_large_capture_of_small_messages(spark: SparkSession, tmp_path: Path) -> None:
    large(spark, tmp_path, "chatter", 3_000_000, 3, True, [TEST_TABLES])


def test_a_large_capture_with_pruned_records(spark: SparkSession, tmp_path: Path) -> None:
    large(spark, tmp_path, "bulk", 12_000_000, 2, False, [("exchanges", "errors", "connections")])


@pytest.mark.parametrize("shuffled", [False, True], ids=["rotated", "shuffled"])
@pytest.mark.parametrize("files", [1, 2, 7, 50])
@pytest.mark.parametrize("kind", ["chatter", "bulk"])
def test_large_captures(
    slow: None, spark: SparkSession, tmp_path: Path, kind: str, files: int, shuffled: bool
) -> None:
    large(spark, tmp_path, kind, 100_000_000, files, shuffled)


def test_a_damaged_file_is_one_split(tmp_path: Path) -> None:
    data = bytearray(plain(CAPTURES / "chatter-mock.pcap.zst"))
    data[200_000:203_000] = bytes(3000)
    path = tmp_path / "damaged.pcap"
    path.write_bytes(data)
    scans = [splits.scan_split(guess) for guess in splits.guess([str(path)], 50_000)]
    assert len(scans) > 10
    valid, invalid = splits.validate(scans)
    assert not valid
    assert [split.part.end for split in invalid] == [None]
