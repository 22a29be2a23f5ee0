"""The rows of Spark are those of one process, order aside, however packets lie in files."""

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
from tests.analysis.spark.dealing import (
    CAPTURES,
    CUT,
    RECORDINGS,
    SOME_TABLES,
    TABLES,
    apart,
    deal,
    every,
    made,
    on_one_machine,
    plain,
    same_rows,
)

KEYS = str(CAPTURES / "kafka-4-tls.keys.log")
SOME = [
    CAPTURES / name
    for name in (
        "kafka-3-zookeeper.pcap.zst", "kafka-4-cut-midway.pcap.zst", "kafka-4-java.pcap.zst",
        "kafka-4-net-disorder.pcap.zst", "kafka-4-net-vxlan.pcap.zst", "kafka-4-sasl.pcap.zst",
        "kafka-4-tls-secrets.pcapng.zst", "kafka-4-transactions.pcap.zst",
    )
]  # fmt: skip
"""Without SYNs, with loss, in tunnels, encrypted, with topic ids whose names come late."""


def compare(
    spark: SparkSession, folder: Path, paths: Sequence[str],
    groups: Sequence[Sequence[str]] = (TABLES, CUT), **options: object,
) -> None:  # fmt: skip
    """Raises AssertionError where the two differ.

    `groups`: tables that are asked for together. Among some of them records stay behind.
    """
    requests = [Request(paths, tables, **options) for tables in groups]
    every = sorted({name for tables in groups for name in tables})
    on_one_machine(paths, every, folder / "one", keylog=requests[0].keylog)
    for request in requests:
        output = folder / f"spark-{len(request.tables)}"
        with plan.whole(spark, request) as dissected:
            for name in request.tables:
                rows = dissected.write(name, Folder(str(output / name)).begin())
                assert rows == same_rows(output / name, folder / "one" / name)
                assert rows or name != "exchanges"
    shutil.rmtree(folder)


def test_packets_shuffled_between_files(spark: SparkSession, tmp_path: Path) -> None:
    assert len(apart(SOME)) == 1
    compare(spark, tmp_path / "rows", every(SOME, tmp_path, 7, True))


def test_files_in_splits(spark: SparkSession, tmp_path: Path) -> None:
    paths = every([*SOME, CAPTURES / "chatter-mock.pcap.zst"], tmp_path, 1, False)
    compare(spark, tmp_path / "rows", paths, split_bytes=150_000, shares=3)


def test_with_a_key_log(spark: SparkSession, tmp_path: Path) -> None:
    paths = deal(CAPTURES / "kafka-4-tls.pcap.zst", tmp_path, 2)
    compare(spark, tmp_path / "rows", paths, keylog=KEYS)


@pytest.mark.parametrize("shuffled", [False, True], ids=["rotated", "shuffled"])
@pytest.mark.parametrize("files", [1, 2, 7, 50])
def test_every_recording(
    slow: None, spark: SparkSession, tmp_path: Path, files: int, shuffled: bool
) -> None:
    for group in apart(RECORDINGS):
        compare(spark, tmp_path / "rows", every(group, tmp_path, files, shuffled))


def large(
    spark: SparkSession, folder: Path, kind: str, size: int, files: int, shuffled: bool,
    groups: Sequence[Sequence[str]] = (TABLES, CUT),
) -> None:  # fmt: skip
    """Compare what is made of a large capture, dealt to files."""
    paths = deal(made(kind, folder, size), folder, files, shuffled=shuffled)
    compare(spark, folder / "rows", paths, groups, split_bytes=size // 6)


def test_a_large_capture_of_small_messages(spark: SparkSession, tmp_path: Path) -> None:
    large(spark, tmp_path, "chatter", 6_000_000, 7, True, [SOME_TABLES])


def test_a_large_capture_whose_records_stay_behind(spark: SparkSession, tmp_path: Path) -> None:
    large(spark, tmp_path, "bulk", 12_000_000, 2, False, [("exchanges", "errors", "connections")])


@pytest.mark.parametrize("shuffled", [False, True], ids=["rotated", "shuffled"])
@pytest.mark.parametrize("files", [1, 2, 7, 50])
@pytest.mark.parametrize("kind", ["chatter", "bulk"])
def test_a_larger_one(
    slow: None, spark: SparkSession, tmp_path: Path, kind: str, files: int, shuffled: bool
) -> None:
    large(spark, tmp_path, kind, 100_000_000, files, shuffled)


def test_a_damaged_file_is_one_split(tmp_path: Path) -> None:
    data = bytearray(plain(CAPTURES / "chatter-mock.pcap.zst"))
    data[200_000:203_000] = bytes(3000)
    path = tmp_path / "damaged.pcap"
    path.write_bytes(data)
    looks = [splits.look(each) for each in splits.guess([str(path)], 50_000)]
    assert len(looks) > 10
    proved, again = splits.settle(looks)
    assert not proved
    assert [each.part.end for each in again] == [None]
