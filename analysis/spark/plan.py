"""The plan: from files to tables, as Spark's jobs.

    look      some splits a task what must be known before: counts, the brokers, who is damaged
    read      some splits a task packets in bundles
              shuffle            by share, sorted by place in the capture
    dissect   a task a share     parcels of rows, kept by Spark
    settle    a task a share     numbers of connections, names of topics; the tables

A share is some connections whole. It streams through its task, so that a connection may be larger
than memory. What goes over the network is each packet's payload once; parcels stay where they are.
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
from analysis.spark.cutting import NEED_RECORDS, Cutter
from analysis.spark.dissection import (
    CONNECTIONS,
    DOUBT,
    NAMES,
    SPARK_PARCEL,
    Knowledge,
    Task,
)
from analysis.spark.options import Request
from analysis.spark.schemas import TOLD, spark_schema, to_spark
from analysis.spark.splits import Broker, Look, Split
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

SHARE_BYTES: Final = 128 << 20
"""Bytes of capture, about, that are worth a share of their own."""
MOST_SHARES: Final = 2
"""Shares for each core, at most: with more of them bundles are small, and the shuffle is of many
pieces. A share may be of any size, since it streams through its task."""
FEW_SHARES: Final = 8
"""So many are no matter, and even out what two or three cores have to do."""
TASKS: Final = 8
"""Tasks of splits for each core, so that unequal ones even out."""
MOST_SPLITS: Final = 16
"""Splits of a task, about, at most: what is lost when one fails."""

Batches: TypeAlias = Iterator[pa.RecordBatch]
Work: TypeAlias = Callable[[Batches], Batches]
Item = TypeVar("Item")

_BYTES: Final = pa.schema([("content", pa.binary())])
_NEWS: Final = ("leader", "leader_epoch", "replicas", "isr")


@dataclass(frozen=True, slots=True)
class Dissected:
    """The parcels of a request, and what is known now that all tasks have spoken."""

    spark: SparkSession
    task: Task
    parcels: DataFrame
    known: Knowledge
    problems: Sequence[Problem]
    """Those of the first look."""
    segments: Sequence[str] = ()
    """Log segments of brokers, beside the captures."""

    def table(self, name: str) -> DataFrame:
        """The rows of a table."""
        rows = settled(self.spark, self.task, name, self._parcels(name), self.known)
        if name == "topics":
            return news(rows)
        return rows.unionAll(as_rows(self.spark, self.problems)) if name == "problems" else rows

    def write(self, name: str, folder: Folder) -> int:
        """Write a table as Parquet to a folder that has begun; how many rows.

        Raises DissectorError.
        """
        if name == "topics":
            written = mapped(self.table(name), folder.write, SPARK_WRITTEN)
        else:
            parcels = self._parcels(name)
            written = settled(self.spark, self.task, name, parcels, self.known, folder)
        files = [Written(*row) for row in written.collect()]
        if name == "problems" and self.problems:
            for each in folder.write(iter([to_spark(name, problem_rows([*self.problems]))])):
                files += [Written(**row) for row in each.to_pylist()]
        folder.end(files)
        return sum(file.rows for file in files)

    def _parcels(self, name: str) -> DataFrame:
        """Those of the captures, and those of a table of the log segments."""
        if not self.segments:
            return self.parcels
        return self.parcels.unionAll(
            of_segments(self.spark, self.task.request, self.segments, name)
        )


@contextmanager
def whole(spark: SparkSession, request: Request) -> Iterator[Dissected]:
    """Dissect all captures of a request; their parcels are kept meanwhile.

    Raises CaptureError where nothing can be read.
    """
    files, segments = inputs(request.paths)
    if STANDARD_INPUT in files:
        raise CaptureError("Spark reads files, not standard input")
    # Tasks run in another folder.
    here = [path if is_url(path) else str(Path(path).absolute()) for path in files]
    tasks = TASKS * parallelism(spark)
    looks = proved(spark, splits.guess(here, request.split_bytes, tasks))
    if not any(found.packets for found in looks) and not segments:
        _say_why_not(looks)
    brokers = frozenset[Broker]().union(*(found.brokers for found in looks))
    secrets = [*keylog(request), *(text for found in looks for text in found.secrets)]
    dealt = shares(spark, request, looks)
    problems = [problem for each in looks for problem in each.problems_in(files)]
    for is_cut in (NEED_RECORDS.isdisjoint(request.tables), False):
        task = Task(request, files, brokers, secrets, is_cut=is_cut)
        bundles = bundled(spark, request, looks, dealt, brokers if is_cut else None)
        with dissected(spark, task, bundles, dealt) as (parcels, told):
            if any(kind == DOUBT for kind, _ in told):
                continue
            known = dissection.knowledge(told)
            yield Dissected(spark, task, parcels, known, problems, segments)
            return


def located(paths: Sequence[str]) -> list[str]:
    """The captures that paths and URLs mean. Raises CaptureError."""
    return inputs(paths)[0]


def inputs(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """The captures that paths and URLs mean, and the log segments. Raises CaptureError."""
    urls = [path for path in paths if is_url(path)]
    try:
        there = [file for url in urls for file in remote.files(url)]
    except OSError as error:
        raise CaptureError(str(error)) from error
    captures, segments = captures_and_segments([path for path in paths if path not in urls])
    return [*captures, *dict.fromkeys(there)], segments


def keylog(request: Request) -> Iterator[bytes]:
    """The text of the key log. Raises CaptureError, or DissectorError where it is of no use."""
    if request.keylog is not None:
        yield from KeyLogSource([], request.keylog).read_new()


def parallelism(spark: SparkSession) -> int:
    """Tasks that run at a time."""
    return int(spark.sparkContext.defaultParallelism)


def shares(spark: SparkSession, request: Request, looks: Sequence[Look]) -> int:
    """Into how many tasks connections are dealt."""
    worth = math.ceil(sum(found.size for found in looks) / SHARE_BYTES)
    cores = parallelism(spark)
    return request.shares or min(max(cores, worth), max(MOST_SHARES * cores, FEW_SHARES))


def looks_at(spark: SparkSession, items: Sequence[Split]) -> list[Look]:
    """First looks at splits, in their order."""

    def look(split: Split) -> Batches:
        found = pickle.dumps(splits.look(split))
        yield pa.RecordBatch.from_arrays([pa.array([found], pa.binary())], schema=_BYTES)

    return [
        pickle.loads(bytes(row.content))
        for row in _each(spark, items, look, "content binary").collect()
    ]


def bundled(
    spark: SparkSession, request: Request, looks: Sequence[Look], shares: int,
    brokers: Collection[Broker] | None = None,
) -> DataFrame:  # fmt: skip
    """The packets of the time that is asked for, in bundles.

    `brokers`: where they listen, for records to stay behind; None: all bytes travel.
    """
    since, until, ports = request.since, request.until, request.ports or DEFAULT_PORTS
    inside = [each.split for each in looks if each.latest >= since and each.earliest < until]

    def read(split: Split) -> Batches:
        cutter = None if brokers is None else Cutter(ports, brokers, split.packets_before)
        return splits.bundles(split, shares, since, until, cutter)

    return _each(spark, inside, read, packets.SPARK_SCHEMA)


def of_segments(
    spark: SparkSession, request: Request, segments: Sequence[str], table: str
) -> DataFrame:
    """The rows of a table that are in log segments, as parcels; a segment is read by one task."""

    def read(path: str) -> Batches:
        for name, batch in segment_rows(path, [table], lambda count: None):
            yield dissection.parcel(name, dissection.of_apis(request.apis, batch))

    here = [str(Path(path).absolute()) for path in segments]
    return _each(spark, here, read, SPARK_PARCEL)


@contextmanager
def dissected(
    spark: SparkSession, task: Task, bundles: DataFrame, shares: int
) -> Iterator[tuple[DataFrame, list[tuple[str, bytes]]]]:
    """Parcels, kept; and of those that hold no rows, kind and content."""
    dealt = bundles.repartitionById(shares, "share").sortWithinPartitions("position")
    parcels = mapped(dealt, lambda batches: dissection.dissect(task, batches), SPARK_PARCEL)
    parcels.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        told = parcels.filter(parcels.kind.isin(CONNECTIONS, NAMES, DOUBT)).collect()
        yield parcels, [(row.kind, bytes(row.content)) for row in told]
    finally:
        parcels.unpersist()


def settled(
    spark: SparkSession, task: Task, name: str, parcels: DataFrame, known: Knowledge,
    folder: Folder | None = None,
) -> DataFrame:  # fmt: skip
    """The rows of a table, of its parcels; of `topics`, those of `TOLD`.

    With a folder, they are written there, and the rows are those of `writing.WRITTEN`.
    """
    shared = spark.sparkContext.broadcast(known)

    def settle(batches: Batches) -> Batches:
        contents = (each.as_buffer() for batch in batches for each in batch.column("content"))
        rows = dissection.settle(task, name, shared.value, contents)
        return folder.write(rows) if folder else rows

    schema = SPARK_WRITTEN if folder else spark_schema(TOLD if name == "topics" else name)
    return mapped(parcels.filter(parcels.kind == name).select("content"), settle, schema)


def news(told: DataFrame) -> DataFrame:
    """Of what is told of topics, what differs from what was told before: rows of `topics`."""
    order = Window.partitionBy("topic", "topic_id", "partition").orderBy("time_ns", "connection_id")
    same = f.lit(True)
    for name in _NEWS:
        same &= f.lag(name).over(order).eqNullSafe(f.col(name))
    first = f.row_number().over(order) == 1
    columns = spark_schema("topics").names
    return told.withColumn("new", first | ~same).filter("new").select(columns)


def newest(told: DataFrame) -> DataFrame:
    """Of what is told of topics, the latest of each partition."""
    order = Window.partitionBy("topic", "topic_id", "partition").orderBy(
        f.desc("time_ns"), f.desc("connection_id")
    )
    return told.withColumn("place", f.row_number().over(order)).filter("place = 1").drop("place")


def as_rows(spark: SparkSession, problems: Iterable[Problem]) -> DataFrame:
    """Rows of `problems`."""
    found = to_spark("problems", problem_rows(list(problems)))
    return spark.createDataFrame(pa.Table.from_batches([found]))


def _say_why_not(looks: Sequence[Look]) -> None:
    """Raise, where nothing at all could be read."""
    problems = [problem for each in looks for problem in each.problems]
    unreadable = [each.detail for each in problems if each.kind == "unreadable_file"]
    if len(unreadable) == len(looks):
        raise CaptureError("; ".join(unreadable) or "no capture was found")


def proved(spark: SparkSession, guesses: Sequence[Split]) -> list[Look]:
    """First looks at all splits, in order; at files that cannot be split, as one."""
    found: list[Look] = []
    while guesses:  # what fails the proof comes again, as files that are one split each
        looks = looks_at(spark, guesses)
        proved, guesses = splits.settle(looks)
        ready = frozenset(proved)
        found += [each for each in looks if each.split in ready]
    return sorted(found, key=lambda each: (each.split.capture, each.split.packets_before))


def mapped(frame: DataFrame, work: Work, schema: str) -> DataFrame:
    """What `work` gives for the batches of each partition, on the cores that a task has.

    Arrow would take all of the machine, which other tasks have.
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
    """Let the garbage collector pass over what is there: Spark lets it run after each task."""
    gc.collect()
    gc.freeze()


def _each(
    spark: SparkSession, items: Sequence[Item], work: Callable[[Item], Batches], schema: str
) -> DataFrame:
    """What `work` gives for each of the items, some of them in a task."""
    tasks = min(len(items), max(TASKS * parallelism(spark), len(items) // MOST_SPLITS))
    shared = spark.sparkContext.broadcast(list(items))

    def run(batches: Batches) -> Batches:
        for batch in batches:
            for index in batch.column("id").to_pylist():
                yield from work(shared.value[index])

    return mapped(spark.range(0, len(items), 1, max(tasks, 1)), run, schema)
