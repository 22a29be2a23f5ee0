"""Records of Kafka's internal topics, and control records: their columns in the table `records`.

`record_kind` is the kind of a control record, or the name of the record's structure. `decoded` is
the record as a JSON object: `version`, then the fields of the structure; of a coordinator's record
`key` and `value`, which is null where the record deletes. Bytes are base64. Where a field contains
another structure of Kafka's, the object has this structure decoded.

Secrets are replaced by `[redacted]`, in the column `value`, too, unless they are to be shown. The
value of a `__cluster_metadata` record that cannot be decoded is redacted as well. So is a value
that decodes as a secret of that topic if the topic is another: the topic of a segment outside its
folder is unknown, and a byte of the name may be damaged.
Only these records take a step of Python each.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.arrays import value
from dissector.errors import DecodeError
from dissector.problems import Problem
from dissector.protocol.notation import Field
from dissector.protocol.registry import structure_layout
from dissector.protocol.structures import (
    COORDINATOR_PAGES,
    EMBEDDED_ROLES,
    METADATA_TOPIC,
    RECORD_TOPICS,
    DecodedStructure,
    decode_control_record,
    decode_record,
    unfold_structures,
)
from dissector.redaction import REDACTED
from dissector.secrets import SECRET_PREFIXES, SECRET_ROLES, is_secret_record, redact
from dissector.tables.schema import RECORDS

_INPUT_COLUMNS: Final = ("topic", "key", "value", "record_kind")
_PROBLEM_COLUMNS: Final = ("time", "connection_id", "topic", "partition", "offset", "value")
_TOPICS: Final = pa.array(sorted(RECORD_TOPICS))


def decode_internal_records(
    rows: pa.RecordBatch, *, show_secrets: bool = False
) -> tuple[pa.RecordBatch, list[Problem]]:
    """Rows of `records` with `record_kind` and `decoded` for internal topics, and problems.

    A problem is a record of an internal topic that was not decoded.
    """
    is_control = rows.column("record_kind").is_valid()
    index = pc.indices_nonzero(pc.or_(pc.is_in(rows.column("topic"), _TOPICS), is_control))
    internal = rows.select(_INPUT_COLUMNS).take(index)
    decoded = [
        decode_internal_record(*record, show_secrets=show_secrets)
        for record in zip(*(column.to_pylist() for column in internal.columns), strict=True)
    ]
    columns = {name: rows.column(name) for name in rows.schema.names}
    if decoded:
        columns["record_kind"] = _scatter([each.kind for each in decoded], index, len(rows))
        columns["decoded"] = _scatter([each.decoded for each in decoded], index, len(rows))
    is_secret_row = np.zeros(len(rows), np.bool_)
    is_secret_row[index.to_numpy()] = [each.has_secret for each in decoded]
    is_secret_row[_secrets_elsewhere(rows)] = True
    if is_secret_row.any() and not show_secrets:
        value = columns["value"]
        redacted = pa.scalar(REDACTED.encode(), value.type)
        columns["value"] = pc.if_else(
            pc.and_(pa.array(is_secret_row), value.is_valid()), redacted, value
        )
    problems = [
        _problem(rows, row, each.error)
        for row, each in zip(index.to_pylist(), decoded, strict=True)
        if each.error
    ]
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=RECORDS.schema), problems


def _scatter(values: list[str | None], index: pa.Array, count: int) -> pa.Array:
    """A column of `count` rows, with the values in the rows `index`; null elsewhere."""
    source = np.full(count, -1)
    source[index.to_numpy()] = np.arange(len(values))
    return pa.array(values, pa.string()).take(pa.array(source, mask=source < 0))


def _secrets_elsewhere(rows: pa.RecordBatch) -> list[int]:
    """The rows with a secret of `__cluster_metadata` under another topic, or none."""
    value = rows.column("value")
    has_prefix = pc.or_(*(pc.starts_with(value, prefix) for prefix in SECRET_PREFIXES))
    is_other = pc.invert(pc.is_in(rows.column("topic"), _TOPICS))
    may_be = pc.and_(pc.and_(is_other, rows.column("key").is_null()), has_prefix)
    candidates = pc.indices_nonzero(pc.fill_null(may_be, False))
    return [row for row in candidates.to_pylist() if is_secret_record(None, value[row].as_py())]


def _problem(rows: pa.RecordBatch, row: int, error: DecodeError) -> Problem:
    time, connection, topic, partition, offset, value = (
        rows.column(each)[row] for each in _PROBLEM_COLUMNS
    )
    return Problem(
        stage="records",
        kind="undecoded_record",
        detail=f"record {offset} of {topic}-{partition}: {error}",
        time=time.cast(pa.int64()).as_py(),
        connection_id=connection.as_py(),
        bytes=len(value.as_py() or b""),
    )


@value
class InternalRecord:
    """A decoded record."""

    kind: str | None
    """commit, abort, … of a control record; else Kafka's name: OffsetCommit, TopicRecord."""
    decoded: str | None = None
    """JSON; None if the record was not decoded."""
    has_secret: bool = False
    """The value is, or may be, a secret."""
    error: DecodeError | None = None


def decode_internal_record(
    topic: str,
    key: bytes | None,
    value: bytes | None,
    control: str | None = None,
    *,
    show_secrets: bool = False,
) -> InternalRecord:
    """Decode a record of one of `RECORD_TOPICS`, or a control record of any topic.

    `control`: kind of a control record.
    """
    try:
        if control is not None:
            return InternalRecord(control, _control_json(key or b"", value or b""))
        read = decode_record(topic, key, value)
    except DecodeError as error:
        return InternalRecord(control, None, topic == METADATA_TOPIC, error)
    body, has_secret = _decoded_body(read, topic, show_secrets)
    return InternalRecord(read.name, _json(read.version, body), has_secret)


def _decoded_body(
    read: DecodedStructure, topic: str, show_secrets: bool
) -> tuple[dict[str, Any], bool]:
    """The body of a record, with nested structures decoded and secrets redacted.

    Also returns whether it has a secret.
    """
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
    return unfold_structures(fields, shown) if may_hold else shown, redacted != body


@cache
def _fields(name: str, version: int) -> tuple[tuple[Field, ...], bool, bool]:
    """The fields of a structure; whether any may be a secret, or contain another structure."""

    def roles(fields: tuple[Field, ...]) -> set[str]:
        return {role for each in fields for role in (*each.roles, *roles(each.fields))}

    fields = structure_layout(name, version).fields
    decoded = roles(fields)
    return fields, not decoded.isdisjoint(SECRET_ROLES), not decoded.isdisjoint(EMBEDDED_ROLES)


@lru_cache(1024)  # most transaction markers are equal to the previous one
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
    record = {"version": version, **body}
    try:
        return _ENCODER.encode(record)
    except ValueError:
        return _ENCODER.encode(_finite(record))


def _finite(value: Any) -> Any:
    """The value with null for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
