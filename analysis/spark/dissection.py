"""The work of tasks: runs to rows, and the completion of rows after all runs are joined.

A task dissects a run as a process of `--jobs` does (`dissector.runs`). It writes the rows, and the
description of the run with the state at its borders, to files in the folder of the job
(`manifests`). Connections are numbered within the run. The driver joins the runs. Then a task gives
the rows their connections and topic names, writes Parquet, and the manifest of the run.

If there is a single run, its task is the one process that has the whole capture: it writes Parquet
at once. So do the tasks of log segments.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from analysis.spark.manifests import InputFile, JobFolder, Manifest
from analysis.spark.options import Request
from analysis.spark.schemas import to_spark
from analysis.spark.writing import RunFiles
from dissector.arrays import value
from dissector.errors import CaptureError
from dissector.exchanges.columns import with_column
from dissector.exchanges.topic_names import TopicNames
from dissector.pipeline import Pipeline
from dissector.problems import UNREADABLE, Problem
from dissector.runs import Plan
from dissector.runs.joined import Joined
from dissector.runs.rows import RowFile, StoredRows, batch_of
from dissector.runs.sources import RunSource
from dissector.runs.worker import RunResult
from dissector.tables.builder import TableRows
from dissector.tables.finalizer import Finalizer, NamedBatch
from dissector.tables.log_segments import segment_rows
from dissector.tables.topics import TopicChanges

Blocks: TypeAlias = list[list[StoredRows]]


@value
class Part:
    """A part of the input: a run, a log segment, or the end with the rows of the driver."""

    name: str
    """Name of its files; differs if the rows may differ."""
    inputs: Sequence[InputFile] = ()
    segment: str = ""


@value
class Task:
    """The parameters of all tasks."""

    request: Request
    plan: Plan
    parts: Sequence[Part]
    """The runs, the log segments, and the end."""
    job: JobFolder
    names: Sequence[str] = ()
    """Names of the files in rows, by index."""
    paths: Sequence[str] = ()
    """Their absolute paths, since tasks run in another folder."""
    secrets: Sequence[bytes] = ()
    """TLS key logs."""
    comments: Sequence[str] = ()
    """Comments on the files."""
    compression: str | None = None
    """Of rows in files of the job."""

    @property
    def is_whole(self) -> bool:
        """Whether a single run is the whole capture."""
        return len(self.plan.runs) == 1


@value
class Completion:
    """What completes the rows of a run; the driver writes it."""

    file: str
    """Name of the file with the rows of the run."""
    own: Blocks
    """The rows of the driver."""
    joined: Joined
    """Without rows."""
    unresolved: Collection[str]
    """Topic ids in the rows."""


def packed(value: object) -> pa.Buffer:
    """A value for a file of the job."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as stream:
        pickle.dump(value, stream, protocol=5)
    return sink.getvalue()


def unpacked(content: bytes) -> Any:
    """The value in a file of the job."""
    with pa.CompressedInputStream(pa.BufferReader(content), "lz4") as stream:
        return pickle.load(stream)


def dissect(task: Task, number: int) -> None:
    """Dissect a run; write its rows and its result."""
    name, job = task.parts[number].name, task.job
    pipeline = Pipeline(None, ports=task.request.ports, memory=task.request.memory)
    pipeline.learn_from_comments(task.comments)
    make = partial(pipeline.stages.of_run, task.request.tables, task.paths)
    file_name = f"{name}.{uuid4().hex}.rows"  # another attempt may be running
    with job.create(file_name) as file:
        result = task.plan.dissect(number, make, task.paths, RowFile(file, task.compression))
    check_files(result.file_problems)
    job.write(f"{name}.result", packed((file_name, result)))


def check_files(problems: Iterable[Problem]) -> None:
    """Raises CaptureError if a file cannot be read any more, as after it was removed. A manifest
    would otherwise report a run as complete whose rows are missing."""
    for problem in problems:
        if problem.kind == UNREADABLE:
            raise CaptureError(problem.detail)


def result_of(task: Task, number: int) -> tuple[str, RunResult]:
    """The name of the file with the rows of a run, and its result.

    Raises DissectorError if the file with the result is damaged.
    """
    name = f"{task.parts[number].name}.result"
    content = task.job.read(name)
    try:
        result: tuple[str, RunResult] = unpacked(content)
    except (EOFError, OSError, pickle.UnpicklingError) as error:
        raise task.job.damaged(name) from error
    return result


