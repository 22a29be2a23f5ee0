"""Dissection: the packets of a shard, in order of time, to rows of tables.

A task has all packets of its connections, and dissects them as one process dissects a capture. Some
values depend on all tasks and are added afterwards: a connection's number is the rank of its first
packet among those of all connections, and another task may have learned a topic's name. So a task
returns encoded rows, in which a connection is identified by its first packet, together with the
positions of these packets and the topic names that it learned.

Encoded rows are one row for Spark: `kind` is the name of a table, `CONNECTIONS`, `NAMES` or
`PRUNE_MISMATCH`, and `content` is an Arrow stream.
"""

from __future__ import annotations

import pickle
import socket
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import zstandard

from analysis.spark import pruning
from analysis.spark.options import Request
from analysis.spark.packets import BLOCK_BYTES, BundleSource, identity
from analysis.spark.schemas import TOPIC_REPORTS, to_spark
from analysis.spark.splits import Broker
from analysis.spark.writing import SHARED
from dissector.errors import DissectorError
from dissector.exchanges.topic_names import TopicNames
from dissector.packets.block import Int64
from dissector.pipeline import Pipeline
from dissector.streams.limits import SECOND
from dissector.tables.finalizer import finalize_rows

CONNECTIONS, NAMES = "connections of a task", "names of a task"
PRUNE_MISMATCH = "prune mismatch"
ENCODED_SCHEMA: Final = pa.schema([("kind", pa.string()), ("content", pa.binary())])
ENCODED_ROWS: Final = "kind string, content binary"

_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
"""Spark caches encoded rows, and Java copies them."""
_BLOCKS: Final = 8
"""A block may take this fraction of the memory, as in `dissector.pipeline`."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The folders of the shards' state before and after a batch of a stream."""

    before: str
    """Folder to read from; empty for the first batch."""
    after: str
    """Folder to write to."""
    until: int
    """The time that the capture has reached; ns."""
    ends: bool
    """Whether the stream ends, so that pending data is emitted."""


@dataclass(frozen=True, slots=True)
class Task:
    """The parameters of all tasks of a dissection."""

    request: Request
    captures: Sequence[str]
    """Names of the files, by index."""
    brokers: frozenset[Broker]
    """Broker addresses, from the scan."""
    secrets: Sequence[bytes]
    """TLS key logs of all captures."""
    checkpoint: Checkpoint | None = None
    """None for a batch query, which has the whole capture."""
    is_pruned: bool = False
    """Whether packets may be without payload; see `pruning`."""


