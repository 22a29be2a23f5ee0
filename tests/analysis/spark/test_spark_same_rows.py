"""Spark gives the rows of one process in any order, however packets are divided into files.

`python -m tests.analysis.same_rows` compares all recordings.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="the dependency group spark is not installed")

from pyspark.sql import SparkSession

from analysis.spark.manifests import JobFolder
from analysis.spark.options import Request
from dissector.runs import planning
from tests.analysis.spark.sharding import (
    CAPTURES,
    TABLES,
    TEST_TABLES,
    assert_same_rows,
    make_capture,
    split_capture,
    write_with_one_process,
    write_with_spark,
)
from tests.captures import recorded
from tests.captures.recorded import Packet

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


@pytest.fixture(autouse=True)
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "LEAST_RUN", 1)


def compare(
    spark: SparkSession, folder: Path, paths: Sequence[str], tables: Sequence[str] = TABLES,
    **options: object,
) -> None:  # fmt: skip
    """Assert that both give the same rows."""
    request = Request(paths, tables, **options)
    write_with_one_process(paths, tables, folder / "one", keylog=request.keylog)
    for name, rows in write_with_spark(spark, request, folder / "spark").items():
        assert rows == assert_same_rows(folder / "spark" / name, folder / "one" / name)
        assert rows or name != "exchanges"
    shutil.rmtree(folder)


def test_files_of_several_capture_points(spark: SparkSession, tmp_path: Path) -> None:
    """Packets shuffled between files, several recordings at a time."""
    paths = [part for path in DIFFICULT for part in split_capture(path, tmp_path, 2, shuffled=True)]
    compare(spark, tmp_path / "rows", paths, run_bytes=1_000_000)


def test_a_large_file(spark: SparkSession, tmp_path: Path) -> None:
    """Byte ranges of a file."""
    path = split_capture(CAPTURES / "chatter-mock.pcap.zst", tmp_path, 1)
    compare(spark, tmp_path / "rows", path, TEST_TABLES, run_bytes=500_000)


def test_a_key_log(spark: SparkSession, tmp_path: Path) -> None:
    paths = split_capture(CAPTURES / "kafka-4-tls.pcap.zst", tmp_path, 2)
    compare(spark, tmp_path / "rows", paths, TEST_TABLES, keylog=KEYS)


def test_secrets_are_not_in_files_of_the_job(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may read the output, which is redacted."""
    written: list[bytes] = []
    write = JobFolder.write

    def kept(self: JobFolder, name: str, content: bytes | pa.Buffer) -> None:
        whole = bytes(content)
        written.append(whole)
        with suppress(OSError), pa.CompressedInputStream(pa.BufferReader(whole), "lz4") as stream:
            written.append(stream.read())
        write(self, name, content)

    monkeypatch.setattr(JobFolder, "write", kept)
    path = str(CAPTURES / "kafka-4-tls.pcap.zst")
    rows = write_with_spark(spark, Request([path], ["exchanges"], keylog=KEYS), tmp_path / "rows")
    assert rows["exchanges"]
    assert written
    secrets = Path(KEYS).read_bytes().split()
    assert not any(max(secrets, key=len) in content for content in written)


def test_runs_before_the_first_connection(spark: SparkSession, tmp_path: Path) -> None:
    """Rows without a connection are joined while the table of connections is empty."""
    packets = recorded.read("kafka-4-kafkajs.pcap.zst")
    udp = bytes([17])  # in place of TCP in the IPv4 header
    datagrams = [
        Packet(each.time - 10**12, each.frame[:23] + udp + each.frame[24:])
        for each in packets[:100]
    ]
    paths = [
        str(recorded.write(tmp_path / name, part))
        for name, part in (("a.pcap", datagrams), ("b.pcap", datagrams), ("c.pcap", packets))
    ]
    compare(spark, tmp_path / "rows", paths, run_bytes=5_000)


@pytest.mark.parametrize("shuffled", [False, True], ids=["rotated", "shuffled"])
@pytest.mark.parametrize("files", [1, 2, 7, 50])
@pytest.mark.parametrize("kind", ["chatter", "bulk"])
def test_large_captures(
    slow: None, spark: SparkSession, tmp_path: Path, kind: str, files: int, shuffled: bool
) -> None:
    path = make_capture(kind, tmp_path)
    paths = split_capture(path, tmp_path, files, shuffled=shuffled)
    compare(spark, tmp_path / "rows", paths, run_bytes=16_000_000)
