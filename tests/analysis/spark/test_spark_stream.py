"""Streams over a folder that a capture rotates into: all batches together are the batch result."""

from __future__ import annotations

import gzip
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pyarrow.compute as pc
import pytest

pytest.importorskip("pyspark", reason="the dependency group spark is not installed")

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import analysis.spark
from analysis.spark import follow, stream
from analysis.spark.options import parse
from analysis.spark.schemas import to_spark
from dissector.capture import open_capture
from dissector.errors import DissectorError
from tests.analysis.spark.dealing import CAPTURES, deal, texts

ADMIN = CAPTURES / "kafka-4-admin.pcap.zst"
FOLLOWED = CAPTURES / "kafka-4-followed.pcap.zst"
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
    assert texts(without_names(found)) == in_one(parts, table)
    assert len(found) > 100


def long_ago(folder: Path) -> None:
    """Let all that was written have been written before the watermark."""
    for path in folder.iterdir():
        os.utime(path, (1, 1))


def test_files_that_grow_are_renamed_and_compressed(streams: SparkSession, tmp_path: Path) -> None:
    """A table of a capture whose files grow, are renamed, compressed and written over."""
    parts = deal(QUORUM, tmp_path, 5)
    folder = tmp_path / "in"
    folder.mkdir()
    data = [Path(part).read_bytes() for part in parts]
    (folder / "now.pcap").write_bytes(data[0])
    (folder / "next.pcap").write_bytes(data[1][: len(data[1]) // 2])  # within a packet
    once(streams, tmp_path, "exchanges")
    (folder / "now.pcap").rename(folder / "now.pcap.2")
    (folder / "next.pcap").unlink()
    (folder / "next.pcap.gz").write_bytes(gzip.compress(data[1]))
    (folder / "now.pcap").write_bytes(data[2])
    once(streams, tmp_path, "exchanges")
    (folder / "now.pcap").write_bytes(data[3])  # over the one before, as tcpdump -W does
    (folder / "last.pcap").write_bytes(data[4])
    long_ago(folder)
    once(streams, tmp_path, "exchanges")
    once(streams, tmp_path, "exchanges")  # there is nothing more
    compare(streams, tmp_path, "exchanges", parts)


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


class ByHand:
    """A stream of a table of a folder, batch by batch, without Spark's query around it."""

    def __init__(
        self, spark: SparkSession, work: Path, table: str, watermark: int = WATERMARK
    ) -> None:
        self.folder = work / "in"
        self.folder.mkdir(exist_ok=True)
        self._spark = spark
        self._request = parse(
            {
                "path": str(self.folder),
                "table": table,
                "state": str(work / f"state of {table}"),
                "watermark": str(watermark),
                "shares": "2",
            }
        )
        self._offset = follow.BEGINNING
        self.batches: list[pa.Table] = []

    def take(self, parts: Sequence[str]) -> pa.Table:
        """The rows of a batch, when these files have come into the folder."""
        for part in parts:
            shutil.copy(part, self.folder)
        return self.step()

    def step(self) -> pa.Table:
        """The rows of a batch with all that is new."""
        start = self._offset
        end = follow.latest(start, self._request.paths, self._request.watermark)
        rows = stream.batch(self._spark, self._request, (start, end))
        self._offset = end
        self.batches.append(self._spark.read.parquet(rows).toArrow())
        return self.batches[-1]

    def end(self) -> pa.Table:
        """The rows of a last batch, after a long silence."""
        long_ago(self.folder)
        return self.step()

    def rows(self) -> list[str]:
        """The rows of all batches."""
        return texts([each for table in self.batches for each in without_names(table)])


def without_names(rows: pa.Table) -> list[pa.RecordBatch]:
    """Rows without what depends on batches: the names of files, which may be renamed, and when it
    is that nothing more is waited for."""
    given_up = {"time", "time_ns"} if "kind" in rows.column_names else set()
    return rows.drop_columns({"capture", *given_up} & {*rows.column_names}).to_batches()


def in_one(parts: Sequence[str], table: str) -> list[str]:
    """The rows of one process."""
    batches = open_capture(parts).tables([table])[table].to_batches()
    return texts(without_names(pa.Table.from_batches([to_spark(table, each) for each in batches])))


@pytest.mark.parametrize(
    ("table", "least"), [("topics", 10), ("batches", 100), ("connections", 100)]
)
def test_every_kind_of_table(streams: SparkSession, tmp_path: Path, table: str, least: int) -> None:
    """What comes from rows, what is new among them, and what comes at a connection's end."""
    parts = deal(ADMIN, tmp_path, 2)
    by_hand = ByHand(streams, tmp_path, table)
    by_hand.take(parts[:1])
    shutil.copy(parts[1], by_hand.folder)
    by_hand.end()
    assert by_hand.rows() == in_one(parts, table)
    assert len(by_hand.rows()) > least
    assert len(by_hand.batches[0]) or table == "connections"


def test_a_name_that_is_told_in_a_later_batch(streams: SparkSession, tmp_path: Path) -> None:
    """Rows that go by the topic's id wait for it, however many batches that takes."""
    parts = deal(FOLLOWED, tmp_path, 12)[7:]
    by_hand = ByHand(streams, tmp_path, "exchanges")
    for some in (parts[:2], parts[2:3], parts[3:]):
        by_hand.take(some)
    waited = len(in_one(parts[:2], "exchanges")) - len(by_hand.batches[0])
    assert waited > 30
    assert not ids_in(by_hand.batches)
    by_hand.end()
    assert by_hand.rows() == in_one(parts, "exchanges")


def test_a_name_that_is_not_told_in_time(streams: SparkSession, tmp_path: Path) -> None:
    """Nothing waits longer than the watermark: then the id is given out."""
    parts = deal(FOLLOWED, tmp_path, 12)[7:]
    by_hand = ByHand(streams, tmp_path, "batches", watermark=1)
    for some in (parts[:1], parts[1:3], parts[3:]):  # the second takes some seconds
        by_hand.take(some)
    assert [bool(ids_in([batch])) for batch in by_hand.batches] == [True, True, False]
    assert len(by_hand.rows()) == len(in_one(parts, "batches"))


def ids_in(tables: Sequence[pa.Table]) -> set[str]:
    """What is a topic's id where its name should be."""
    words: set[str] = set()
    for table in tables:
        for name in {"topic", "topics"} & {*table.column_names}:
            column = table[name]
            words |= {*(column if name == "topic" else pc.list_flatten(column)).to_pylist()}
    return {word for word in words if word and len(word) == 22}


def test_a_packet_that_never_becomes_whole(streams: SparkSession, tmp_path: Path) -> None:
    """It may, as long as anything is waited for; then it is a problem, once."""
    parts = deal(QUORUM, tmp_path, 4)
    data = [Path(part).read_bytes() for part in parts]
    by_hand = ByHand(streams, tmp_path, "problems")
    (by_hand.folder / "grows").write_bytes(data[0][:-7])
    (by_hand.folder / "begins").write_bytes(data[3][:44])  # within its first packet
    assert not told(by_hand.step())
    (by_hand.folder / "grows").write_bytes(data[0])
    (by_hand.folder / "stays").write_bytes(data[1][:-7])
    (by_hand.folder / "more").write_bytes(data[2][:-7])
    assert not told(by_hand.step())
    (by_hand.folder / "more").unlink()
    (by_hand.folder / "more.gz").write_bytes(gzip.compress(data[2][:-7]))
    assert told(by_hand.step()) == [("truncated_file", len(data[2]) - 7)]  # it cannot grow
    by_hand.end()
    parts = [str(path) for path in by_hand.folder.iterdir()]
    assert by_hand.rows() == in_one(parts, "problems")
    assert len([row for batch in by_hand.batches for row in told(batch)]) == 3


def test_a_packet_that_time_goes_on_without(streams: SparkSession, tmp_path: Path) -> None:
    """The folder is never silent: files come, and one that ended within a packet is left behind."""
    parts = deal(QUORUM, tmp_path, 4)
    data = [Path(part).read_bytes() for part in parts]
    by_hand = ByHand(streams, tmp_path, "problems", watermark=2)
    (by_hand.folder / "0").write_bytes(data[0][:-7])
    assert not told(by_hand.step())
    (by_hand.folder / "1").write_bytes(data[1])
    (by_hand.folder / "0").unlink()  # what was told of it is still known
    assert told(by_hand.step()) == [("truncated_file", len(data[0]) - 7)]
    (by_hand.folder / "2").write_bytes(data[2])
    assert not told(by_hand.step())


def told(problems: pa.Table) -> list[tuple[str, int]]:
    """Kind of what is wrong with files, and where they end."""
    return [
        (row["kind"], row["offset"] + row["bytes"])
        for row in problems.to_pylist()
        if row["stage"] == "packets"
    ]


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
    assert [each.has_packet for each in follow.files([str(packed), other]).values()] == [
        False,
        True,
    ]


def test_nothing_new_is_no_batch_and_silence_is_one(tmp_path: Path) -> None:
    (path,) = deal(QUORUM, tmp_path, 1)
    first = follow.latest(follow.BEGINNING, [path], WATERMARK)
    assert (first["batch"], first["ended"]) == (1, False)
    assert follow.latest(first, [path], WATERMARK) == first
    os.utime(path, (1, 1))
    ended = follow.latest(first, [path], WATERMARK)
    assert (ended["batch"], ended["files"], ended["ended"]) == (2, first["files"], True)
    assert follow.latest(ended, [path], WATERMARK) == ended


def test_a_file_without_a_whole_packet_is_known_when_it_is_silent(tmp_path: Path) -> None:
    (path,) = deal(QUORUM, tmp_path, 1)
    begun = tmp_path / "begun"
    begun.write_bytes(Path(path).read_bytes()[:30])
    paths = [path, str(begun)]
    assert len(follow.latest(follow.BEGINNING, paths, WATERMARK)["files"]) == 1
    os.utime(begun, (1, 1))
    silent = follow.latest(follow.BEGINNING, paths, WATERMARK)
    assert sorted(silent["files"].values()) == [follow.WHOLE, Path(path).stat().st_size]
    assert not silent["ended"]


def test_a_stream_without_a_folder_for_its_state() -> None:
    from analysis.spark.stream import StreamReader

    options = {"path": "in"}
    assert parse(options).state is None
    with pytest.raises(DissectorError, match="needs the option state"):
        StreamReader(options, None, None)
