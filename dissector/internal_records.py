"""Records of Kafka's own topics, and control records, in the rows of `records`.

Only these records take a step of Python each; a batch of others costs one look at its topics. A
secret stands as `[redacted]` in the column `value`, too, unless secrets are to be shown. So does
the value of a `__cluster_metadata` record that cannot be read; and that of a record which reads as
a secret of that topic where nothing tells the topic, as in a segment that left its folder.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.errors import DecodeError
from dissector.own_records import is_secret, told
from dissector.problems import Problem
from dissector.protocol.structures import RECORD_TOPICS
from dissector.secrets import REDACTED
from dissector.tables import RECORDS

_READ: Final = ("topic", "key", "value", "record_kind")
_PLACE: Final = ("time", "connection_id", "topic", "partition", "offset", "value")
_TOPICS: Final = pa.array(sorted(RECORD_TOPICS))
_SECRET_FRONTS: Final = (b"\x01\x04\x00", b"\x01\x0b\x00")
"""First bytes of a ConfigRecord and of a UserScramCredentialRecord."""


def tell(
    rows: pa.RecordBatch, *, show_secrets: bool = False
) -> tuple[pa.RecordBatch, list[Problem]]:
    """Rows of `records` with `record_kind` and `decoded` where Kafka wrote the record for itself.

    Also says which of those records could not be read.
    """
    which = _internal(rows)
    some = rows.select(_READ).take(which)
    found = [
        told(*record, show_secrets=show_secrets)
        for record in zip(*(column.to_pylist() for column in some.columns), strict=True)
    ]
    columns = {name: rows.column(name) for name in rows.schema.names}
    if found:
        columns["record_kind"] = _spread([each.kind for each in found], which, len(rows))
        columns["decoded"] = _spread([each.decoded for each in found], which, len(rows))
    hidden = np.zeros(len(rows), np.bool_)
    hidden[which.to_numpy()] = [each.has_secret for each in found]
    hidden[_secrets_of_no_topic(rows)] = True
    if hidden.any() and not show_secrets:
        value = columns["value"]
        redacted = pa.scalar(REDACTED.encode(), value.type)
        columns["value"] = pc.if_else(pc.and_(pa.array(hidden), value.is_valid()), redacted, value)
    problems = [
        _problem(rows, row, each.error)
        for row, each in zip(which.to_pylist(), found, strict=True)
        if each.error
    ]
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=RECORDS.schema), problems


def _internal(rows: pa.RecordBatch) -> pa.Array:
    """Which rows are records of Kafka's own."""
    control = rows.column("record_kind").is_valid()
    return pc.indices_nonzero(pc.or_(pc.is_in(rows.column("topic"), _TOPICS), control))


def _spread(values: list[str | None], which: pa.Array, count: int) -> pa.Array:
    """A column of so many rows that has the values in the rows `which`."""
    index = np.full(count, -1)
    index[which.to_numpy()] = np.arange(len(values))
    return pa.array(values, pa.string()).take(pa.array(index, mask=index < 0))


def _secrets_of_no_topic(rows: pa.RecordBatch) -> list[int]:
    topic, value = rows.column("topic"), rows.column("value")
    if not topic.null_count:
        return []
    like = pc.or_(*(pc.starts_with(value, front) for front in _SECRET_FRONTS))
    some = pc.indices_nonzero(pc.and_(topic.is_null(), pc.fill_null(like, False)))
    return [row for row in some.to_pylist() if is_secret(value[row].as_py())]


def _problem(rows: pa.RecordBatch, row: int, error: DecodeError) -> Problem:
    time, connection, topic, partition, offset, value = (rows.column(each)[row] for each in _PLACE)
    return Problem(
        stage="records",
        kind="undecoded_record",
        detail=f"record {offset} of {topic}-{partition}: {error}",
        time=time.cast(pa.int64()).as_py(),
        connection_id=connection.as_py(),
        bytes=len(value.as_py() or b""),
    )
