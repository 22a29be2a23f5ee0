"""The plan: the Spark jobs from files to tables.

    scan        one task per group of splits    packet counts, brokers, validity of split positions
    read        one task per group of splits    packets as bundles
                shuffle                         by shard, sorted by position in the capture
    dissect     one task per shard              encoded rows, kept by Spark
    finalize    one task per shard              connection numbers and topic names; the tables

A shard is a set of whole connections. It streams through its task, so a connection may be larger
than memory. The shuffle moves each packet's payload once; encoded rows stay where they are.
"""

from __future__ import annotations

import gc
import math
import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import pyarrow as pa
from pyspark import StorageLevel, TaskContext
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from analysis.spark import dissection, packets, splits
from analysis.spark.dissection import (
    CONNECTIONS,
    ENCODED_ROWS,
    NAMES,
    PRUNE_MISMATCH,
    CaptureIndex,
    Task,
)
from analysis.spark.options import Request
from analysis.spark.pruning import NEED_RECORDS, PayloadPruner
from analysis.spark.schemas import TOPIC_REPORTS, spark_schema, to_spark
from analysis.spark.splits import Broker, Split, SplitScan
from analysis.spark.writing import SPARK_WRITTEN, Folder, Written
from dissector.capture import captures_and_segments
from dissector.errors import CaptureError
from dissector.packets import remote
from dissector.packets.paths import STANDARD_INPUT
from dissector.packets.remote import is_url
from dissector.pipeline import DEFAULT_PORTS
from dissector.problems import Problem
from dissector.tables.log_segments import segment_rows
from dissector.tables.problems import problem_rows
from dissector.tls.keylog_source import KeyLogSource

SHARD_BYTES: Final = 128 << 20
"""Approximate bytes of capture per shard."""
MOST_SHARDS: Final = 2
"""Most shards per core. More shards make small bundles and a shuffle of many pieces. A shard may be
of any size, because it streams through its task."""
FEW_SHARDS: Final = 8
"""This many shards are always acceptable; they balance the load of two or three cores."""
TASKS: Final = 8
"""Split tasks per core, to balance unequal splits."""
MOST_SPLITS: Final = 16
"""Approximate limit of splits per task, which are repeated if it fails."""

Batches: TypeAlias = Iterator[pa.RecordBatch]
Work: TypeAlias = Callable[[Batches], Batches]
Item = TypeVar("Item")

_BYTES: Final = pa.schema([("content", pa.binary())])
_STATE_COLUMNS: Final = ("leader", "leader_epoch", "replicas", "isr")


@dataclass(frozen=True, slots=True)
class Dissection:
    """The encoded rows of a request, and the index that all tasks contributed to."""

    spark: SparkSession
    task: Task
    encoded: DataFrame
    known: CaptureIndex
    problems: Sequence[Problem]
    """Problems of the scan."""
    segments: Sequence[str] = ()
    """Log segments of brokers in the input."""

    def table(self, name: str) -> DataFrame:
        """The rows of a table."""
        rows = finalized(self.spark, self.task, name, self._encoded_rows(name), self.known)
        if name == "topics":
            return changes(rows)
        return rows.unionAll(as_rows(self.spark, self.problems)) if name == "problems" else rows

    def write(self, name: str, folder: Folder) -> int:
        """Write a table as Parquet to a folder that was created; returns the number of rows.

        Raises DissectorError.
        """
        if name == "topics":
            written = mapped(self.table(name), folder.write, SPARK_WRITTEN)
        else:
            encoded = self._encoded_rows(name)
            written = finalized(self.spark, self.task, name, encoded, self.known, folder)
        files = [Written(*row) for row in written.collect()]
        if name == "problems" and self.problems:
            for each in folder.write(iter([to_spark(name, problem_rows([*self.problems]))])):
                files += [Written(**row) for row in each.to_pylist()]
        folder.end(files)
        return sum(file.rows for file in files)

    def _encoded_rows(self, name: str) -> DataFrame:
        """Encoded rows of the captures, and of the log segments for this table."""
        if not self.segments:
            return self.encoded
        return self.encoded.unionAll(
            encode_segments(self.spark, self.task.request, self.segments, name)
        )


