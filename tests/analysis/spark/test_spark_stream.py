"""Streams over a folder with rotated captures: all batches together equal one batch query."""

from __future__ import annotations

import gzip
import os
import pickle
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest
import zstandard

pytest.importorskip("pyspark", reason="the dependency group spark is not installed")
pytest.importorskip("pyspark.sql.streaming.datasource", reason="PySpark is older than 4.2")

from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.datasource import ReadAllAvailable

from analysis.spark import file_offsets, stream
from analysis.spark.file_offsets import Offset
from analysis.spark.options import parse
from analysis.spark.plan_server import PlanClient
from analysis.spark.schemas import spark_schema, to_spark
from dissector.capture import open_capture
from dissector.errors import DissectorError
from tests.analysis.spark.sharding import CAPTURES, QUORUM, split_capture, texts

ADMIN = CAPTURES / "kafka-4-admin.pcap.zst"
FOLLOWED = CAPTURES / "kafka-4-followed.pcap.zst"
WATERMARK = 60
"""Seconds; no request of these captures waits this long."""
OLD, NEW = 1, 4_000_000_000
"""Modification times, in seconds: before the watermark, and after it however long a test takes."""


def start(spark: SparkSession, work: Path, **trigger: object) -> StreamingQuery:
    """A query of `exchanges` from the folder `in` to the folder `out`."""
    rows = (
        spark.readStream.format("kafka_capture")
        .options(state=str(work / "state"), watermark=WATERMARK)
        .load(str(work / "in"))
    )
    return (
        rows.writeStream.format("parquet")
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(**trigger)
        .start(str(work / "out"))
    )


def run_once(spark: SparkSession, work: Path, written: int = NEW) -> None:
    """Read the available data, and stop. `written`: the modification time of the files."""
    set_times(work / "in", written)
    start(spark, work, availableNow=True).awaitTermination()


def compare(spark: SparkSession, work: Path, parts: list[str]) -> None:
    """Assert that the written rows equal those of one process, except for file names."""
    actual = spark.read.parquet(str(work / "out")).toArrow()
    assert texts(without_names(actual)) == rows_of_one_process(parts, "exchanges")
    assert len(actual) > 100


def set_times(folder: Path, written: int) -> None:
    """Set the modification times of all files."""
    for path in folder.iterdir():
        os.utime(path, (written, written))


