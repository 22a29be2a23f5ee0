"""Records that Kafka writes for itself, one by one: what each says, as JSON, secrets redacted.

Those are the records of its own topics, and control records. `decoded` is an object: `version`,
then the structure's fields; of a coordinator's record `key` and `value`, which is null where the
record deletes. Bytes are base64, but for those that hold another structure of Kafka's, which stands
in their place. A record of `__cluster_metadata` that cannot be read may be a secret.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

from dissector.errors import DecodeError
from dissector.protocol.catalog import structure_layout
from dissector.protocol.notation import Field
from dissector.protocol.structures import (
    COORDINATOR_PAGES,
    EMBEDDED_ROLES,
    METADATA_PAGES,
    METADATA_TOPIC,
    Decoded,
    decode_control_record,
    decode_metadata_record,
    decode_record,
    unfold,
)
from dissector.secrets import SECRET_ROLES, redact


@dataclass(frozen=True, slots=True)
class Told:
    """What one record says."""

    kind: str | None
    """commit, abort, … of a control record, else Kafka's name: OffsetCommit, TopicRecord."""
    decoded: str | None = None
    """None where it cannot be read."""
    has_secret: bool = False
    """Its value is, or may be, a secret."""
    error: DecodeError | None = None


def told(
    topic: str,
    key: bytes | None,
    value: bytes | None,
    control: str | None = None,
    *,
    show_secrets: bool = False,
) -> Told:
    """A record of one of `RECORD_TOPICS`; or of any topic where `control` is its kind."""
    try:
        if control is not None:
            return Told(control, _control_json(key or b"", value or b""))
        read = decode_record(topic, key, value)
    except DecodeError as error:
        return Told(control, None, topic == METADATA_TOPIC, error)
    body, has_secret = _opened(read, topic, show_secrets)
    return Told(read.name, _json(read.version, body), has_secret)


def is_secret(value: bytes) -> bool:
    """Whether a value reads as a record of `__cluster_metadata` that has a secret."""
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
