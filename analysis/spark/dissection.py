"""The work of tasks: runs to rows, and the completion of rows after all runs are joined.

A task dissects a run as a process of `--jobs` does (`dissector.runs`), and returns encoded rows and
the description of the run, with the state at its borders. Connections are numbered within the run.
The driver joins the runs. Then tasks give the rows their connections and topic names.

If there is a single run, its task is the one process that has the whole capture.

Encoded rows are one row for Spark: `kind` is the name of a table, or `RESULT`; `run` is the number
of the run, and `content` an Arrow stream, or the pickled description.
"""

from __future__ import annotations

import mmap
import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.spark.options import Request
from analysis.spark.schemas import TOPIC_REPORTS, to_spark
from dissector.exchanges.topic_names import TopicNames
from dissector.pipeline import Pipeline
from dissector.runs import Plan
from dissector.runs.joined import Joined
from dissector.runs.plan import TimeRun
from dissector.runs.sources import TimeSource
from dissector.runs.worker import batch_of
from dissector.tables.finalizer import finalize_rows

RESULT = "result of a run"
NO_RUN: Final = -1
"""In place of the number of a run: the rows are complete."""
ENCODED_SCHEMA: Final = pa.schema(
    [("kind", pa.string()), ("run", pa.int32()), ("content", pa.binary())]
)
ENCODED_ROWS: Final = "kind string, run int, content binary"

_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
"""Spark caches encoded rows, and Java copies them."""


@dataclass(frozen=True, slots=True)
class Task:
    """The parameters of all tasks."""

    request: Request
    plan: Plan
    names: Sequence[str]
    """Names of the files in rows, by index."""
    paths: Sequence[str]
    """Their absolute paths, since tasks run in another folder."""
    secrets: Sequence[bytes] = ()
    """TLS key logs."""
    comments: Sequence[str] = ()
    """Comments on the files."""


@dataclass(frozen=True, slots=True)
class CaptureIndex:
    """What completes the rows of the runs."""

    joined: Mapping[int, Joined | None]
    """How the rows of a run are moved; None: the driver has read the run. Without an entry, they
    stay."""
    names: TopicNames = field(default_factory=TopicNames)


def dissect(task: Task, number: int) -> Iterator[pa.RecordBatch]:
    """Encoded rows of a run, and its description at the end."""
    request, names = task.request, dict(zip(task.paths, task.names, strict=True))

    def encoded(table: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        return encode_rows(table, renamed(filter_apis(request.apis, rows), names), number)

    if len(task.plan.runs) == 1:
        pipeline = Pipeline(_whole(task), ports=request.ports, memory=request.memory)
        pipeline.names.learn_from_comments(task.comments)
        for table, rows in pipeline.raw_rows(request.tables):
            if len(rows):
                yield encoded(table, rows)
        yield _encoded(RESULT, number, pickle.dumps(pipeline.names))
        return
    pipeline = Pipeline(None, ports=request.ports, memory=request.memory)
    make = partial(pipeline.new_stages, request.tables, task.paths)
    result, file = task.plan.dissect(number, make, task.paths)
    with file:
        stored = _mapped(file)
        for block in result.blocks:
            for each in block.rows:
                yield encoded(each.table, batch_of(each, stored))
            block.rows.clear()
    yield _encoded(RESULT, number, pickle.dumps(result, protocol=5))


def _whole(task: Task) -> TimeSource:
    """The source of the only run."""
    (run,) = task.plan.runs
    assert isinstance(run, TimeRun)
    return TimeSource([*task.paths], run, task.plan.block_bytes, None, [*task.secrets])


def _mapped(file: IO[bytes]) -> pa.Buffer:
    """The content of a file."""
    file.flush()
    size = file.seek(0, 2)
    return pa.py_buffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b"")


def renamed(rows: pa.RecordBatch, names: Mapping[str, str]) -> pa.RecordBatch:
    """The rows with the names of files in place of their paths."""
    if (at := rows.schema.get_field_index("capture")) < 0:
        return rows
    kinds = rows.column(at).cast(pa.string()).dictionary_encode()
    texts = pa.array([names.get(path, path) for path in kinds.dictionary.to_pylist()], pa.string())
    column = pa.DictionaryArray.from_arrays(kinds.indices, texts).cast(rows.schema.types[at])
    return rows.set_column(at, rows.schema.field(at), column)


def filter_apis(apis: Collection[str], rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of these APIs; all rows if `apis` is empty or the table has no APIs."""
    if not apis or "api" not in rows.schema.names:
        return rows
    return rows.filter(pc.is_in(rows.column("api"), pa.array(sorted(apis))))


def encode_rows(kind: str, rows: pa.RecordBatch, run: int = NO_RUN) -> pa.RecordBatch:
    """Encode rows for Spark."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as writer:
        writer.write_batch(rows)
    return _encoded(kind, run, sink.getvalue())


def _encoded(kind: str, run: int, content: pa.Buffer | bytes) -> pa.RecordBatch:
    data = pa.py_buffer(content)
    edges = pa.py_buffer(np.array([0, data.size], np.int32))
    column = pa.Array.from_buffers(pa.binary(), 1, [None, edges, data])
    return pa.RecordBatch.from_arrays(
        [pa.array([kind]), pa.array([run], pa.int32()), column], schema=ENCODED_SCHEMA
    )


def decode_rows(content: bytes | pa.Buffer) -> pa.Table:
    """The table in encoded rows."""
    return pa.ipc.open_stream(content).read_all()


def finalize(
    request: Request, table: str, index: CaptureIndex, encoded: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rows of a table in Spark's schema; for `topics`, those of `TOPIC_REPORTS`."""
    for batch in encoded:
        for run, content in zip(batch["run"].to_pylist(), batch["content"], strict=True):
            joined = index.joined.get(run, NO_RUN)
            if joined is None:
                continue
            for rows in decode_rows(content.as_buffer()).to_batches():
                moved = joined.moved(rows) if isinstance(joined, Joined) else rows
                if len(moved):
                    yield finalized(request, table, index.names, moved)


def finalized(
    request: Request, table: str, names: TopicNames, rows: pa.RecordBatch
) -> pa.RecordBatch:
    """Rows with topic names, in Spark's schema."""
    rows, _ = finalize_rows(table, rows, names, show_secrets=request.show_secrets)
    if table == "records":
        for name in () if request.values else ("key", "value", "headers"):
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, name, pa.nulls(len(rows), rows.schema.types[at]))
    is_report = table == "topics" and "connection_id" in rows.schema.names
    return to_spark(TOPIC_REPORTS if is_report else table, rows)