def dissect(task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Encoded rows from the bundles of a shard."""
    first = next(batches, None)
    if first is None:
        return
    number, checkpoint = first.column("shard")[0].as_py(), task.checkpoint
    if checkpoint and not Path(checkpoint.after).is_dir():
        raise DissectorError(
            f"{checkpoint.after} on {socket.gethostname()} is not the driver's folder: {SHARED}"
        )
    shard = (_restored(checkpoint, number) if checkpoint else None) or Shard(task)
    yield from shard.encoded(task, chain([first], batches))
    if checkpoint and not checkpoint.ends:
        _save(shard, Path(checkpoint.after, f"shard-{number}"))


def _restored(checkpoint: Checkpoint, number: int) -> Shard | None:
    path = Path(checkpoint.before, f"shard-{number}")
    if not checkpoint.before or not path.exists():
        return None
    shard: Shard = pickle.loads(zstandard.decompress(path.read_bytes()))
    return shard


def _save(shard: Shard, path: Path) -> None:
    """Write a file atomically, because a task may run twice."""
    part = path.with_name(f"{path.name}.{uuid4().hex}")
    part.write_bytes(zstandard.compress(pickle.dumps(shard), 1))
    part.replace(path)


class Shard:
    """The state of the connections of a shard."""

    def __init__(self, task: Task) -> None:
        memory = task.request.memory
        self._source = BundleSource(min(BLOCK_BYTES, memory // _BLOCKS))
        wait = task.request.watermark * SECOND
        self._pipeline = Pipeline(
            self._source,
            ports=task.request.ports,
            request_wait=wait,
            forget_after=wait if task.checkpoint else None,
            memory=memory,
        )
        self._identities = np.zeros(0, np.int64)
        """Identity of the first packet of each connection, by number."""

    def encoded(self, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process further bundles; yields encoded rows."""
        checkpoint = task.checkpoint
        self._pipeline.learn_brokers(task.brokers)
        self._source.names[:] = task.captures
        secrets = self._source.secrets
        secrets += [text for text in task.secrets if text not in secrets]
        self._source.take(batches, checkpoint.until if checkpoint else None)
        count = len(self._identities)
        goes_on = checkpoint is not None and not checkpoint.ends
        tables, fingerprints = frozenset(task.request.tables), [np.zeros(0, np.int64)]
        checked = ["exchanges"] if task.is_pruned else []
        for name, rows in self._pipeline.raw_rows(tables.union(checked), goes_on=goes_on):
            self._learn_identities()
            if self._source.checks and name == "exchanges":
                fingerprints.append(pruning.fingerprints(rows))
            if len(rows) and name in tables:
                yield encode_rows(name, self._identified(filter_apis(task.request.apis, rows)))
        checks = np.concatenate([np.zeros(0, np.int64), *self._source.checks])
        if not np.isin(checks, np.concatenate(fingerprints)).all():
            yield encode_rows(PRUNE_MISMATCH, pa.RecordBatch.from_pydict({}))
        self._learn_identities()
        yield encode_rows(CONNECTIONS, self._positions(self._identities[count:]))
        yield encode_rows(NAMES, _names(self._pipeline.names))

    def _learn_identities(self) -> None:
        """Store the identities of new connections, before the pipeline forgets any of them."""
        number, capture, packet = self._pipeline.first_packets
        new = np.flatnonzero(number >= len(self._identities))
        if len(new):
            order = new[np.argsort(number[new])]
            identities = identity(capture[order], packet[order])
            self._identities = np.concatenate([self._identities, identities])

    def _identified(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        at = rows.schema.get_field_index("connection_id")
        if at < 0:
            return rows
        return rows.set_column(
            at, "connection_id", pa.array(self._identities).take(rows.column(at))
        )

    def _positions(self, key: Int64) -> pa.RecordBatch:
        empty = np.zeros(0, np.int64)
        keys, positions = zip((empty, empty), *self._source.openings, strict=True)
        opening, position = np.concatenate(keys), np.concatenate(positions)
        order = np.argsort(opening)
        position = position[order][np.searchsorted(opening[order], key)]
        return pa.RecordBatch.from_pydict({"key": key, "position": position})


def filter_apis(apis: Collection[str], rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of these APIs; all rows if `apis` is empty or the table has no APIs."""
    if not apis or "api" not in rows.schema.names:
        return rows
    return rows.filter(pc.is_in(rows.column("api"), pa.array(sorted(apis))))


def _names(names: TopicNames) -> pa.RecordBatch:
    """Topic names by id, and ids in rows whose names are unknown."""
    unknown = pa.nulls(len(names.unresolved), pa.string())
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array([*names.names, *names.unresolved], pa.string()),
            "name": pa.concat_arrays([pa.array([*names.names.values()], pa.string()), unknown]),
        }
    )


def encode_rows(kind: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Encode rows for Spark."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as writer:
        writer.write_batch(rows)
    content = sink.getvalue()
    edges = pa.py_buffer(np.array([0, content.size], np.int32))
    column = pa.Array.from_buffers(pa.binary(), 1, [None, edges, content])
    return pa.RecordBatch.from_arrays([pa.array([kind]), column], schema=ENCODED_SCHEMA)


def decode_rows(content: bytes | pa.Buffer) -> pa.Table:
    """The table in encoded rows."""
    return pa.ipc.open_stream(content).read_all()


@dataclass(frozen=True, slots=True)
class CaptureIndex:
    """Connection numbers and topic names of the whole capture."""

    connections: Int64
    """Identities of connections, ascending."""
    ids: Int64
    """The `connection_id` of each of them."""
    names: TopicNames = field(default_factory=TopicNames)


EMPTY_INDEX: Final = CaptureIndex(np.zeros(0, np.int64), np.zeros(0, np.int64))


def merge_index(
    metadata: Iterable[tuple[str, bytes]], before: CaptureIndex = EMPTY_INDEX
) -> CaptureIndex:
    """Merge the metadata of all tasks into the index."""
    keys, positions, names = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], TopicNames()
    names.names |= before.names.names
    for kind, content in metadata:
        rows = decode_rows(content)
        if kind == CONNECTIONS:
            keys.append(rows["key"].to_numpy())
            positions.append(rows["position"].to_numpy())
        elif kind == NAMES:
            for key, name in zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True):
                if name is None:
                    names.unresolved.add(key)
                else:
                    names.names[key] = name
    key = np.concatenate(keys)
    order = np.lexsort((key, np.concatenate(positions)))
    ids = np.empty(len(key), np.int64)
    ids[order] = len(before.ids) + np.arange(len(key))
    key, ids = np.append(before.connections, key), np.append(before.ids, ids)
    ascending = np.argsort(key)
    return CaptureIndex(key[ascending], ids[ascending], names)


def finalize(
    task: Task, table: str, index: CaptureIndex, contents: Iterable[bytes | pa.Buffer]
) -> Iterator[pa.RecordBatch]:
    """Rows of a table in Spark's schema; for `topics`, those of `TOPIC_REPORTS`."""
    schema = TOPIC_REPORTS if table == "topics" else table
    for content in contents:
        for rows in decode_rows(content).to_batches():
            yield to_spark(schema, _finalized(task, table, index, rows))


def _finalized(task: Task, table: str, index: CaptureIndex, rows: pa.RecordBatch) -> pa.RecordBatch:
    at = rows.schema.get_field_index("connection_id")
    if at >= 0:
        column = rows.column(at)
        identities = column.fill_null(-1).to_numpy()
        place = np.searchsorted(index.connections, identities)
        ids = np.append(index.ids, -1)[place]
        column = pa.array(ids, mask=column.is_null().to_numpy(zero_copy_only=False))
        rows = rows.set_column(at, "connection_id", column)
    rows, _ = finalize_rows(table, rows, index.names, show_secrets=task.request.show_secrets)
    if table == "records":
        for name in () if task.request.values else ("key", "value", "headers"):
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, name, pa.nulls(len(rows), rows.schema.types[at]))
    return rows
