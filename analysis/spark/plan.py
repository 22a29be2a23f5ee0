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

import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark import Broadcast, StorageLevel
from pyspark.sql import DataFrame, SparkSession

from analysis.spark import dissection, packets, splits
from analysis.spark.dissection import CONNECTIONS, NAMES, SPARK_PARCEL, Knowledge, Task
from analysis.spark.options import Request
from analysis.spark.schemas import spark_schema, to_spark
from analysis.spark.splits import Broker, Look, Split
from dissector import rows
from dissector.errors import CaptureError
from dissector.keyfiles import KeyFiles
from dissector.packets.paths import STANDARD_INPUT, find

SHARE_BYTES = 256 << 20
"""Bytes of capture, about, that a task dissects."""

TASKS = 4
"""Tasks of splits for each core, so that unequal ones even out."""
MOST_SPLITS = 16
"""Splits of a task, about, at most: what is lost when one fails."""

Batches: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_BYTES = pa.schema([("content", pa.binary())])


@contextmanager
def tables(spark: SparkSession, request: Request) -> Iterator[dict[str, DataFrame]]:
    """The tables by name, to be written or collected while their parcels are kept.

    Raises CaptureError where nothing can be read.
    """
    files = find(request.paths)
    if STANDARD_INPUT in files:
        raise CaptureError("Spark reads files, not standard input")
    here = [str(Path(path).absolute()) for path in files]  # tasks run in another folder
    looks = _looks(spark, splits.guess(here, request.split_bytes))
    if not any(found.packets for found in looks):
        _say_why_not(looks)
    brokers = frozenset[Broker]().union(*(found.brokers for found in looks))
    secrets = [*_keylog(request), *(text for found in looks for text in found.secrets)]
    task = Task(request, files, brokers, secrets)
    since, until = request.since, request.until
    size = sum(found.size for found in looks)
    shares = request.shares or max(_parallelism(spark), math.ceil(size / SHARE_BYTES))

    def read(split: Split) -> Iterator[pa.RecordBatch]:
        return splits.bundles(split, shares, since, until)

    parcels = (
        _each(spark, _within(request, looks), read, packets.SPARK_SCHEMA)
        .repartitionById(shares, "share")
        .sortWithinPartitions("position")
        .mapInArrow(lambda batches: dissection.dissect(task, batches), SPARK_PARCEL)
        .persist(StorageLevel.MEMORY_AND_DISK)
    )
    told = parcels.filter(parcels.kind.isin(CONNECTIONS, NAMES)).collect()
    known = spark.sparkContext.broadcast(
        dissection.knowledge((row.kind, bytes(row.content)) for row in told)
    )

    found = {
        name: parcels.filter(parcels.kind == name)
        .select("content")
        .mapInArrow(_settling(task, name, known), spark_schema(name))
        for name in request.tables
    }
    if "problems" in found:
        seen = rows.problems([problem for each in looks for problem in each.problems_in(files)])
        part = pa.Table.from_batches([to_spark("problems", seen)])
        found["problems"] = found["problems"].unionAll(spark.createDataFrame(part))
    try:
        yield found
    finally:
        parcels.unpersist()
        known.unpersist()


def _keylog(request: Request) -> Iterator[bytes]:
    """The text of the key log. Raises CaptureError, or DissectorError where it is of no use."""
    if request.keylog is not None:
        yield from KeyFiles([], request.keylog).new()


def _settling(task: Task, name: str, known: Broadcast[Knowledge]) -> Batches:
    """What makes rows of one table of their parcels."""

    def settle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        contents = (each.as_py() for batch in batches for each in batch.column("content"))
        yield from dissection.settle(task, name, known.value, contents)

    return settle


def _within(request: Request, looks: Sequence[Look]) -> list[Split]:
    """The splits that may hold packets of the time that is asked for."""
    return [
        each.split
        for each in looks
        if each.latest >= request.since and each.earliest < request.until
    ]


def _say_why_not(looks: Sequence[Look]) -> None:
    """Raise, where nothing at all could be read."""
    problems = [problem for each in looks for problem in each.problems]
    unreadable = [each.detail for each in problems if each.kind == "unreadable_file"]
    if len(unreadable) == len(looks):
        raise CaptureError("; ".join(unreadable) or "no capture was found")


def _looks(spark: SparkSession, guesses: Sequence[Split]) -> list[Look]:
    """First looks at all splits, in order; at files that cannot be split, as one."""

    def look(split: Split) -> Iterator[pa.RecordBatch]:
        found = pickle.dumps(splits.look(split))
        yield pa.RecordBatch.from_arrays([pa.array([found], pa.binary())], schema=_BYTES)

    found: list[Look] = []
    while guesses:  # what fails the proof comes again, as files that are one split each
        seen = _each(spark, guesses, look, "content binary").collect()
        looks = [pickle.loads(bytes(row.content)) for row in seen]
        proved, guesses = splits.settle(looks)
        ready = frozenset(proved)
        found += [each for each in looks if each.split in ready]
    return sorted(found, key=lambda each: (each.split.capture, each.split.packets_before))


def _each(
    spark: SparkSession,
    items: Sequence[Split],
    work: Callable[[Split], Iterator[pa.RecordBatch]],
    schema: Any,
) -> DataFrame:
    """What `work` gives for each of the items, some of them in a task."""
    tasks = min(len(items), max(TASKS * _parallelism(spark), len(items) // MOST_SPLITS))
    shared = spark.sparkContext.broadcast(list(items))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column("id").to_pylist():
                yield from work(shared.value[index])

    return spark.range(0, len(items), 1, max(tasks, 1)).mapInArrow(run, schema)


def _parallelism(spark: SparkSession) -> int:
    return int(spark.sparkContext.defaultParallelism)
