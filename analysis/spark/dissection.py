"""Dissection: the packets of some connections, in order of time, to rows of tables.

A task has all packets of its connections, and dissects them as one machine dissects a capture. What
only all tasks together know is settled afterwards: the number of a connection is the place of its
first packet among those of all connections, and names of topics may have been told to another task.
So a task gives parcels: rows in which a connection goes by the identity of its first packet, those
identities with their positions in the capture, and the names that it has learned.

A parcel is a row for Spark: `kind`, which is a table's name, `CONNECTIONS`, `NAMES` or `DOUBT`, and
`content`, an Arrow stream.
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

from analysis.spark import cutting
from analysis.spark.options import Request
from analysis.spark.packets import BLOCK_BYTES, BundleSource, identity
from analysis.spark.schemas import TOLD, to_spark
from analysis.spark.splits import Broker
from analysis.spark.writing import SHARED
from dissector.errors import DissectorError
from dissector.exchanges.topic_names import TopicNames
from dissector.packets.block import Int64
from dissector.pipeline import Pipeline
from dissector.streams.limits import SECOND
from dissector.tables.finalizer import finalize_rows

CONNECTIONS, NAMES = "connections of a task", "names of a task"
DOUBT = "what was cut may not be what it seemed"
PARCEL: Final = pa.schema([("kind", pa.string()), ("content", pa.binary())])
SPARK_PARCEL: Final = "kind string, content binary"

_PRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
"""Spark keeps parcels, and Java copies them about."""
_BLOCKS: Final = 8
"""What is read at once may be that part of the memory, as in `dissector.pipeline`."""


@dataclass(frozen=True, slots=True)
class Passage:
    """Where the state of the shares goes through, from one batch of a stream to the next."""

    before: str
    """Folder that has it; none for the first batch."""
    after: str
    """Folder that gets it."""
    until: int
    """ns; how far time has gone on in the capture."""
    ends: bool
    """Nothing more is waited for."""


@dataclass(frozen=True, slots=True)
class Task:
    """What every task of a dissection knows."""

    request: Request
    captures: Sequence[str]
    """Names of the files, by index."""
    brokers: frozenset[Broker]
    """Where brokers listen, as the first look told."""
    secrets: Sequence[bytes]
    """TLS key logs, of all captures."""
    passage: Passage | None = None
    """None: the capture is here as a whole."""
    is_cut: bool = False
    """Packets may come without their payload; see `cutting`."""


def dissect(task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Parcels of the bundles of a share."""
    first = next(batches, None)
    if first is None:
        return
    number, passage = first.column("share")[0].as_py(), task.passage
    if passage and not Path(passage.after).is_dir():
        raise DissectorError(
            f"{passage.after} on {socket.gethostname()} is not the driver's folder: {SHARED}"
        )
    share = (_restored(passage, number) if passage else None) or Share(task)
    yield from share.parcels(task, chain([first], batches))
    if passage and not passage.ends:
        _save(share, Path(passage.after, f"share-{number}"))


def _restored(passage: Passage, number: int) -> Share | None:
    path = Path(passage.before, f"share-{number}")
    if not passage.before or not path.exists():
        return None
    share: Share = pickle.loads(zstandard.decompress(path.read_bytes()))
    return share


def _save(share: Share, path: Path) -> None:
    """Write a file that is whole from the moment it is there: a task may run twice."""
    part = path.with_name(f"{path.name}.{uuid4().hex}")
    part.write_bytes(zstandard.compress(pickle.dumps(share), 1))
    part.replace(path)


