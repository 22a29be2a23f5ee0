"""The job: tables of captures as Parquet, in folders by date.

    driver      checks the executors (`requirements`)
    driver      lists the files and divides them into runs (`plan`)
    dissect     one task per run        rows and states, in files of the job's folder
    driver      joins the runs, in order, and dissects again what does not fit
    finalize    one task per run        connections and topic names; the tables
    driver      writes the end: connections, changes of topics, requests without a response

A run with a manifest is complete, and is not read again. A run with a result was dissected before.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from analysis.spark import dissection, requirements
from analysis.spark.causes import cause
from analysis.spark.dissection import Blocks, Completion, Task, packed, unpacked
from analysis.spark.options import Request
from analysis.spark.output import Output
from analysis.spark.plan import Captures, JobPlan, opened, planned
from analysis.spark.schemas import arrow_schema
from analysis.spark.tasks import parallelism, results
from dissector.errors import DissectorError
from dissector.exchanges.topic_names import TopicNames
from dissector.frame_reader import FrameReader
from dissector.pipeline import Pipeline
from dissector.runs.joining import Joiner
from dissector.runs.rows import RowFile
from dissector.runs.worker import Make
from dissector.streams.connections.table import ConnectionTable
from dissector.tables.builder import TableBuilder, TableRows
from dissector.tables.finalizer import Finalizer, NamedBatch, RowBuffer
from dissector.tables.problems import problem_rows
from dissector.tables.shared_columns import with_connections


def run(
    spark: SparkSession, request: Request, output: Output, captures: Captures | None = None
) -> Iterator[tuple[str, int, str]]:
    """Write the tables to an open output. Yields the name, number of rows and folder of each table.

    Rows are divided by the date (UTC) of their time. `captures`: the input, if it was opened
    before. Raises DissectorError.
    """
    captures = captures or opened(request)
    try:
        requirements.check(spark, output.job)
        plan = planned(request, captures, output, parallelism(spark))
        master = spark.conf.get("spark.master") or ""
        if not master.startswith("local"):  # a network is slower than lz4
            plan = replace(plan, task=replace(plan.task, compression="lz4"))
        with output.errors():
            _write(spark, plan, output)
    except (PySparkException, Py4JError) as error:
        raise DissectorError(cause(error)) from error
    for name, count in output.finish(plan.names, plan.inputs, arrow_schema).items():
        yield name, count, output.place(name)


def _write(spark: SparkSession, plan: JobPlan, output: Output) -> None:
    """Write all parts that are not complete. Raises DissectorError and Spark errors."""
    task, names = plan.task, plan.names
    complete = output.complete(names, plan.inputs)
    if len(complete) == len(names):
        return
    topics, own = TopicNames(), dict[str, RowBuffer]()
    if not task.is_whole:
        present = output.job.names()
        _for_each(spark, task, "dissect", [*_undissected(task, complete, present)])
        topics = _joined(plan, complete, own)
    complete = {
        name: manifest
        for name, manifest in complete.items()
        if not {*manifest.waiting} & topics.names.keys()
    }
    output.prune(complete)
    end = len(names) - 1
    missing = [number for number in range(end) if names[number] not in complete]
    _for_each(spark, task, "finalize", missing, topics)
    _write_end(plan, own, topics)


def _undissected(task: Task, complete: Collection[str], present: Collection[str]) -> Iterator[int]:
    """The runs without a result, or without the rows that are needed."""
    with_rows = {name.partition(".")[0] for name in present if name.endswith(".rows")}
    for number in range(len(task.plan.runs)):
        name = task.parts[number].name
        has_rows = name in complete or name in with_rows
        if f"{name}.result" not in present or not has_rows:
            yield number


class _Runs:
    """The runs that tasks have dissected, as the plan of the driver's pipeline."""

    def __init__(self, task: Task, complete: Collection[str]) -> None:
        """`complete`: runs with a manifest; only their states are needed."""
        self._task = task
        self._complete = complete

    def rows(
        self, make: Make, reader: FrameReader, builder: TableBuilder,
        progress: Callable[[int, int], None],
    ) -> Iterator[TableRows]:  # fmt: skip
        """The rows after the last run. Those of the runs are written to files."""
        task, plan = self._task, self._task.plan
        reader.streams.flows.index.key = plan.hash_key
        joiner = Joiner(reader, builder, plan.block_bytes, plan.limits, progress)
        for number, run in enumerate(plan.runs):
            name = task.parts[number].name
            file, result = dissection.result_of(task, number)
            joined = joiner.join(run, result)
            if name in self._complete:
                for _ in joined.own:
                    pass
                continue
            final = reader.streams.connections
            with task.job.create(f"{name}.own") as own_file:
                own = _stored(RowFile(own_file), joined.own, final)
            row_of = joined.row_of.copy()
            row_of[row_of >= 0] = final.number[row_of[row_of >= 0]]
            joined = replace(joined, own=(), row_of=row_of)
            completion = Completion(file, own, joined, result.names.unresolved)
            task.job.write(f"{name}.join", packed(completion))
        yield from joiner.finish()


