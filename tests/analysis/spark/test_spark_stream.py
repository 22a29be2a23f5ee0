"""Streams over a folder that a capture rotates into: all batches together are the batch result."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path
from threading import Thread

import pytest

pytest.importorskip("pyspark", reason="requirements-spark.txt is not installed")

from dealing import CAPTURES, deal, texts
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import analysis.spark
from analysis.spark import follow
from analysis.spark.options import parse
from analysis.spark.schemas import to_spark
from dissector.capture import open_capture
from dissector.errors import DissectorError

QUORUM = CAPTURES / "kafka-4-quorum.pcap.zst"
WATERMARK = 60
"""s; no request of it waits for so long."""


@pytest.fixture(scope="module")
def streams(spark: SparkSession) -> SparkSession:
    analysis.spark.register(spark)
    return spark


def start(spark: SparkSession, work: Path, table: str, **trigger: object) -> StreamingQuery:
    """A query from the folder `in` to the folder `out`."""
    rows = (
        spark.readStream.format("kafka_capture")
        .options(table=table, state=str(work / "state"), watermark=WATERMARK, shares=2)
        .load(str(work / "in"))
    )
    return (
        rows.writeStream.format("parquet")
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(**trigger)
        .start(str(work / "out"))
    )


def once(spark: SparkSession, work: Path, table: str) -> None:
    """Read what is there, and stop."""
    start(spark, work, table, availableNow=True).awaitTermination()


def compare(spark: SparkSession, work: Path, table: str, parts: list[str]) -> None:
    """The union of what was written is what a batch says, but for names of files."""
    found = spark.read.parquet(str(work / "out")).toArrow()
    columns = [name for name in found.schema.names if name != "capture"]
    one = open_capture(parts).tables([table])[table]
    expected = [to_spark(table, batch).select(columns) for batch in one.to_batches()]
    assert texts(found.select(columns).to_batches()) == texts(expected)
    assert len(found) > 100


def long_ago(folder: Path) -> None:
    """Let all that was written have been written before the watermark."""
    for path in folder.iterdir():
        os.utime(path, (1, 1))


def test_files_that_grow_are_renamed_and_compressed(streams: SparkSession, tmp_path: Path) -> None:
    rotated(streams, tmp_path, "exchanges")


@pytest.mark.parametrize("table", ["connections", "topics", "batches"])
def test_every_kind_of_table(slow: None, streams: SparkSession, tmp_path: Path, table: str) -> None:
    rotated(streams, tmp_path, table)


def rotated(streams: SparkSession, tmp_path: Path, table: str) -> None:
    """A table of a capture whose files grow, are renamed, compressed and written over."""
    parts = deal(QUORUM, tmp_path, 5)
    folder = tmp_path / "in"
    folder.mkdir()
    data = [Path(part).read_bytes() for part in parts]
    (folder / "now.pcap").write_bytes(data[0])
    (folder / "next.pcap").write_bytes(data[1][: len(data[1]) // 2])  # within a packet
    once(streams, tmp_path, table)
    (folder / "now.pcap").rename(folder / "now.pcap.2")
    (folder / "next.pcap").unlink()
    (folder / "next.pcap.gz").write_bytes(gzip.compress(data[1]))
    (folder / "now.pcap").write_bytes(data[2])
    once(streams, tmp_path, table)
    (folder / "now.pcap").write_bytes(data[3])  # over the one before, as tcpdump -W does
    (folder / "last.pcap").write_bytes(data[4])
    long_ago(folder)
    once(streams, tmp_path, table)
    once(streams, tmp_path, table)  # there is nothing more
    compare(streams, tmp_path, table, parts)


def test_a_file_a_second_for_a_minute(slow: None, streams: SparkSession, tmp_path: Path) -> None:
    parts = deal(QUORUM, tmp_path, 60)
    folder = tmp_path / "in"
    folder.mkdir()

    def write() -> None:
        for part in parts:
            data = Path(part).read_bytes()
            with (folder / Path(part).name).open("wb", buffering=0) as file:
                file.write(data[: len(data) // 3])
                time.sleep(0.5)
                file.write(data[len(data) // 3 :])
                time.sleep(0.5)

    writer = Thread(target=write)
    writer.start()
    for _ in range(2):
        query = start(streams, tmp_path, "exchanges", processingTime="1 second")
        time.sleep(20)
        query.stop()
    query = start(streams, tmp_path, "exchanges", processingTime="1 second")
    writer.join()
    query.processAllAvailable()
    long_ago(folder)
    query.processAllAvailable()
    query.stop()
    compare(streams, tmp_path, "exchanges", parts)


def test_a_file_is_known_by_its_first_packet(tmp_path: Path) -> None:
    one, other = deal(QUORUM, tmp_path, 2)
    seen = follow.files([one, other])
    assert len(seen) == 2
    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(Path(one).read_bytes()))
    Path(one).rename(tmp_path / "renamed")
    again = follow.files([str(tmp_path / "renamed"), other, str(packed)])
    assert [*again] == [*seen]
    # The one that can be read on from any byte is preferred.
    assert [each.size > 0 for each in again.values()] == [True, True]
    Path(other).write_bytes(Path(other).read_bytes()[:30])  # its first packet is not yet whole
    assert [*follow.files([str(packed), other])] == [next(iter(seen))]


def test_nothing_new_is_no_batch_and_silence_is_one(tmp_path: Path) -> None:
    (path,) = deal(QUORUM, tmp_path, 1)
    first = follow.latest(follow.BEGINNING, [path], WATERMARK)
    assert (first["batch"], first["ended"]) == (1, False)
    assert follow.latest(first, [path], WATERMARK) == first
    os.utime(path, (1, 1))
    ended = follow.latest(first, [path], WATERMARK)
    assert (ended["batch"], ended["files"], ended["ended"]) == (2, first["files"], True)
    assert follow.latest(ended, [path], WATERMARK) == ended


def test_a_stream_without_a_folder_for_its_state() -> None:
    from analysis.spark.stream import StreamReader

    options = {"path": "in"}
    assert parse(options).state is None
    with pytest.raises(DissectorError, match="needs the option state"):
        StreamReader(options, None, None)
