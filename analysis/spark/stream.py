"""Streams: ``spark.readStream.format("kafka_capture")`` over a folder that a capture rotates into.

A batch is what was written to the files since the batch before. Between batches, each share keeps
its state (open connections, requests that wait, bytes that are no whole message yet) in the folder
that the option `state` names, by batch; what all shares know together (files, numbers of
connections, names of topics) lies beside it. A batch is made of the state before it and of bytes
that do not change, and its rows are written before Spark has any of them: where Spark asks for a
batch again, after a failure or a restart, it gets the same rows. When a batch is done, what lies
before it is deleted.

Nothing waits longer than the watermark. A request is unanswered when the capture has gone on for so
long, and a connection that is over is forgotten then. When nothing at all was written for so long,
everything that waits is given out, as at the end of a capture.

Rows whose topic is named by an id wait for its name, and a file that ends within a packet for the
rest of it, for no longer either: see `late` and `places`.
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

from analysis.spark import dissection, follow, late, packets, plan
from analysis.spark.dissection import NOTHING, Knowledge, Passage, Task
from analysis.spark.follow import BEGINNING, Offset
from analysis.spark.options import Request, parse
from analysis.spark.places import Places
from analysis.spark.session import local
from analysis.spark.source import Desk, rows_of
from analysis.spark.splits import Broker
from dissector.errors import DissectorError
from dissector.streams.limits import SECOND


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What Spark sees of a stream."""

    def __init__(self, options: dict[str, str], schema: StructType, desk: Desk) -> None:
        """Raises DissectorError for options that are missing."""
        self._options = options
        self._request = parse(options)
        self._schema = schema
        self._desk = desk
        self._target: Offset | None = None
        _folder(self._request, BEGINNING)

    def initialOffset(self) -> Offset:  # noqa: N802
        return BEGINNING

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._latest(BEGINNING)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        if self._target is None:
            return self._latest(start)
        new = {**start["files"]} | self._target["files"]
        if new == start["files"] and start["ended"] == self._target["ended"]:
            return start
        return self._target | {"batch": start["batch"] + 1, "files": new}

    def _latest(self, start: Offset) -> Offset:
        return follow.latest(start, self._request.paths, self._request.watermark)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        if start == end:
            return []
        return self._desk.ask(batch, self._options, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:
            yield from rows_of(partition.value, self._schema)

    def commit(self, end: Offset) -> None:
        folder = _folder(self._request, end)
        for each in folder.parent.glob("batch-*"):
            if each.name[: -len("-") - _DIGEST] < folder.name[: -len("-") - _DIGEST]:
                shutil.rmtree(each, ignore_errors=True)


_DIGEST: Final = 16


def _folder(request: Request, end: Mapping[str, Any]) -> Path:
    """Where the batch that ends there has its rows and its state."""
    if request.state is None:
        raise DissectorError(
            "a stream needs the option state: a folder that outlives the query, as its checkpoint"
        )
    digest = hashlib.sha256(json.dumps(end, sort_keys=True).encode()).hexdigest()
    return Path(request.state).absolute() / f"batch-{end['batch']:09}-{digest[:_DIGEST]}"


@dataclass(slots=True)
class _State:
    """What all shares know together."""

    shares: int
    places: Places = field(default_factory=Places)
    brokers: set[Broker] = field(default_factory=set)
    secrets: list[bytes] = field(default_factory=list)
    known: Knowledge = NOTHING


def batch(spark: SparkSession, request: Request, more: tuple[Any, ...]) -> str:
    """The rows of the batch between two offsets, as files. Raises DissectorError."""
    start, end = more
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
    fresh = _State(request.shares or plan.parallelism(spark))
    state = _load(before) if start["batch"] else fresh
    places = state.places
    items = places.unread(end, follow.files(request.paths))
    looks = plan.looks_at(spark, [*items.values()])
    problems = [*places.read(dict(zip(items, looks, strict=True)))]
    problems += places.given_up(end, request.watermark)
    new = {text for each in looks for text in each.secrets} | {*plan.keylog(request)}
    state.secrets += sorted(new.difference(state.secrets))
    state.brokers |= {broker for each in looks for broker in each.brokers}
    passage = Passage(
        "" if start["ended"] or not start["batch"] else str(before), str(after), places.latest,
        end["ended"],
    )  # fmt: skip
    task = Task(request, places.captures, frozenset(state.brokers), state.secrets, passage)
    bundles = plan.bundled(spark, request, looks, state.shares).unionAll(_each_share(spark, state))
    with plan.dissected(spark, task, bundles, state.shares) as (parcels, told):
        state.known = dissection.knowledge(told, state.known)
        name = request.tables[0]
        names = state.known.names
        lacking = () if end["ended"] else names.unresolved - names.names.keys()
        since = places.latest - request.watermark * SECOND
        parcels = parcels.filter(parcels.kind == name)
        parcels = late.due(spark, parcels, lacking, since, before, after)
        rows = plan.settled(spark, task, name, parcels, state.known)
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
            f"{folder.parent} has not the state that the checkpoint goes on from ({folder.name})"
        ) from error
    return state


def _each_share(spark: SparkSession, state: _State) -> DataFrame:
    """A bundle without packets for each share: time goes on in all of them."""

    def empty(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for each in batches:
            yield from map(packets.empty, each.column("id").to_pylist())

    return spark.range(0, state.shares, 1, 1).mapInArrow(empty, packets.SPARK_SCHEMA)


def _topics(spark: SparkSession, told: DataFrame, before: Path, after: Path) -> DataFrame:
    """What is new of topics, given what was told in the batches before."""
    path = before / "topics"
    known = spark.read.schema(told.schema).parquet(local(path)) if path.exists() else None
    both = told if known is None else told.unionAll(known)
    plan.newest(both).write.parquet(local(after / "topics"))
    fresh = plan.news(both)
    return fresh if known is None else fresh.exceptAll(known.select(fresh.columns))