def test_files_that_grow_are_renamed_and_compressed(
    registered: SparkSession, tmp_path: Path
) -> None:
    """Files grow, are renamed, compressed and overwritten."""
    parts = split_capture(QUORUM, tmp_path, 5)
    folder = tmp_path / "in"
    folder.mkdir()
    data = [Path(part).read_bytes() for part in parts]
    (folder / "now.pcap").write_bytes(data[0])
    (folder / "next.pcap").write_bytes(data[1][: len(data[1]) // 2])  # within a packet
    run_once(registered, tmp_path)
    (folder / "now.pcap").rename(folder / "now.pcap.2")
    (folder / "next.pcap").unlink()
    (folder / "next.pcap.gz").write_bytes(gzip.compress(data[1]))
    (folder / "now.pcap").write_bytes(data[2])
    run_once(registered, tmp_path)
    (folder / "now.pcap").write_bytes(data[3])  # overwritten, as by tcpdump -W
    (folder / "last.pcap").write_bytes(data[4])
    run_once(registered, tmp_path, OLD)
    run_once(registered, tmp_path, OLD)  # without new data
    compare(registered, tmp_path, parts)


def test_a_file_a_second_for_a_minute(slow: None, registered: SparkSession, tmp_path: Path) -> None:
    parts = split_capture(QUORUM, tmp_path, 60)
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
        query = start(registered, tmp_path, processingTime="1 second")
        time.sleep(20)
        query.stop()
    query = start(registered, tmp_path, processingTime="1 second")
    writer.join()
    query.processAllAvailable()
    set_times(folder, OLD)
    query.processAllAvailable()
    query.stop()
    compare(registered, tmp_path, parts)


class ManualStream:
    """A stream of one table, batch by batch, without a Spark query."""

    def __init__(
        self, spark: SparkSession, work: Path, table: str, watermark: int = WATERMARK,
        **options: str,
    ) -> None:  # fmt: skip
        self.folder = work / "in"
        self.folder.mkdir(exist_ok=True)
        self._spark = spark
        self._request = parse(
            {
                "path": str(self.folder),
                "table": table,
                "state": str(work / f"state of {table}"),
                "watermark": str(watermark),
                **options,
            }
        )
        self._offset = file_offsets.START
        self.batches: list[pa.Table] = []

    def take(self, parts: Sequence[str]) -> pa.Table:
        """Copy these files to the folder; returns the rows of the next batch."""
        for part in parts:
            shutil.copy(part, self.folder)
        return self.step()

    def step(self, written: int = NEW) -> pa.Table:
        """The rows of the next batch. `written`: the modification time of the files."""
        set_times(self.folder, written)
        start = self._offset
        end = file_offsets.latest(start, self._request.paths, self._request.watermark)
        rows = stream.batch(self._spark, self._request, (start, end))
        self._offset = end
        self.batches.append(self._spark.read.parquet(rows).toArrow())
        return self.batches[-1]

    def end(self) -> pa.Table:
        """The rows of the last batch, after the watermark."""
        return self.step(OLD)

    def rows(self) -> list[str]:
        return texts([each for table in self.batches for each in without_names(table)])


def without_names(rows: pa.Table) -> list[pa.RecordBatch]:
    """Rows without columns that depend on batches: file names, and the time of problems."""
    abandoned = {"time", "time_ns"} if "kind" in rows.column_names else set()
    return rows.drop_columns({"capture", *abandoned} & {*rows.column_names}).to_batches()


def rows_of_one_process(parts: Sequence[str], table: str, keylog: Path | None = None) -> list[str]:
    """The rows of one process."""
    batches = open_capture(parts, keylog=keylog).tables([table])[table].to_batches()
    return texts(without_names(pa.Table.from_batches([to_spark(table, each) for each in batches])))


@pytest.mark.parametrize(
    ("table", "minimum"), [("topics", 10), ("batches", 100), ("connections", 100)]
)
def test_all_kinds_of_tables(
    registered: SparkSession, tmp_path: Path, table: str, minimum: int
) -> None:
    """Tables of changes, of rows, and of closed connections."""
    parts = split_capture(ADMIN, tmp_path, 2)
    manual = ManualStream(registered, tmp_path, table)
    manual.take(parts[:1])
    shutil.copy(parts[1], manual.folder)
    manual.end()
    assert manual.rows() == rows_of_one_process(parts, table)
    assert len(manual.rows()) > minimum
    assert len(manual.batches[0]) or table == "connections"


@pytest.mark.parametrize("empty", [0, 1])
def test_decrypted_connections_go_on_in_later_batches(
    registered: SparkSession, tmp_path: Path, empty: int
) -> None:
    """The key log grows, too, and is stored once. It may be empty in the first batch."""
    parts = split_capture(CAPTURES / "kafka-4-tls.pcap.zst", tmp_path, 4)
    keys, keylog = CAPTURES / "kafka-4-tls.keys.log", tmp_path / "keys.log"
    lines = keys.read_bytes().splitlines(keepends=True)
    manual = ManualStream(registered, tmp_path, "exchanges", keylog=str(keylog))
    for number, part in enumerate(parts, 1):
        keylog.write_bytes(b"".join(lines[: len(lines) * (number - empty) // 2]))
        manual.take([part])
    manual.end()
    assert manual.rows() == rows_of_one_process(parts, "exchanges", keys)
    assert len(manual.rows()) == 61
    (state, *_) = sorted((tmp_path / "state of exchanges").rglob("state"), reverse=True)
    secrets = pickle.loads(zstandard.decompress(state.read_bytes())).source.secrets
    assert b"".join(secrets) == keys.read_bytes()


def test_a_topic_name_in_a_later_batch(registered: SparkSession, tmp_path: Path) -> None:
    """Rows with a topic id wait for the name for several batches."""
    parts = split_capture(FOLLOWED, tmp_path, 12)[7:]
    manual = ManualStream(registered, tmp_path, "exchanges")
    for new_parts in (parts[:2], parts[2:3], parts[3:]):
        manual.take(new_parts)
    waited = len(rows_of_one_process(parts[:2], "exchanges")) - len(manual.batches[0])
    assert waited > 30
    assert not ids_in(manual.batches)
    manual.end()
    assert manual.rows() == rows_of_one_process(parts, "exchanges")


def test_a_topic_name_after_the_watermark(registered: SparkSession, tmp_path: Path) -> None:
    """After the watermark, the id is emitted."""
    parts = split_capture(FOLLOWED, tmp_path, 12)[7:]
    manual = ManualStream(registered, tmp_path, "batches", watermark=1)
    for new_parts in (parts[:1], parts[1:3], parts[3:]):  # the second takes some seconds
        manual.take(new_parts)
    assert [bool(ids_in([batch])) for batch in manual.batches] == [True, True, False]
    assert len(manual.rows()) == len(rows_of_one_process(parts, "batches"))


def ids_in(tables: Sequence[pa.Table]) -> set[str]:
    """Topic ids instead of names."""
    words: set[str] = set()
    for table in tables:
        for name in {"topic", "topics"} & {*table.column_names}:
            column = table[name]
            words |= {*(column if name == "topic" else pc.list_flatten(column)).to_pylist()}
    return {word for word in words if word and len(word) == 22}


def test_a_packet_that_stays_incomplete(registered: SparkSession, tmp_path: Path) -> None:
    """It becomes one problem after the watermark."""
    parts = split_capture(QUORUM, tmp_path, 4)
    data = [Path(part).read_bytes() for part in parts]
    manual = ManualStream(registered, tmp_path, "problems")
    (manual.folder / "grows").write_bytes(data[0][:-7])
    (manual.folder / "begins").write_bytes(data[3][:44])  # within its first packet
    assert not file_problems(manual.step())
    (manual.folder / "grows").write_bytes(data[0])
    (manual.folder / "stays").write_bytes(data[1][:-7])
    (manual.folder / "more").write_bytes(data[2][:-7])
    assert not file_problems(manual.step())
    (manual.folder / "more").unlink()
    (manual.folder / "more.gz").write_bytes(gzip.compress(data[2][:-7]))
    assert file_problems(manual.step()) == [("truncated_file", len(data[2]) - 7)]  # it cannot grow
    manual.end()
    parts = [str(path) for path in manual.folder.iterdir()]
    assert manual.rows() == rows_of_one_process(parts, "problems")
    assert len([row for batch in manual.batches for row in file_problems(batch)]) == 3


def test_an_incomplete_packet_while_other_files_arrive(
    registered: SparkSession, tmp_path: Path
) -> None:
    """The capture advances past a file that ends within a packet."""
    parts = split_capture(QUORUM, tmp_path, 4)
    data = [Path(part).read_bytes() for part in parts]
    manual = ManualStream(registered, tmp_path, "problems", watermark=2)
    (manual.folder / "0").write_bytes(data[0][:-7])
    assert not file_problems(manual.step())
    (manual.folder / "1").write_bytes(data[1])
    (manual.folder / "0").unlink()  # its problem is still pending
    assert file_problems(manual.step()) == [("truncated_file", len(data[0]) - 7)]
    (manual.folder / "2").write_bytes(data[2])
    assert not file_problems(manual.step())


def file_problems(problems: pa.Table) -> list[tuple[str, int]]:
    """Kinds of file problems, and the ends of the files."""
    return [
        (row["kind"], row["offset"] + row["bytes"])
        for row in problems.to_pylist()
        if row["stage"] == "packets"
    ]


def test_a_file_is_identified_by_its_first_packet(tmp_path: Path) -> None:
    left, right = split_capture(QUORUM, tmp_path, 2)
    seen = file_offsets.files([left, right])
    assert len(seen) == 2
    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(Path(left).read_bytes()))
    Path(left).rename(tmp_path / "renamed")
    renamed = file_offsets.files([str(tmp_path / "renamed"), right, str(packed)])
    assert [*renamed] == [*seen]
    # The uncompressed file is preferred, because it can be read from any byte.
    assert [info.size > 0 for info in renamed.values()] == [True, True]
    Path(right).write_bytes(Path(right).read_bytes()[:30])  # its first packet is incomplete
    assert [info.has_packet for info in file_offsets.files([str(packed), right]).values()] == [
        False,
        True,
    ]


def test_only_new_data_or_the_watermark_makes_a_batch(tmp_path: Path) -> None:
    (path,) = split_capture(QUORUM, tmp_path, 1)
    first = file_offsets.latest(file_offsets.START, [path], WATERMARK)
    assert (first["batch"], first["ended"]) == (1, False)
    assert file_offsets.latest(first, [path], WATERMARK) == first
    os.utime(path, (OLD, OLD))
    ended = file_offsets.latest(first, [path], WATERMARK)
    assert (ended["batch"], ended["files"], ended["ended"]) == (2, first["files"], True)
    assert file_offsets.latest(ended, [path], WATERMARK) == ended


def test_a_file_without_a_packet_counts_after_the_watermark(tmp_path: Path) -> None:
    (path,) = split_capture(QUORUM, tmp_path, 1)
    begun = tmp_path / "begun"
    begun.write_bytes(Path(path).read_bytes()[:30])
    paths = [path, str(begun)]
    assert len(file_offsets.latest(file_offsets.START, paths, WATERMARK)["files"]) == 1
    os.utime(begun, (OLD, OLD))
    silent = file_offsets.latest(file_offsets.START, paths, WATERMARK)
    assert sorted(silent["files"].values()) == [file_offsets.WHOLE, Path(path).stat().st_size]
    assert not silent["ended"]


def test_a_stream_without_a_state_folder() -> None:
    options = {"path": "in"}
    assert parse(options).state is None
    with pytest.raises(DissectorError, match="needs the option state"):
        stream.StreamReader(options, None, None)


@pytest.mark.parametrize("name", ["since", "Until", "plan_id"])
def test_an_option_that_a_stream_does_not_have(name: str) -> None:
    options = {"path": "x", "state": "y", name: "2026-11-21"}
    with pytest.raises(DissectorError, match=f"^a stream has no option {name.lower()}$"):
        stream.StreamReader(options, spark_schema("exchanges"), PlanClient("", b""))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("s3://captures/day", "a stream follows folders, not URLs: s3://captures/day"),
        ("file:/nowhere/captures", "/nowhere/captures: there is no such file or folder"),
        ("/nowhere/captures", "/nowhere/captures: there is no such file or folder"),
    ],
)
def test_a_path_that_a_stream_cannot_follow(path: str, message: str) -> None:
    """The stream would never have rows."""
    options = {"path": path, "state": "y"}
    with pytest.raises(DissectorError, match=f"^{message}$"):
        stream.StreamReader(options, spark_schema("exchanges"), PlanClient("", b""))


def batch(path: Path, state: Path, start: Offset, end: Offset, **options: str) -> pa.Table:
    """The rows of a batch, without Spark."""
    request = parse({"path": str(path), "state": str(state)} | options)
    return pa.parquet.read_table(stream.batch(None, request, (start, end)))


def test_a_file_that_cannot_be_opened_is_a_problem(tmp_path: Path) -> None:
    """Without permission, for example; a loop of links cannot be opened by root, either."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    end = file_offsets.latest(file_offsets.START, [str(loop)], WATERMARK)
    rows = batch(loop, tmp_path, file_offsets.START, end, table="problems")
    assert rows["kind"].to_pylist() == ["unreadable_file"]


def test_a_state_folder_that_cannot_be_written(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.touch()
    end = file_offsets.latest(file_offsets.START, [str(QUORUM)], WATERMARK)
    with pytest.raises(DissectorError, match=f"cannot write {state}/exchanges.*: Not a directory"):
        batch(QUORUM, state, file_offsets.START, end)


def test_a_state_that_cannot_be_read(tmp_path: Path) -> None:
    """It is damaged, or its classes are those of another version."""
    end = file_offsets.latest(file_offsets.START, [str(QUORUM)], WATERMARK)
    assert len(batch(QUORUM, tmp_path, file_offsets.START, end))
    (state,) = tmp_path.glob("*/*/state")
    for content in (b"", b"damaged", zstandard.compress(b"cdissector\nnothing\n.")):
        state.write_bytes(content)
        with pytest.raises(DissectorError, match="damaged, or of another version"):
            batch(QUORUM, tmp_path, end, end | {"batch": 2, "ended": True})


def test_rows_of_a_query_with_other_options_are_not_used(tmp_path: Path) -> None:
    """Of a query that was started again from the beginning, or of another table."""
    end = file_offsets.latest(file_offsets.START, [str(QUORUM)], WATERMARK)
    rows = batch(QUORUM, tmp_path, file_offsets.START, end)
    fetches = batch(QUORUM, tmp_path, file_offsets.START, end, apis="Fetch")
    assert 0 < len(fetches) < len(rows)
    assert {*fetches["api"].to_pylist()} == {"Fetch"}
    batch(QUORUM, tmp_path, file_offsets.START, end, table="batches")
    assert len([*tmp_path.glob("*/*/state")]) == 2  # each can go on


def test_a_stream_that_is_run_again_and_again_forgets_missing_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or its offset would grow with the number of all files that there were."""
    monkeypatch.setattr(file_offsets, "MOST_MISSING", 2)
    (path,) = split_capture(QUORUM, tmp_path, 1)
    options = {"path": path, "state": str(tmp_path)}
    reader = stream.StreamReader(options, spark_schema("exchanges"), PlanClient("", b""))
    reader.prepareForTriggerAvailableNow()
    start = file_offsets.START | {"batch": 7, "files": {"a": 1, "b": 2, "c": 3}}
    end = reader.latestOffset(start, ReadAllAvailable())
    assert [*end["files"]][:-1] == ["b", "c"]
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_stream_needs_a_shared_state_folder(tmp_path: Path) -> None:
    options = {"path": str(ADMIN), "state": str(tmp_path)}
    reader = stream.StreamReader(options, spark_schema("exchanges"), None)
    with pytest.raises(DissectorError, match=r"elsewhere on .* is not the driver's folder"):
        next(reader.read(InputPartition(str(tmp_path / "elsewhere"))))