@contextmanager
def dissect_captures(spark: SparkSession, request: Request) -> Iterator[Dissection]:
    """Dissect all captures of a request; their encoded rows are cached meanwhile.

    Raises CaptureError if no capture can be read.
    """
    files, segments = inputs(request.paths)
    if STANDARD_INPUT in files:
        raise CaptureError("Spark reads files, not standard input")
    # Tasks run in a different working directory.
    absolute = [path if is_url(path) else str(Path(path).absolute()) for path in files]
    tasks = TASKS * parallelism(spark)
    scans = validated_scans(spark, splits.guess(absolute, request.split_bytes, tasks))
    if not any(scan.packets for scan in scans) and not segments:
        _raise_unreadable(scans)
    brokers = frozenset[Broker]().union(*(scan.brokers for scan in scans))
    secrets = [*keylog(request), *(text for scan in scans for text in scan.secrets)]
    count = shards(spark, request, scans)
    problems = [problem for scan in scans for problem in scan.problems_in(files)]
    for is_pruned in (NEED_RECORDS.isdisjoint(request.tables), False):
        task = Task(request, files, brokers, secrets, is_pruned=is_pruned)
        bundles = read_bundles(spark, request, scans, count, brokers if is_pruned else None)
        with dissect(spark, task, bundles, count) as (encoded, metadata):
            if any(kind == PRUNE_MISMATCH for kind, _ in metadata):
                continue
            index = dissection.merge_index(metadata)
            yield Dissection(spark, task, encoded, index, problems, segments)
            return


def located(paths: Sequence[str]) -> list[str]:
    """The capture files of paths and URLs. Raises CaptureError."""
    return inputs(paths)[0]