class Share:
    """The connections of a share, as far as they are read."""

    def __init__(self, task: Task) -> None:
        memory = task.request.memory
        self._source = BundleSource(min(BLOCK_BYTES, memory // _BLOCKS))
        wait = task.request.watermark * SECOND
        self._pipeline = Pipeline(
            self._source,
            ports=task.request.ports,
            request_wait=wait,
            forget_after=wait if task.passage else None,
            memory=memory,
        )
        self._identities = np.zeros(0, np.int64)
        """Of each connection, by number."""

    def parcels(self, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read on."""
        passage = task.passage
        self._pipeline.learn_brokers(task.brokers)
        self._source.names[:] = task.captures
        self._source.secrets += [each for each in task.secrets if each not in self._source.secrets]
        self._source.take(batches, passage.until if passage else None)
        known = len(self._identities)
        goes_on = passage is not None and not passage.ends
        wanted, found = frozenset(task.request.tables), [np.zeros(0, np.int64)]
        more = ["exchanges"] if task.is_cut else []
        for name, rows in self._pipeline.raw_rows(wanted.union(more), goes_on=goes_on):
            self._learn_identities()
            if self._source.claims and name == "exchanges":
                found.append(cutting.found(rows))
            if len(rows) and name in wanted:
                yield parcel(name, self._identified(of_apis(task.request.apis, rows)))
        claims = np.concatenate([np.zeros(0, np.int64), *self._source.claims])
        if not np.isin(claims, np.concatenate(found)).all():
            yield parcel(DOUBT, pa.RecordBatch.from_pydict({}))
        self._learn_identities()
        yield parcel(CONNECTIONS, self._positions(self._identities[known:]))
        yield parcel(NAMES, _names(self._pipeline.names))

    def _learn_identities(self) -> None:
        """Those of new connections, before any of them can have been forgotten."""
        number, capture, packet = self._pipeline.first_packets
        new = np.flatnonzero(number >= len(self._identities))
        if len(new):
            order = new[np.argsort(number[new])]
            fresh = identity(capture[order], packet[order])
            self._identities = np.concatenate([self._identities, fresh])

    def _identified(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        at = rows.schema.get_field_index("connection_id")
        if at < 0:
            return rows
        return rows.set_column(
            at, "connection_id", pa.array(self._identities).take(rows.column(at))
        )

    def _positions(self, key: Int64) -> pa.RecordBatch:
        none = np.zeros(0, np.int64)
        who, where = zip((none, none), *self._source.openings, strict=True)
        opening, position = np.concatenate(who), np.concatenate(where)
        order = np.argsort(opening)
        place = position[order][np.searchsorted(opening[order], key)]
        return pa.RecordBatch.from_pydict({"key": key, "position": place})


def of_apis(apis: Collection[str], rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of these APIs; all rows of a table without APIs, and where none are named."""
    if not apis or "api" not in rows.schema.names:
        return rows
    return rows.filter(pc.is_in(rows.column("api"), pa.array(sorted(apis))))


def _names(names: TopicNames) -> pa.RecordBatch:
    """Names by id, and ids that stand in rows in the place of a name."""
    lacking = pa.nulls(len(names.unresolved), pa.string())
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array([*names.names, *names.unresolved], pa.string()),
            "name": pa.concat_arrays([pa.array([*names.names.values()], pa.string()), lacking]),
        }
    )


def parcel(kind: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    """A parcel of these rows."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_PRESSED) as writer:
        writer.write_batch(rows)
    content = sink.getvalue()
    edges = pa.py_buffer(np.array([0, content.size], np.int32))
    column = pa.Array.from_buffers(pa.binary(), 1, [None, edges, content])
    return pa.RecordBatch.from_arrays([pa.array([kind]), column], schema=PARCEL)


def unpack(content: bytes | pa.Buffer) -> pa.Table:
    """What a parcel holds."""
    return pa.ipc.open_stream(content).read_all()


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What all tasks together know."""

    connections: Int64
    """Identity of each connection, ascending."""
    ids: Int64
    """Its connection_id."""
    names: TopicNames = field(default_factory=TopicNames)


NOTHING: Final = Knowledge(np.zeros(0, np.int64), np.zeros(0, np.int64))


def knowledge(parcels: Iterable[tuple[str, bytes]], before: Knowledge = NOTHING) -> Knowledge:
    """Put together what the parcels say that hold no rows, and what was known before them."""
    keys, positions, names = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], TopicNames()
    names.names |= before.names.names
    for kind, content in parcels:
        found = unpack(content)
        if kind == CONNECTIONS:
            keys.append(found["key"].to_numpy())
            positions.append(found["position"].to_numpy())
        elif kind == NAMES:
            for key, name in zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True):
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
    return Knowledge(key[ascending], ids[ascending], names)


def settle(
    task: Task, table: str, known: Knowledge, contents: Iterable[bytes | pa.Buffer]
) -> Iterator[pa.RecordBatch]:
    """Rows of a table as Spark has them, of its parcels; of `topics`, those of `TOLD`."""
    for content in contents:
        for rows in unpack(content).to_batches():
            yield to_spark(TOLD if table == "topics" else table, _settled(task, table, known, rows))


def _settled(task: Task, table: str, known: Knowledge, rows: pa.RecordBatch) -> pa.RecordBatch:
    index = rows.schema.get_field_index("connection_id")
    if index >= 0:
        column = rows.column(index)
        identities = column.fill_null(-1).to_numpy()
        place = np.searchsorted(known.connections, identities)
        ids = np.append(known.ids, -1)[place]
        column = pa.array(ids, mask=column.is_null().to_numpy(zero_copy_only=False))
        rows = rows.set_column(index, "connection_id", column)
    rows, _ = finalize_rows(table, rows, known.names, show_secrets=task.request.show_secrets)
    if table == "records":
        for name in () if task.request.values else ("key", "value", "headers"):
            index = rows.schema.get_field_index(name)
            rows = rows.set_column(index, name, pa.nulls(len(rows), rows.schema.types[index]))
    return rows
