"""Streams: ``spark.readStream.format("kafka_capture")`` over a folder with rotated captures.

A batch is the data written to the files since the last batch. The driver dissects it, in one
process, and executors read the rows. Between batches, the state (files, open connections, pending
requests, incomplete messages) is in the folder of option `state`, by batch. A batch depends only on
the state before it and on bytes that do not change, and its rows are written before Spark gets
them. So when Spark requests a batch again, after a failure or a restart, it gets the same rows.
When a batch is committed, older state is deleted.

Nothing waits longer than the watermark. When the capture has advanced by it, a pending request is
unanswered, and a closed connection is forgotten. When no file has grown for that time, all pending
data is emitted, as at the end of a capture.

One process keeps rows that name a topic by an unknown id until the end of the capture. A stream
keeps them until the name is known, the capture has advanced by the watermark, or the stream ends.
Then the id is emitted. Files that end within a packet wait no longer either: see `growing_files`.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import zstandard
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from analysis.spark import dissection, file_offsets, plan
from analysis.spark.file_offsets import START, Offset
from analysis.spark.growing_files import GrowingFiles
from analysis.spark.manifests import SHARED
from analysis.spark.options import Request, parse
from analysis.spark.output import digest
from analysis.spark.plan_server import PlanClient, rows_of
from analysis.spark.schemas import arrow_schema, to_spark
from dissector.errors import DissectorError, reason
from dissector.exchanges.topic_names import TopicNames
from dissector.frame_reader import Broker
from dissector.pipeline import Pipeline
from dissector.streams.limits import SECOND
from dissector.tables.finalizer import finalize_rows, names_topic
from dissector.tables.problems import problem_rows
from dissector.tables.schema import TIMES
from dissector.tables.topics import TopicChanges


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader that Spark calls."""

    def __init__(
        self, options: dict[str, str], schema: StructType, plan_client: PlanClient
    ) -> None:
        """Raises DissectorError for missing options, and for those that a stream does not have."""
        if unused := [name for name in _UNUSED if name in map(str.lower, options)]:
            raise DissectorError(f"a stream has no option {unused[0]}")
        self._options = options
        self._request = parse(options)
        self._schema = schema
        self._plan_client = plan_client
        self._target: Offset | None = None
        _folder(self._request, START)
        file_offsets.check(self._request.paths)

    def initialOffset(self) -> Offset:  # noqa: N802
        return START

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._latest(START)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        if self._target is None:
            return self._latest(start)
        new = file_offsets.with_missing(start, self._target["files"])
        if new == start["files"] and start["ended"] == self._target["ended"]:
            return start
        return self._target | {"batch": start["batch"] + 1, "files": new}

    def _latest(self, start: Offset) -> Offset:
        return file_offsets.latest(start, self._request.paths, self._request.watermark)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        if start == end:
            return []
        return self._plan_client.request(batch, self._options, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:
            if not Path(partition.value).exists():
                raise DissectorError(
                    f"{partition.value} on {socket.gethostname()} is not the driver's folder: "
                    f"{SHARED}"
                )
            yield from rows_of(partition.value, self._schema)

    def commit(self, end: Offset) -> None:
        folder = _folder(self._request, end)
        for older in folder.parent.glob("batch-*"):
            if older.name.rpartition("-")[0] < folder.name.rpartition("-")[0]:
                shutil.rmtree(older, ignore_errors=True)


_UNUSED: Final = ("since", "until", "tables", "plan_id", "result_dir")
"""Options of the data source that a stream does not have."""
_DAMAGED: Final = (
    *(zstandard.ZstdError, pickle.UnpicklingError, EOFError, ValueError),
    *(AttributeError, ImportError, IndexError, KeyError, TypeError),
)
"""Errors that a state raises if it is damaged, or its classes have changed."""


def _folder(request: Request, end: Mapping[str, Any]) -> Path:
    """The folder with rows and state of the batch that ends at this offset."""
    if request.state is None:
        raise DissectorError(
            "a stream needs the option state: a folder that outlives the query, like its checkpoint"
        )
    offset = hashlib.sha256(json.dumps(end, sort_keys=True).encode()).hexdigest()
    name = f"batch-{end['batch']:09}-{offset[:16]}"
    return Path(request.state, request.tables[0], name)


@dataclass(slots=True)
class _State:
    """What a stream keeps between two batches."""

    source: GrowingFiles
    pipeline: Pipeline | None = None
    """None at the start, and after an end."""
    names: TopicNames = field(default_factory=TopicNames)
    brokers: set[Broker] = field(default_factory=set)
    connections: int = 0
    """Connections before those of `pipeline`."""
    topics: TopicChanges = field(default_factory=TopicChanges)
    pending: list[pa.RecordBatch] = field(default_factory=list)
    """Rows that wait for topic names."""


def batch(spark: SparkSession, request: Request, offsets: tuple[Any, ...]) -> str:
    """Write the rows of a batch between two offsets; returns the folder. Raises DissectorError."""
    start, end = offsets
    after = _folder(request, end)
    done, options = after / "done", digest(request)
    try:
        if not done.exists() or done.read_text() != options:  # of a query with other options
            shutil.rmtree(after, ignore_errors=True)
            _write(request, start, end)
            done.write_text(options)
    except OSError as error:
        raise DissectorError(f"cannot write {after}: {reason(error)}") from error
    return str(after / "rows")


def _write(request: Request, start: Offset, end: Offset) -> None:
    """Write the rows of a batch, and the state after it. Raises OSError and DissectorError."""
    before, after = _folder(request, start), _folder(request, end)
    (after / "rows").mkdir(parents=True)
    files = GrowingFiles(plan.block_bytes(request), expects_secrets=request.keylog is not None)
    state = _load(before) if start["batch"] else _State(files)
    schema = arrow_schema(request.tables[0])
    with pa.parquet.ParquetWriter(after / "rows" / "part.parquet", schema) as file:
        for rows in _rows(request, state, end):
            file.write_batch(rows)
    (after / "state").write_bytes(zstandard.compress(pickle.dumps(state), 1))


def _rows(request: Request, state: _State, end: Offset) -> Iterator[pa.RecordBatch]:
    """The rows of the packets up to an offset, in Spark's schema."""
    (name,), source = request.tables, state.source
    source.take(end, file_offsets.files(request.paths))
    source.secrets += _new_lines(source.secrets, plan.keylog(request))
    pipeline = state.pipeline = state.pipeline or _pipeline(request, state)
    pending, state.pending = state.pending, []
    for table, rows in pipeline.raw_rows([name], goes_on=not end["ended"]):
        rows = dissection.filter_apis(request.apis, rows)
        if table == "topics":
            rows = state.topics.changes(rows)
        if table == name and len(rows):
            pending.append(rows)
    names = pipeline.names
    missing = () if end["ended"] else names.missing
    since = source.latest - request.watermark * SECOND
    for rows in pending:
        ready, waiting = _divided(rows, missing, since)
        if len(ready):
            ready, _ = finalize_rows(name, ready, names, show_secrets=request.show_secrets)
            yield dissection.in_spark(request, name, ready)
        if len(waiting):
            state.pending.append(waiting)
    problems = [*source.abandoned(end, request.watermark)]
    if name == "problems" and problems:
        yield to_spark(name, problem_rows(problems))
    if end["ended"]:
        state.names, state.brokers = names, pipeline.brokers
        state.connections, state.pipeline = pipeline.connections, None


def _divided(
    rows: pa.RecordBatch, missing: Collection[str], since: int
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The rows that need not wait, and the others.

    `missing`: ids without a name. `since`: only rows from this time on wait; ns.
    """
    if not missing:
        return rows, rows.slice(0, 0)
    times = [rows.column(name).cast(pa.int64()) for name in TIMES if name in rows.schema.names]
    waits = names_topic(rows, missing) & (np.asarray(pc.coalesce(*times).fill_null(0)) >= since)
    return rows.filter(pa.array(~waits)), rows.filter(pa.array(waits))


def _new_lines(secrets: Sequence[bytes], texts: Iterable[bytes]) -> list[bytes]:
    """The lines of a key log that are not among the secrets of earlier batches."""
    known = {line for text in secrets for line in text.splitlines()}
    lines = (line for text in texts for line in text.splitlines(keepends=True))
    new = b"".join(line for line in lines if line.rstrip(b"\r\n") not in known)
    return [new] if new else []


def _pipeline(request: Request, state: _State) -> Pipeline:
    """A new pipeline, which begins after the last end."""
    wait = request.watermark * SECOND
    pipeline = Pipeline(
        state.source, ports=request.ports, brokers=state.brokers, request_wait=wait,
        forget_after=wait, memory=request.memory, first_connection=state.connections,
    )  # fmt: skip
    pipeline.names.names |= state.names.names
    return pipeline


def _load(folder: Path) -> _State:
    try:
        content = (folder / "state").read_bytes()
    except OSError as error:
        raise DissectorError(
            f"{folder.parent} lacks the state of the checkpoint ({folder.name})"
        ) from error
    try:
        state: _State = pickle.loads(zstandard.decompress(content))
    except _DAMAGED as error:
        raise DissectorError(
            f"{folder}/state cannot be read: it is damaged, or of another version of "
            "kafka-dissector; start a new query, with new folders for checkpoint and state"
        ) from error
    return state
