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
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissector.errors import DecodeError
from dissector.problems import Problem
from dissector.protocol.catalog import structure_layout
from dissector.protocol.structures import (
    COORDINATOR_PAGES,
    METADATA_PAGES,
    METADATA_TOPIC,
    RECORD_TOPICS,
    Decoded,
    decode_control_record,
    decode_metadata_record,
    decode_record,
    unfold,
)
from dissector.secrets import REDACTED, redact
from dissector.tables import RECORDS

_READ: Final = ("record_kind", "topic", "key", "value")
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
    found, problems = _Found(len(rows)), []
    for row in _internal(rows):
        control, topic, key, value = (rows.column(each)[row].as_py() for each in _READ)
        found.kind[row] = control
        try:
            if control is not None:
                found.decoded[row] = _control_json(key, value or b"")
                continue
            read = decode_record(topic, key, value)
        except DecodeError as error:
            problems.append(_problem(rows, row, error))
            found.secret[row] = topic == METADATA_TOPIC
            continue
        found.kind[row] = read.name
        body, found.secret[row] = _opened(read, topic, show_secrets)
        found.decoded[row] = _json(read.version, body)
    found.secret[_secrets_of_no_topic(rows)] = True
    return found.put_into(rows, show_secrets), problems


class _Found:
    """What is found for each of n rows."""

    def __init__(self, count: int) -> None:
        self.kind: dict[int, str | None] = {}
        self.decoded: dict[int, str] = {}
        self.secret: NDArray[np.bool_] = np.zeros(count, np.bool_)

    def put_into(self, rows: pa.RecordBatch, show_secrets: bool) -> pa.RecordBatch:
        """The rows with their new columns."""
        columns = {name: rows.column(name) for name in rows.schema.names}
        if self.kind:
            every = range(len(rows))
            columns["record_kind"] = pa.array([self.kind.get(row) for row in every], pa.string())
            columns["decoded"] = pa.array([self.decoded.get(row) for row in every], pa.string())
        if self.secret.any() and not show_secrets:
            hidden = pa.array(self.secret & np.asarray(columns["value"].is_valid()))
            redacted = pa.scalar(REDACTED.encode(), columns["value"].type)
            columns["value"] = pc.if_else(hidden, redacted, columns["value"])
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=RECORDS.schema)


def _internal(rows: pa.RecordBatch) -> list[int]:
    """Which rows are records of Kafka's own."""
    topic, control = rows.column("topic"), rows.column("record_kind").is_valid()
    chosen = pc.or_(pc.is_in(topic, _TOPICS), control)
    which: list[int] = pc.indices_nonzero(chosen).to_pylist()
    return which


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
    fields = structure_layout(name, version or 0).fields
    redacted = redact(fields, body)
    return unfold(fields, body if show_secrets else redacted), redacted != body


@lru_cache(1024)  # the markers of a transaction mostly say the same as those of the one before
def _control_json(key: bytes, value: bytes) -> str:
    read = decode_control_record(key, value)
    return _json(read.version, read.body)


def _json(version: int | None, body: dict[str, Any]) -> str:
    """The record as one line of JSON."""
    said = {"version": version, **body}
    return json.dumps(_plain(said), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """The value in JSON's terms, which know neither bytes nor a number that is none."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


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
