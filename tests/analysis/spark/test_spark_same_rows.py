"""The rows of Spark are those of one process, order aside, however packets lie in files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="requirements-spark.txt is not installed")

from dealing import CAPTURES, RECORDINGS, TABLES, apart, deal, on_one_machine, plain, texts
from pyspark.sql import SparkSession

from analysis.spark import plan, splits
from analysis.spark.options import Request
from bench import inputs

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


def compare(spark: SparkSession, paths: Sequence[str], **options: object) -> None:
    """Raises AssertionError where the two differ."""
    request = Request(paths, TABLES, **options)
    with plan.tables(spark, request) as tables:
        found = {name: texts(rows.toArrow().to_batches()) for name, rows in tables.items()}
    expected = on_one_machine(paths, keylog=request.keylog)
    for name in TABLES:
        odd = {*found[name]} ^ {*expected[name]}
        assert not odd, f"{name}: {sorted(odd)[:4]}"
        assert found[name] == expected[name]  # and as often
    assert len(found["exchanges"])


def every(recordings: Sequence[Path], folder: Path, files: int, shuffled: bool) -> list[str]:
    """All of them, each dealt to so many files."""
    return [part for path in recordings for part in deal(path, folder, files, shuffled=shuffled)]


def test_packets_shuffled_between_files(spark: SparkSession, tmp_path: Path) -> None:
    assert len(apart(SOME)) == 1
    compare(spark, every(SOME, tmp_path, 7, True))


def test_files_in_splits(spark: SparkSession, tmp_path: Path) -> None:
    paths = every([*SOME, CAPTURES / "chatter-mock.pcap.zst"], tmp_path, 1, False)
    compare(spark, paths, split_bytes=150_000, shares=3)


def test_with_a_key_log(spark: SparkSession, tmp_path: Path) -> None:
    compare(spark, deal(CAPTURES / "kafka-4-tls.pcap.zst", tmp_path, 2), keylog=KEYS)


@pytest.mark.parametrize("shuffled", [False, True], ids=["rotated", "shuffled"])
@pytest.mark.parametrize("files", [1, 2, 7, 50])
def test_every_recording(
    slow: None, spark: SparkSession, tmp_path: Path, files: int, shuffled: bool
) -> None:
    for group in apart(RECORDINGS):
        compare(spark, every(group, tmp_path, files, shuffled))


@pytest.mark.parametrize("shuffled", [False, True], ids=["rotated", "shuffled"])
@pytest.mark.parametrize("files", [1, 2, 7, 50])
def test_a_large_capture(
    slow: None, spark: SparkSession, tmp_path: Path, files: int, shuffled: bool
) -> None:
    """Many blocks, many splits: 100 MB."""
    made = inputs.Input(
        str(tmp_path / "large"), CAPTURES / "chatter-mock.pcap.zst", 200, bytes=100_000_000
    )
    inputs.make(made)
    compare(spark, deal(made.path, tmp_path, files, shuffled=shuffled), split_bytes=1 << 24)


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