def inputs(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """The capture files and log segments of paths and URLs. Raises CaptureError."""
    urls = [path for path in paths if is_url(path)]
    try:
        remote_files = [file for url in urls for file in remote.files(url)]
    except OSError as error:
        raise CaptureError(str(error)) from error
    captures, segments = captures_and_segments([path for path in paths if path not in urls])
    return [*captures, *dict.fromkeys(remote_files)], segments


def keylog(request: Request) -> Iterator[bytes]:
    """The text of the key log. Raises CaptureError, or DissectorError if it is invalid."""
    if request.keylog is not None:
        yield from KeyLogSource([], request.keylog).read_new()


def parallelism(spark: SparkSession) -> int:
    """Number of tasks that run at once."""
    return int(spark.sparkContext.defaultParallelism)


def shards(spark: SparkSession, request: Request, scans: Sequence[SplitScan]) -> int:
    """Number of tasks among which connections are divided."""
    by_size = math.ceil(sum(scan.size for scan in scans) / SHARD_BYTES)
    cores = parallelism(spark)
    return request.shards or min(max(cores, by_size), max(MOST_SHARDS * cores, FEW_SHARDS))


def scan_splits(spark: SparkSession, items: Sequence[Split]) -> list[SplitScan]:
    """Scan splits; results are in the order of splits."""

    def scan(split: Split) -> Batches:
        pickled = pickle.dumps(splits.scan_split(split))
        yield pa.RecordBatch.from_arrays([pa.array([pickled], pa.binary())], schema=_BYTES)

    return [
        pickle.loads(bytes(row.content))
        for row in _for_each(spark, items, scan, "content binary").collect()
    ]


def read_bundles(
    spark: SparkSession, request: Request, scans: Sequence[SplitScan], shards: int,
    brokers: Collection[Broker] | None = None,
) -> DataFrame:  # fmt: skip
    """The packets of the requested time range, as bundles.

    `brokers`: broker addresses, to prune record payload; None: keep all bytes.
    """
    since, until, ports = request.since, request.until, request.ports or DEFAULT_PORTS
    inside = [scan.split for scan in scans if scan.latest >= since and scan.earliest < until]

    def read(split: Split) -> Batches:
        pruner = None if brokers is None else PayloadPruner(ports, brokers, split.packets_before)
        return splits.bundles(split, shards, since, until, pruner)

    return _for_each(spark, inside, read, packets.SPARK_SCHEMA)


def encode_segments(
    spark: SparkSession, request: Request, segments: Sequence[str], table: str
) -> DataFrame:
    """The rows of log segments for a table, encoded; one task reads a whole segment."""

    def read(path: str) -> Batches:
        for name, batch in segment_rows(path, [table], lambda count: None):
            yield dissection.encode_rows(name, dissection.filter_apis(request.apis, batch))

    absolute = [str(Path(path).absolute()) for path in segments]
    return _for_each(spark, absolute, read, ENCODED_ROWS)


@contextmanager
def dissect(
    spark: SparkSession, task: Task, bundles: DataFrame, shards: int
) -> Iterator[tuple[DataFrame, list[tuple[str, bytes]]]]:
    """Cached encoded rows; and the kind and content of those that are not rows of a table."""
    sharded = bundles.repartitionById(shards, "shard").sortWithinPartitions("position")
    encoded = mapped(sharded, lambda batches: dissection.dissect(task, batches), ENCODED_ROWS)
    encoded.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        metadata = encoded.filter(encoded.kind.isin(CONNECTIONS, NAMES, PRUNE_MISMATCH)).collect()
        yield encoded, [(row.kind, bytes(row.content)) for row in metadata]
    finally:
        encoded.unpersist()


def finalized(
    spark: SparkSession, task: Task, name: str, encoded: DataFrame, known: CaptureIndex,
    folder: Folder | None = None,
) -> DataFrame:  # fmt: skip
    """The rows of a table from its encoded rows; for `topics`, those of `TOPIC_REPORTS`.

    With a folder, they are written there, and the rows are those of `writing.WRITTEN`.
    """
    shared = spark.sparkContext.broadcast(known)

    def finalize(batches: Batches) -> Batches:
        contents = (value.as_buffer() for batch in batches for value in batch.column("content"))
        rows = dissection.finalize(task, name, shared.value, contents)
        return folder.write(rows) if folder else rows

    schema = SPARK_WRITTEN if folder else spark_schema(TOPIC_REPORTS if name == "topics" else name)
    return mapped(encoded.filter(encoded.kind == name).select("content"), finalize, schema)


def changes(reports: DataFrame) -> DataFrame:
    """Reports of topics that differ from the report before: rows of `topics`."""
    order = Window.partitionBy("topic", "topic_id", "partition").orderBy("time_ns", "connection_id")
    same = f.lit(True)
    for name in _STATE_COLUMNS:
        same &= f.lag(name).over(order).eqNullSafe(f.col(name))
    first = f.row_number().over(order) == 1
    columns = spark_schema("topics").names
    return reports.withColumn("new", first | ~same).filter("new").select(columns)


def latest_reports(reports: DataFrame) -> DataFrame:
    """The latest report of each partition."""
    order = Window.partitionBy("topic", "topic_id", "partition").orderBy(
        f.desc("time_ns"), f.desc("connection_id")
    )
    return reports.withColumn("place", f.row_number().over(order)).filter("place = 1").drop("place")


def as_rows(spark: SparkSession, problems: Iterable[Problem]) -> DataFrame:
    """Rows of `problems`."""
    rows = to_spark("problems", problem_rows(list(problems)))
    return spark.createDataFrame(pa.Table.from_batches([rows]))


def _raise_unreadable(scans: Sequence[SplitScan]) -> None:
    """Raise CaptureError if no capture could be read."""
    problems = [problem for scan in scans for problem in scan.problems]
    unreadable = [problem.detail for problem in problems if problem.kind == "unreadable_file"]
    if len(unreadable) == len(scans):
        raise CaptureError("; ".join(unreadable) or "no captures found")


def validated_scans(spark: SparkSession, guesses: Sequence[Split]) -> list[SplitScan]:
    """Scans of all valid splits, in order; a file that cannot be split is one split."""
    valid_scans: list[SplitScan] = []
    while guesses:  # files that fail the validation are scanned again as one split each
        scans = scan_splits(spark, guesses)
        valid, guesses = splits.validate(scans)
        ready = frozenset(valid)
        valid_scans += [scan for scan in scans if scan.split in ready]
    return sorted(valid_scans, key=lambda scan: (scan.split.capture, scan.split.packets_before))


def mapped(frame: DataFrame, work: Work, schema: str) -> DataFrame:
    """Apply `work` to the batches of each partition, on the cores of the task.

    Arrow would otherwise use all cores of the machine, which other tasks need.
    """

    def run(batches: Batches) -> Batches:
        context = TaskContext.get()
        assert context is not None
        pa.set_cpu_count(context.cpus())
        _freeze()
        return work(batches)

    return frame.mapInArrow(run, schema)


@cache
def _freeze() -> None:
    """Exclude existing objects from garbage collection, which Spark runs after each task."""
    gc.collect()
    gc.freeze()


def _for_each(
    spark: SparkSession, items: Sequence[Item], work: Callable[[Item], Batches], schema: str
) -> DataFrame:
    """Apply `work` to each item, several items per task."""
    tasks = min(len(items), max(TASKS * parallelism(spark), len(items) // MOST_SPLITS))
    shared = spark.sparkContext.broadcast(list(items))

    def run(batches: Batches) -> Batches:
        for batch in batches:
            for index in batch.column("id").to_pylist():
                yield from work(shared.value[index])

    return mapped(spark.range(0, len(items), 1, max(tasks, 1)), run, schema)