def finalize(task: Task, number: int, names: TopicNames) -> None:
    """Write the Parquet files of a part, and its manifest. `names`: all names of topics."""
    part, job = task.parts[number], task.job
    if job.has(f"{part.name}.json"):  # an earlier attempt of this task
        return
    files_by_path = dict(zip(task.paths, task.names, strict=True))
    waiting: list[str] = []
    complete = _complete_rows(task, number, names, waiting)
    write_part(
        task, part, ((table, renamed(rows, files_by_path)) for table, rows in complete), waiting
    )
    if not waiting:
        job.remove_unfinished(part.name)


def write_part(
    task: Task, part: Part, complete: Iterable[NamedBatch], waiting: Sequence[str] = ()
) -> None:
    """Write complete rows of a part, and its manifest. `waiting`: see `Manifest`; it may grow while
    the rows are taken."""
    with RunFiles(task.job.output, part.name) as files:
        for table, rows in complete:
            if table in task.request.tables:
                files.write(table, in_spark(task.request, table, rows))
        written = files.finish()
    task.job.write(f"{part.name}.json", Manifest(part.inputs, written, waiting).encoded())


def _complete_rows(
    task: Task, number: int, names: TopicNames, waiting: list[str]
) -> Iterator[NamedBatch]:
    """The complete rows of a part, apart from the table `topics` of a run among others.

    `waiting`: gets the topic ids without names.
    """
    request, name = task.request, task.parts[number].name
    if number < len(task.plan.runs) and task.is_whole:
        (run,) = task.plan.runs
        source = RunSource(task.paths, run, task.plan.block_bytes, secrets=[*task.secrets])
        pipeline = Pipeline(
            source, ports=request.ports, memory=request.memory, show_secrets=request.show_secrets
        )
        pipeline.learn_from_comments(task.comments)
        yield from pipeline.stream(request.tables)
        check_files(pipeline.file_problems)
        return
    finalizer = Finalizer(names, hold=False, show_secrets=request.show_secrets)
    if number >= len(task.plan.runs):
        path = task.parts[number].segment
        for table, rows in segment_rows(path, request.tables, lambda count: None):
            yield from finalizer.add(table, rows)
        return
    changes, topics = TopicChanges(), list[pa.RecordBatch]()
    completion: Completion = unpacked(task.job.read(f"{name}.join"))
    for table, rows in _joined_rows(task.job, name, completion):
        if table == "topics":
            topics.append(changes.changes(rows))
        else:
            yield from finalizer.add(table, rows)
    if topics:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, topics[0].schema) as writer:
            for batch in topics:
                writer.write_batch(batch)
        task.job.write(f"{name}.topics", sink.getvalue())
    waiting += sorted({*completion.unresolved} - names.names.keys())


def _joined_rows(job: JobFolder, name: str, completion: Completion) -> Iterator[TableRows]:
    stored, own = job.content(completion.file), job.content(f"{name}.own")
    own_rows = (
        [TableRows(each.table, batch_of(each, own)) for each in block] for block in completion.own
    )
    yield from replace(completion.joined, own=own_rows).rows(stored)


def renamed(rows: pa.RecordBatch, names: Mapping[str, str]) -> pa.RecordBatch:
    """The rows with the names of files in place of their paths."""
    if "capture" not in rows.schema.names:
        return rows
    column = rows["capture"]
    kinds = column.cast(pa.string()).dictionary_encode()
    texts = pa.array([names.get(path, path) for path in kinds.dictionary.to_pylist()], pa.string())
    moved = pa.DictionaryArray.from_arrays(kinds.indices, texts).cast(column.type)
    return with_column(rows, "capture", moved)


def filter_apis(apis: Collection[str], rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of these APIs; all rows if `apis` is empty or the table has no APIs."""
    if not apis or "api" not in rows.schema.names:
        return rows
    return rows.filter(pc.is_in(rows.column("api"), pa.array(sorted(apis))))


def in_spark(request: Request, table: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The requested ones of complete rows, in Spark's schema."""
    rows = filter_apis(request.apis, rows)
    if table == "records":
        for name in () if request.values else ("key", "value", "headers"):
            rows = with_column(rows, name, pa.nulls(len(rows), rows[name].type))
    return to_spark(table, rows)
