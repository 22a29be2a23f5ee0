"""Secrets: fields that outputs do not show unless the user requests it.

The definition pages mark fields that are secret (role `secret`: SASL tokens, salts and keys of
SCRAM, HMACs of delegation tokens), and fields that may be secret:

- The value of a configuration. The broker's `is_sensitive` decides. Without it, the value is secret
  unless Kafka does not treat configurations of this name as sensitive (`definitions/configs.txt`).
  The value of an unknown name, such as that of a plugin, is secret.
- A forwarded request and its response, as bytes. Their fields are checked one by one if the bytes
  can be decoded.
- Records of `__cluster_metadata`, which contain SCRAM credentials and configurations (KIP-631).
  A name may be missing or damaged: then records are secret if they are framed as such records.

Undecoded bytes are secret if they may contain one of these. That includes the bodies of all APIs
and versions that are not in the definitions, and unknown tagged fields. If a message contradicts
its definition, its API key may be damaged, or its fields misaligned: then each of its values may
contain a secret, whatever its API. So may a client id with a control character, which damage
extended over the body. Outputs show `REDACTED` in place of a secret. The `decode_*` functions and
`Exchange` return the captured bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from dissector.errors import DecodeError
from dissector.protocol import registry
from dissector.protocol.explain import UNKNOWN_TAG, EnclosingFields, Explained
from dissector.protocol.notation import Direction, Field
from dissector.protocol.structures import METADATA_TOPIC, METADATA_TOPIC_ID, decode_record
from dissector.redaction import REDACTED

_ALWAYS: Final = frozenset({"secret", "envelope_request", "envelope_response"})
SECRET_ROLES: Final = _ALWAYS | {"config_value"}
"""Roles of fields that are, or may be, secret."""

_METADATA: Final = frozenset({METADATA_TOPIC, METADATA_TOPIC_ID})

SECRET_PREFIXES: Final = (b"\x01\x04\x00", b"\x01\x0b\x00")
"""First bytes of a ConfigRecord and of a UserScramCredentialRecord (KIP-631)."""

_FRAMED: Final = re.compile(rb"\x01[\x80-\xff]?[\x00-\x7f]\x01[\x04\x0b]\x00")
"""One of these records in a batch: after a key that is null, and the length of the value."""

CONTROL: Final = "[\x00-\x1f]"
"""Characters that a client id has only if damage extended it over the body. The numbers before each
secret of a body have them."""
_CONTROL: Final = re.compile(CONTROL)

_NOTHING: Final = (None, b"")
"""Values without content: a broker's response to a token is often empty."""


def hidden(
    events: Sequence[Explained],
    api_key: int | None = None,
    direction: Direction = Direction.REQUEST,
    *,
    is_malformed: bool = False,
) -> frozenset[str]:
    """Paths of the secret fields of a message.

    `is_malformed`: all bytes of the message are there, and contradict its definition.
    """
    beside = EnclosingFields(events)
    may_be_any = api_key is not None and has_secrets(api_key, direction)

    def is_secret(event: Explained) -> bool:
        if is_malformed and event.is_body_value:
            return True
        if may_be_any and UNKNOWN_TAG in event.roles:
            return True
        if may_be_any and event.path.endswith("header.client_id"):
            return _CONTROL.search(event.value) is not None
        return _is_secret(event, beside)

    return frozenset(
        event.path for event in events if event.value not in _NOTHING and is_secret(event)
    )


def _is_secret(event: Explained, beside: EnclosingFields) -> bool:
    if not _ALWAYS.isdisjoint(event.roles):
        return True
    if "records" in event.roles:
        topics = (beside.of(event.path, role) for role in ("topic", "topic_id"))
        return not _METADATA.isdisjoint(topics) or _FRAMED.search(event.value) is not None
    if "config_value" not in event.roles:
        return False
    sensitive = beside.of(event.path, "is_sensitive")
    return _hides(beside.of(event.path, "config_name"), sensitive)


def _hides(name: str | None, sensitive: bool | None) -> bool:
    """Whether the value of a configuration is secret."""
    return name not in registry.open_configs() if sensitive is None else sensitive


def redact(
    fields: Sequence[Field],
    body: Mapping[str, Any],
    name: str | None = None,
    sensitive: bool | None = None,
) -> dict[str, Any]:
    """A body with `REDACTED` for each secret. `fields` are those of the body's layout.

    `name`, `sensitive`: of the configuration that contains the body.
    """
    for item in fields:
        if "config_name" in item.roles:
            name = body.get(item.name, name)
        if "is_sensitive" in item.roles:
            sensitive = body.get(item.name, sensitive)
    return {
        item.name: _redacted(item, body[item.name], name, sensitive)
        for item in fields
        if item.name in body
    }


def _redacted(item: Field, value: Any, name: str | None, sensitive: bool | None) -> Any:
    if isinstance(value, list):
        return [_redacted(item, each, name, sensitive) for each in value]
    if isinstance(value, dict):
        return redact(item.fields, value, name, sensitive)
    hides = not _ALWAYS.isdisjoint(item.roles)
    hides |= "config_value" in item.roles and _hides(name, sensitive)
    return REDACTED if hides and value not in _NOTHING else value


def is_secret_record(key: bytes | None, value: bytes | None) -> bool:
    """Whether a record of any topic can be decoded as a record of `__cluster_metadata`, which has
    no key, with a secret."""
    if key is not None or value is None or not value.startswith(SECRET_PREFIXES):
        return False
    try:
        read = decode_record(METADATA_TOPIC, None, value)
    except DecodeError:
        return False
    fields = registry.structure_layout(read.name, read.version or 0).fields
    return redact(fields, read.body) != read.body


def may_be_secret(
    data: bytes, api_key: int | None, version: int | None, direction: Direction,
    events: Sequence[Explained],
) -> bool:  # fmt: skip
    """Whether undecoded bytes of a message may be secret. `events`: the fields before them."""
    if api_key is None or version is None or not _is_known(api_key, version):
        return True
    if has_secrets(api_key, direction):
        return True
    topics = {each.value for each in events if {"topic", "topic_id"} & set(each.roles)}
    return _has_role(api_key, direction, "records") and (
        not topics or not topics.isdisjoint(_METADATA) or _FRAMED.search(data) is not None
    )


def redacted_bytes(data: bytes) -> str:
    """The text shown in place of bytes that may be secret: their number."""
    return f"{len(data):,} byte{'' if len(data) == 1 else 's'} {REDACTED}"


def _is_known(api_key: int, version: int) -> bool:
    return registry.api_name(api_key) is not None and version in registry.versions(api_key)


def has_secrets(api_key: int, direction: Direction) -> bool:
    """Whether a known version of an API has a field that may be secret, or a token follows it.

    Bytes after a SaslHandshake whose size is damaged are the token, which has no header (KIP-43).
    """
    if registry.api_name(api_key) is None:
        return False
    return any(_has_role(api_key, direction, role) for role in (*SECRET_ROLES, "sasl_mechanism"))


@cache
def _has_role(api_key: int, direction: Direction, role: str) -> bool:
    layouts = (registry.layout(api_key, direction, each) for each in registry.versions(api_key))
    return any(_holds(layout.fields, role) for layout in layouts)


def _holds(fields: Iterable[Field], role: str) -> bool:
    return any(role in each.roles or _holds(each.fields, role) for each in fields)
