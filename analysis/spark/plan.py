"""The plan: the Spark jobs from files to tables.

    driver      lists the files and divides them into runs (`dissector.runs`)
    dissect     one task per run        encoded rows, kept by Spark
    driver      joins the runs, in order, and dissects again what does not fit
    finalize    one task per run        connections and topic names; the tables

The rows of the driver (connections, and those of what it dissected again) are kept in files.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel, TaskContext
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from analysis.spark import dissection
from analysis.spark.dissection import ENCODED_ROWS, RESULT, CaptureIndex, Task
from analysis.spark.options import Request
from analysis.spark.schemas import TOPIC_REPORTS, arrow_schema, spark_schema, to_spark
from analysis.spark.writing import SPARK_WRITTEN, Folder, Written
from dissector import runs
from dissector.capture import captures_and_segments
from dissector.errors import CaptureError
from dissector.frame_reader import FrameReader
from dissector.packets import remote
from dissector.packets.files import BLOCK_BYTES, FileSource
from dissector.packets.paths import STANDARD_INPUT
from dissector.packets.remote import is_url
from dissector.pipeline import MEMORY_SHARE, Pipeline
from dissector.problems import Problem
from dissector.runs import planning
from dissector.runs.joined import Joined
from dissector.runs.joining import Joiner
from dissector.runs.plan import AnyRun
from dissector.runs.worker import Make, RunResult
from dissector.streams.streaming import STREAM_SHARE
from dissector.tables.builder import TableBuilder, TableRows
from dissector.tables.finalizer import RowBuffer
from dissector.tables.log_segments import segment_rows
from dissector.tables.problems import problem_rows
from dissector.tls.keylog_source import KeyLogSource

RUNS: Final = 4
"""Runs per core, to balance unequal runs."""

Batches: TypeAlias = Iterator[pa.RecordBatch]
Work: TypeAlias = Callable[[Batches], Batches]
Item = TypeVar("Item")

_STATE_COLUMNS: Final = ("leader", "leader_epoch", "replicas", "isr")


@dataclass(frozen=True, slots=True)
class Dissection:
    """The encoded rows of a request, and what completes them."""

    spark: SparkSession
    request: Request
    encoded: DataFrame
    index: CaptureIndex
    own: dict[str, RowBuffer]
    """Rows of the driver, by table; they are read once."""
    problems: Sequence[Problem]
    """Problems of files that cannot be read."""
    segments: Sequence[str] = ()
    """Log segments of brokers in the input."""

    def write(self, name: str, folder: Folder) -> int:
        """Write a table as Parquet to a folder that was created; returns the number of rows.

        Raises DissectorError.
        """
        if name == "topics":
            written = mapped(self._topics(), folder.write, SPARK_WRITTEN)
        else:
            written = self._finalized(name, folder)
        files = [Written(*row) for row in written.collect()]
        if name != "topics":
            for each in folder.write(self._own_rows(name)):
                files += [Written(**row) for row in each.to_pylist()]
        folder.end(files)
        return sum(file.rows for file in files)

    def _topics(self) -> DataFrame:
        reports = self._finalized("topics")
        own = pa.Table.from_batches(self._own_rows("topics"), arrow_schema(TOPIC_REPORTS))
        return changes(reports.unionAll(self.spark.createDataFrame(own)) if len(own) else reports)

    def _own_rows(self, name: str) -> Batches:
        """The rows of the driver, in Spark's schema."""
        for rows in self.own[name].read() if name in self.own else ():
            yield dissection.finalized(self.request, name, self.index.names, rows)
        if name == "problems" and self.problems:
            yield to_spark(name, problem_rows([*self.problems]))

    def _finalized(self, name: str, folder: Folder | None = None) -> DataFrame:
        """The rows of a table that tasks have; for `topics`, those of `TOPIC_REPORTS`.

        With a folder, they are written there, and the rows are those of `writing.WRITTEN`.
        """
        encoded, request = self.encoded, self.request
        if self.segments:
            encoded = encoded.unionAll(encode_segments(self.spark, request, self.segments, name))
        shared = self.spark.sparkContext.broadcast(self.index)

        def finalize(batches: Batches) -> Batches:
            rows = dissection.finalize(request, name, shared.value, batches)
            return folder.write(rows) if folder else rows

        schema = spark_schema(TOPIC_REPORTS if name == "topics" else name)
        columns = encoded.filter(encoded.kind == name).select("run", "content")
        return mapped(columns, finalize, SPARK_WRITTEN if folder else schema)


@contextmanager
def dissect_captures(spark: SparkSession, request: Request) -> Iterator[Dissection]:
    """Dissect all captures of a request; their encoded rows are cached meanwhile.

    Raises CaptureError if no capture can be read.
    """
    files, segments = inputs(request.paths)
    if STANDARD_INPUT in files:
        raise CaptureError("Spark reads files, not standard input")
    task, source, problems = planned(spark, request, files, has_segments=bool(segments))
    numbers = range(len(task.plan.runs)) if source else range(0)
    encoded = _for_each(spark, numbers, lambda number: dissection.dissect(task, number))
    encoded.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        described = encoded.filter(encoded.kind == RESULT).select("run", "content").collect()
        results = [pickle.loads(bytes(row.content)) for row in sorted(described)]
        own: dict[str, RowBuffer] = {}
        if source is None:
            index = CaptureIndex({})
        elif len(results) == 1:
            index = CaptureIndex({}, results[0])
        else:
            index = joined(task, source, results, own)
        yield Dissection(spark, request, encoded, index, own, problems, segments)
    finally:
        encoded.unpersist()


