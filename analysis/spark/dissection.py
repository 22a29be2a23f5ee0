"""Dissection: the packets of some connections, in order of time, to rows of tables.

A task has all packets of its connections, and dissects them as one machine dissects a capture. What
only all tasks together know is settled afterwards: the number of a connection is the place of its
first packet among those of all connections, and names of topics may have been told to another task.
So a task gives parcels: rows in which a connection goes by the identity of its first packet, those
identities with their positions in the capture, and the names that it has learned.

A parcel is a row for Spark: `kind`, which is a table's name, `CONNECTIONS` or `NAMES`, and
`content`, an Arrow stream.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from analysis.spark.options import Request
from analysis.spark.packets import BundleSource, identity
from analysis.spark.schemas import to_spark
from analysis.spark.splits import Broker
from dissector import internal_records
from dissector.capture import Capture
from dissector.conversation.topic_names import TopicNames
from dissector.packets.block import Int64
from dissector.spool import TOPIC_COLUMNS

CONNECTIONS, NAMES = "connections of a task", "names of a task"
PARCEL: Final = pa.schema([("kind", pa.string()), ("content", pa.binary())])
SPARK_PARCEL: Final = "kind string, content binary"


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


def dissect(task: Task, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Parcels of the packets in `batches`, which have `packets.SCHEMA`."""
    source = BundleSource(batches, task.captures, task.secrets)
    capture = Capture(source, ports=task.request.ports, brokers=task.brokers)
    for name, rows in capture.unsettled(task.request.tables):
        if len(rows):
            chosen = _of_apis(task.request.apis, rows)
            column = rows.schema.get_field_index("connection_id")
            if column >= 0:
                chosen = chosen.set_column(
                    column, "connection_id", _identities(capture, chosen.column(column))
                )
            yield _parcel(name, chosen)
    yield _parcel(CONNECTIONS, _connections(capture, source))
    yield _parcel(NAMES, _names(capture.names))


def _of_apis(apis: Collection[str], rows: pa.RecordBatch) -> pa.RecordBatch:
    if not apis or "api" not in rows.schema.names:
        return rows
    return rows.filter(pc.is_in(rows.column("api"), pa.array(sorted(apis))))


def _identities(capture: Capture, rows: pa.Array) -> pa.Array:
    return pa.array(identity(*capture.first_packets)).take(rows)


def _connections(capture: Capture, source: BundleSource) -> pa.RecordBatch:
    key = identity(*capture.first_packets)
    openings, position = source.openings
    place = position[np.searchsorted(openings, key)]
    return pa.RecordBatch.from_pydict({"key": key, "position": place})


def _names(names: TopicNames) -> pa.RecordBatch:
    """Names by id, and ids that stand in rows in the place of a name."""
    lacking = pa.nulls(len(names.missing), pa.string())
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array([*names.names, *names.missing], pa.string()),
            "name": pa.concat_arrays([pa.array([*names.names.values()], pa.string()), lacking]),
        }
    )


def _parcel(kind: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    content = pa.array([sink.getvalue().to_pybytes()], pa.binary())
    return pa.RecordBatch.from_arrays([pa.array([kind]), content], schema=PARCEL)


def unpack(content: bytes) -> pa.Table:
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


def knowledge(parcels: Iterable[tuple[str, bytes]]) -> Knowledge:
    """Put together what the parcels say that hold no rows."""
    keys, positions, names = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], TopicNames()
    for kind, content in parcels:
        found = unpack(content)
        if kind == CONNECTIONS:
            keys.append(found["key"].to_numpy())
            positions.append(found["position"].to_numpy())
        elif kind == NAMES:
            for key, name in zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True):
                if name is None:
                    names.missing.add(key)
                else:
                    names.names[key] = name
    key = np.concatenate(keys)
    order = np.lexsort((key, np.concatenate(positions)))
    ids = np.empty(len(key), np.int64)
    ids[order] = np.arange(len(key))
    ascending = np.argsort(key)
    return Knowledge(key[ascending], ids[ascending], names)


def settle(
    task: Task, table: str, known: Knowledge, contents: Iterable[bytes]
) -> Iterator[pa.RecordBatch]:
    """Rows of a table as Spark has them, of its parcels."""
    for content in contents:
        for rows in unpack(content).to_batches():
            yield to_spark(table, _settled(task, table, known, rows))


def _settled(task: Task, table: str, known: Knowledge, rows: pa.RecordBatch) -> pa.RecordBatch:
    for index, name in enumerate(rows.schema.names):
        column = rows.column(index)
        if name in TOPIC_COLUMNS:
            column = known.names.complete(column)
        elif name == "connection_id":
            identities = column.fill_null(-1).to_numpy()
            place = np.searchsorted(known.connections, identities)
            ids = np.append(known.ids, -1)[place]
            column = pa.array(ids, mask=column.is_null().to_numpy(zero_copy_only=False))
        rows = rows.set_column(index, name, column)
    if table == "records":
        rows, _ = internal_records.tell(rows, show_secrets=task.request.show_secrets)
        for name in () if task.request.values else ("key", "value", "headers"):
            index = rows.schema.get_field_index(name)
            rows = rows.set_column(index, name, pa.nulls(len(rows), rows.schema.types[index]))
    return rows