def _stored(
    file: RowFile, blocks: Iterable[Sequence[TableRows]], connections: ConnectionTable
) -> Blocks:
    """Write the rows of the driver, with connection numbers."""
    return [
        [
            file.write(each._replace(batch=with_connections(each.batch, connections.number)))
            for each in block
            if len(each.batch)
        ]
        for block in blocks
    ]


def _joined(plan: JobPlan, complete: Collection[str], own: dict[str, RowBuffer]) -> TopicNames:
    """Join the runs, and put the rows after the last one into `own`. Returns topic names."""
    task, request = plan.task, plan.task.request
    pipeline = Pipeline(
        plan.captures.source, ports=request.ports, memory=request.memory, plan=_Runs(task, complete)
    )
    for name, rows in pipeline.raw_rows(request.tables):
        if len(rows):
            own.setdefault(name, RowBuffer(rows.schema)).write(rows)
    dissection.check_files(pipeline.file_problems)  # of runs that the driver has read
    return pipeline.names


def _write_end(plan: JobPlan, own: dict[str, RowBuffer], topics: TopicNames) -> None:
    """Write the last part, with the rows of the driver."""
    task = plan.task
    finalizer = Finalizer(topics, hold=False, show_secrets=task.request.show_secrets)
    complete = (each for rows in _end_rows(plan, own) for each in finalizer.add(*rows))
    dissection.write_part(task, task.parts[-1], complete)


def _end_rows(plan: JobPlan, own: dict[str, RowBuffer]) -> Iterator[NamedBatch]:
    """The reports of topics of all runs, and the rows of the driver."""
    task = plan.task
    present = task.job.names() if "topics" in task.request.tables else ()
    for part in task.parts[: len(task.plan.runs)]:
        if f"{part.name}.topics" in present:
            with closing(pa.ipc.open_stream(task.job.read(f"{part.name}.topics"))) as topics:
                for batch in topics:
                    yield "topics", batch
    for name, buffer in own.items():
        for rows in buffer.read():
            yield name, rows
    if plan.captures.problems:
        yield "problems", problem_rows([*plan.captures.problems])


def _for_each(
    spark: SparkSession, task: Task, work: str, numbers: Sequence[int], *arguments: object
) -> None:
    """Do the work of `dissection` for parts of the input, one part per Spark task."""
    if not numbers:
        return
    shared = packed((task, arguments)).to_pybytes()

    def run(index: int) -> None:
        task, arguments = _shared(shared)
        task.job.check()
        getattr(dissection, work)(task, numbers[index], *arguments)

    results(spark, run, len(numbers), f"kafka-dissector: {work}")


@lru_cache(maxsize=1)
def _shared(content: bytes) -> tuple[Task, tuple[Any, ...]]:
    """In a process of tasks: the parameters that its tasks share."""
    current = TaskContext.get()
    assert current is not None
    pa.set_cpu_count(current.cpus())  # Arrow would use all cores, which other tasks need
    shared: tuple[Task, tuple[Any, ...]] = unpacked(content)
    # Exclude existing objects from garbage collection, which Spark runs after each task.
    gc.collect()
    gc.freeze()
    return shared
