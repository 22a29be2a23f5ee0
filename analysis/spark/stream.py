"""Streams: ``spark.readStream.format("kafka_capture")`` over a folder with rotated captures.

A batch is the data written to the files since the last batch. Between batches, each shard keeps its
state (open connections, pending requests, incomplete messages) in the folder of option `state`, by
batch. State of all shards (files, connection numbers, topic names) is next to it. A batch depends
only on the state before it and on bytes that do not change, and its rows are written before Spark
gets them. So when Spark requests a batch again, after a failure or a restart, it gets the same
rows. When a batch is committed, older state is deleted.

Nothing waits longer than the watermark. When the capture has advanced by it, a pending request is
unanswered, and a closed connection is forgotten. When no file has grown for that time, all pending
data is emitted, as at the end of a capture.

Rows that wait for a topic name, and files that end within a packet, wait no longer either: see
`pending_names` and `file_progress`.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from analysis.spark import dissection, file_offsets, packets, pending_names, plan
from analysis.spark.dissection import EMPTY_INDEX, CaptureIndex, Checkpoint, Task
from analysis.spark.file_offsets import START, Offset
from analysis.spark.file_progress import FileProgress
from analysis.spark.options import Request, parse
from analysis.spark.plan_server import PlanClient, rows_of
from analysis.spark.session import local
from analysis.spark.splits import Broker
from dissector.errors import DissectorError
from dissector.streams.limits import SECOND


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader that Spark calls."""

    def __init__(
        self, options: dict[str, str], schema: StructType, plan_client: PlanClient
    ) -> None:
        """Raises DissectorError for missing options."""
        self._options = options
        self._request = parse(options)
        self._schema = schema
        self._plan_client = plan_client
        self._target: Offset | None = None
        _folder(self._request, START)

    def initialOffset(self) -> Offset:  # noqa: N802
        return START

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._latest(START)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        if self._target is None:
            return self._latest(start)
        new = {**start["files"]} | self._target["files"]
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
            yield from rows_of(partition.value, self._schema)

    def commit(self, end: Offset) -> None:
        folder = _folder(self._request, end)
        for older in folder.parent.glob("batch-*"):
            if older.name[: -len("-") - _DIGEST] < folder.name[: -len("-") - _DIGEST]:
                shutil.rmtree(older, ignore_errors=True)


_DIGEST: Final = 16


def _folder(request: Request, end: Mapping[str, Any]) -> Path:
    """The folder with rows and state of the batch that ends at this offset."""
    if request.state is None:
        raise DissectorError(
            "a stream needs the option state: a folder that outlives the query, like its checkpoint"
        )
    digest = hashlib.sha256(json.dumps(end, sort_keys=True).encode()).hexdigest()
    return Path(request.state).absolute() / f"batch-{end['batch']:09}-{digest[:_DIGEST]}"


@dataclass(slots=True)
class _State:
    """State that all shards share."""

    shards: int
    progress: FileProgress = field(default_factory=FileProgress)
    brokers: set[Broker] = field(default_factory=set)
    secrets: list[bytes] = field(default_factory=list)
    index: CaptureIndex = EMPTY_INDEX


def batch(spark: SparkSession, request: Request, offsets: tuple[Any, ...]) -> str:
    """Write the rows of a batch between two offsets; returns the folder. Raises DissectorError."""
    start, end = offsets
    before, after = _folder(request, start), _folder(request, end)
    if not (after / "done").exists():
        shutil.rmtree(after, ignore_errors=True)
        after.mkdir(parents=True)
        _run(spark, request, start, end, before, after)
        (after / "done").touch()
    return str(after / "rows")


def _run(
    spark: SparkSession, request: Request, start: Offset, end: Offset, before: Path, after: Path
) -> None:
    initial = _State(request.shards or plan.parallelism(spark))
    state = _load(before) if start["batch"] else initial
    progress = state.progress
    splits = progress.new_splits(end, file_offsets.files(request.paths))
    scans = plan.scan_splits(spark, [*splits.values()])
    problems = [*progress.read(dict(zip(splits, scans, strict=True)))]
    problems += progress.abandoned(end, request.watermark)
    new = {text for scan in scans for text in scan.secrets} | {*plan.keylog(request)}
    state.secrets += sorted(new.difference(state.secrets))
    state.brokers |= {broker for scan in scans for broker in scan.brokers}
    checkpoint = Checkpoint(
        "" if start["ended"] or not start["batch"] else str(before), str(after), progress.latest,
        end["ended"],
    )  # fmt: skip
    task = Task(request, progress.captures, frozenset(state.brokers), state.secrets, checkpoint)
    bundles = plan.read_bundles(spark, request, scans, state.shards)
    bundles = bundles.unionAll(_empty_bundles(spark, state))
    with plan.dissect(spark, task, bundles, state.shards) as (encoded, metadata):
        state.index = dissection.merge_index(metadata, state.index)
        name = request.tables[0]
        names = state.index.names
        missing = () if end["ended"] else names.unresolved - names.names.keys()
        since = progress.latest - request.watermark * SECOND
        encoded = encoded.filter(encoded.kind == name)
        encoded = pending_names.resolve(spark, encoded, missing, since, before, after)
        rows = plan.finalized(spark, task, name, encoded, state.index)
        if name == "topics":
            rows = _topics(spark, rows, before, after)
        if name == "problems":
            rows = rows.unionAll(plan.as_rows(spark, problems))
        rows.write.parquet(local(after / "rows"))
    (after / "state").write_bytes(pickle.dumps(state))


def _load(folder: Path) -> _State:
    try:
        state: _State = pickle.loads((folder / "state").read_bytes())
    except OSError as error:
        raise DissectorError(
            f"{folder.parent} lacks the state of the checkpoint ({folder.name})"
        ) from error
    return state


def _empty_bundles(spark: SparkSession, state: _State) -> DataFrame:
    """An empty bundle for each shard, so that time advances in all of them."""

    def empty(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            yield from map(packets.empty, rows.column("id").to_pylist())

    return spark.range(0, state.shards, 1, 1).mapInArrow(empty, packets.SPARK_SCHEMA)


def _topics(spark: SparkSession, rows: DataFrame, before: Path, after: Path) -> DataFrame:
    """Changes of topics, compared with the reports of earlier batches."""
    path = before / "topics"
    earlier = spark.read.schema(rows.schema).parquet(local(path)) if path.exists() else None
    reports = rows if earlier is None else rows.unionAll(earlier)
    plan.latest_reports(reports).write.parquet(local(after / "topics"))
    changes = plan.changes(reports)
    return changes if earlier is None else changes.exceptAll(earlier.select(changes.columns))
