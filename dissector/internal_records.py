"""Records of Kafka's own topics, and control records: what they say, as JSON.

Only these records take a step of Python each; a batch of others costs one look at its topics.

`decoded` is an object: `version`, then the structure's fields; of a coordinator's record `key` and
`value`, which is null where the record deletes. Bytes are base64, but for those that hold another
structure of Kafka's, which stands in their place. A secret is `[redacted]`, in `decoded` and as the
`value` of its record, unless secrets are to be shown. So is the value of a `__cluster_metadata`
record that cannot be read; and that of a record which reads as a secret of that topic where nothing
tells the topic, as in a segment that was moved out of its folder.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.errors import DecodeError
from dissector.problems import Problem
from dissector.protocol.catalog import structure_layout
from dissector.protocol.notation import Field
from dissector.protocol.structures import (
    COORDINATOR_PAGES,
    EMBEDDED_ROLES,
    METADATA_PAGES,
    METADATA_TOPIC,
    RECORD_TOPICS,
    Decoded,
    decode_control_record,
    decode_metadata_record,
    decode_record,
    unfold,
)
from dissector.secrets import REDACTED, SECRET_ROLES, redact
from dissector.tables import RECORDS

_READ: Final = ("record_kind", "topic", "key", "value")
_PLACE: Final = ("time", "connection_id", "topic", "partition", "offset", "value")
_TOPICS: Final = pa.array(sorted(RECORD_TOPICS))
_SECRET_FRONTS: Final = (b"\x01\x04\x00", b"\x01\x0b\x00")
"""First bytes of a ConfigRecord and of a UserScramCredentialRecord."""


@dataclass(frozen=True, slots=True)
class _Told:
    """What one record says."""

    kind: str | None
    decoded: str | None = None
    has_secret: bool = False
    error: DecodeError | None = None


def tell(
    rows: pa.RecordBatch, *, show_secrets: bool = False
) -> tuple[pa.RecordBatch, list[Problem]]:
    """Rows of `records` with `record_kind` and `decoded` where Kafka wrote the record for itself.

    Also says which of those records could not be read.
    """
    which = _internal(rows)
    some = rows.select(_READ).take(which)
    told = [
        _told(show_secrets, *record)
        for record in zip(*(column.to_pylist() for column in some.columns), strict=True)
    ]
    columns = {name: rows.column(name) for name in rows.schema.names}
    if told:
        columns["record_kind"] = _spread([each.kind for each in told], which, len(rows))
        columns["decoded"] = _spread([each.decoded for each in told], which, len(rows))
    hidden = np.zeros(len(rows), np.bool_)
    hidden[which.to_numpy()] = [each.has_secret for each in told]
    hidden[_secrets_of_no_topic(rows)] = True
    if hidden.any() and not show_secrets:
        value = columns["value"]
        redacted = pa.scalar(REDACTED.encode(), value.type)
        columns["value"] = pc.if_else(pc.and_(pa.array(hidden), value.is_valid()), redacted, value)
    problems = [
        _problem(rows, row, each.error)
        for row, each in zip(which.to_pylist(), told, strict=True)
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


def _told(
    show_secrets: bool, control: str | None, topic: str, key: bytes | None, value: bytes | None
) -> _Told:
    try:
        if control is not None:
            return _Told(control, _control_json(key or b"", value or b""))
        read = decode_record(topic, key, value)
    except DecodeError as error:
        return _Told(control, None, topic == METADATA_TOPIC, error)
    body, has_secret = _opened(read, topic, show_secrets)
    return _Told(read.name, _json(read.version, body), has_secret)


def _secrets_of_no_topic(rows: pa.RecordBatch) -> list[int]:
    topic, value = rows.column("topic"), rows.column("value")
    if not topic.null_count:
        return []
    like = pc.or_(*(pc.starts_with(value, front) for front in _SECRET_FRONTS))
    some = pc.indices_nonzero(pc.and_(topic.is_null(), pc.fill_null(like, False)))
    return [row for row in some.to_pylist() if _is_secret(value[row].as_py())]


def _is_secret(value: bytes) -> bool:
    try:
        read = decode_metadata_record(METADATA_PAGES[METADATA_TOPIC], value)
    except DecodeError:
        return False
    return _opened(read, METADATA_TOPIC, False)[1]


def _opened(read: Decoded, topic: str, show_secrets: bool) -> tuple[dict[str, Any], bool]:
    """The body of a record, what it holds unfolded, secrets redacted; whether it has any."""
    if topic not in COORDINATOR_PAGES:
        return _unfolded(read.name, read.version, read.body, show_secrets)
    key, value = read.body["key"], read.body["value"]
    if value is None:
        return {"key": key, "value": None}, False
    shown, has_secret = _unfolded(f"{read.name}Value", read.version, value, show_secrets)
    return {"key": key, "value": shown}, has_secret


def _unfolded(
    name: str, version: int | None, body: dict[str, Any], show_secrets: bool
) -> tuple[dict[str, Any], bool]:
    fields, may_hide, may_hold = _fields(name, version or 0)
    redacted = redact(fields, body) if may_hide else body
    shown = body if show_secrets else redacted
    return unfold(fields, shown) if may_hold else shown, redacted != body


@cache
def _fields(name: str, version: int) -> tuple[tuple[Field, ...], bool, bool]:
    """The fields of a structure; whether any may be a secret, or hold another structure."""

    def roles(fields: tuple[Field, ...]) -> set[str]:
        return {role for each in fields for role in (*each.roles, *roles(each.fields))}

    fields = structure_layout(name, version).fields
    found = roles(fields)
    return fields, not found.isdisjoint(SECRET_ROLES), not found.isdisjoint(EMBEDDED_ROLES)


@lru_cache(1024)  # the markers of a transaction mostly say the same as those of the one before
def _control_json(key: bytes, value: bytes) -> str:
    read = decode_control_record(key, value)
    return _json(read.version, read.body)


_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=False,
    separators=(",", ":"),
    allow_nan=False,
    default=lambda value: b64encode(value).decode(),
)


def _json(version: int | None, body: dict[str, Any]) -> str:
    """The record as one line of JSON, bytes as base64."""
    said = {"version": version, **body}
    try:
        return _ENCODER.encode(said)
    except ValueError:
        return _ENCODER.encode(_finite(said))


def _finite(value: Any) -> Any:
    """The value with null for what is no number, which JSON does not know."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