def planned(
    spark: SparkSession, request: Request, files: Sequence[str], *, has_segments: bool
) -> tuple[Task, FileSource | None, list[Problem]]:
    """The parameters of the tasks, the source of the files, and problems of unreadable files.

    Raises CaptureError if no capture can be read.
    """
    memory = request.memory
    block_bytes = min(BLOCK_BYTES, memory // MEMORY_SHARE)
    limits = memory // STREAM_SHARE, memory // MEMORY_SHARE
    no_runs = runs.Plan([], 0, 1, block_bytes, limits)
    if not files and has_segments:
        return Task(request, no_runs, [], []), None, []
    source = FileSource([*files], block_bytes)
    problems = source.take_problems()
    secrets = [*keylog(request), *source.secrets]
    times = request.since, request.until
    size = request.run_bytes or sum(source.sizes) // (RUNS * parallelism(spark))
    plan = None if secrets else runs.divided(source, size, 1, limits, times)
    if plan is None:
        plan = replace(no_runs, runs=[planning.whole(source, times)])
    paths = [name if is_url(name) else str(Path(name).absolute()) for name in source.names]
    moved = [replace(run, path=paths[source.names.index(run.path)]) for run in plan.runs]
    task = Task(request, replace(plan, runs=moved), source.names, paths, secrets, source.comments)
    return task, source, problems


class _Results:
    """The runs that tasks have dissected, as the plan of the driver's pipeline."""

    def __init__(self, task: Task, results: Sequence[RunResult]) -> None:
        self._task = task
        self._results = results
        self.joined: dict[int, Joined | None] = {}

    def rows(
        self, make: Make, reader: FrameReader, builder: TableBuilder,
        progress: Callable[[int, int], None],
    ) -> Iterator[TableRows]:  # fmt: skip
        """The rows of the driver."""
        plan = self._task.plan
        joiner = Joiner(reader, builder, plan.block_bytes, plan.limits, progress)
        runs: Iterable[tuple[AnyRun, RunResult]] = zip(plan.runs, self._results, strict=True)
        for number, (run, result) in enumerate(runs):
            joined = joiner.join(run, result)
            if joined is None:
                yield from joiner.read(run)
            else:
                for rows in joined.own:
                    yield from rows
                final = reader.streams.connections.number
                row = joined.row_of
                joined = replace(joined, own=[], row_of=np.where(row < 0, row, final[row]))
            self.joined[number] = joined
        yield from joiner.finish()


def joined(
    task: Task, source: FileSource, results: Sequence[RunResult], own: dict[str, RowBuffer]
) -> CaptureIndex:
    """Join the runs. The rows of the driver are put into `own`."""
    request, plan = task.request, _Results(task, results)
    pipeline = Pipeline(source, ports=request.ports, memory=request.memory, plan=plan)
    names = dict(zip(task.paths, task.names, strict=True))
    for name, rows in pipeline.raw_rows(request.tables):
        rows = dissection.renamed(dissection.filter_apis(request.apis, rows), names)
        if len(rows) and name in request.tables:
            own.setdefault(name, RowBuffer(rows.schema)).write(rows)
    return CaptureIndex(plan.joined, pipeline.names)


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


def encode_segments(
    spark: SparkSession, request: Request, segments: Sequence[str], table: str
) -> DataFrame:
    """The rows of log segments for a table, encoded; one task reads a whole segment."""

    def read(path: str) -> Batches:
        for name, batch in segment_rows(path, [table], lambda count: None):
            yield dissection.encode_rows(name, dissection.filter_apis(request.apis, batch))

    absolute = [str(Path(path).absolute()) for path in segments]
    return _for_each(spark, absolute, read)


def changes(reports: DataFrame) -> DataFrame:
    """Reports of topics that differ from the report before: rows of `topics`."""
    order = Window.partitionBy("topic", "topic_id", "partition").orderBy("time_ns", "connection_id")
    same = f.lit(True)
    for name in _STATE_COLUMNS:
        same &= f.lag(name).over(order).eqNullSafe(f.col(name))
    first = f.row_number().over(order) == 1
    columns = spark_schema("topics").names
    return reports.withColumn("new", first | ~same).filter("new").select(columns)


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
    spark: SparkSession, items: Sequence[Item], work: Callable[[Item], Batches]
) -> DataFrame:
    """Encoded rows of each item, one item per task."""
    shared = spark.sparkContext.broadcast(list(items))

    def run(batches: Batches) -> Batches:
        for batch in batches:
            for index in batch.column("id").to_pylist():
                yield from work(shared.value[index])

    count = len(items)
    return mapped(spark.range(0, count, 1, max(count, 1)), run, ENCODED_ROWS)
