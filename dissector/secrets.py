"""Secrets: what no output shows unless it is asked for.

The definition pages say what is a secret (role `secret`: SASL tokens, salts and keys of SCRAM,
HMACs of delegation tokens) and what may be one:

- the value of a configuration: what the broker says beside it decides (`is_sensitive`); where it
  says nothing, the value is a secret unless Kafka itself takes configurations of that name for none
  (`definitions/configs.txt`). A name that nobody knows, such as a plugin's, is a secret;
- a forwarded request and its answer, as bytes: what they hold is judged field by field where they
  can be read;
- records of `__cluster_metadata`, which keeps SCRAM credentials and configurations (KIP-631).

Bytes that cannot be read are a secret where one of these may stand. That includes the bodies of all
APIs and versions that the definitions do not know. Outputs show `REDACTED` in place of a secret.
The `decode_*` functions and `Exchange` give what was on the wire.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from dissector.protocol import registry
from dissector.protocol.explain import EnclosingFields, Explained
from dissector.protocol.notation import Direction, Field
from dissector.protocol.structures import METADATA_TOPIC, METADATA_TOPIC_ID

REDACTED: Final = "[redacted]"

_ALWAYS: Final = frozenset({"secret", "envelope_request", "envelope_response"})
SECRET_ROLES: Final = _ALWAYS | {"config_value"}
"""Roles of fields that are, or may be, a secret."""

_NOTHING: Final = (None, b"")
"""Values that hide nothing: a broker often has nothing to say to a token."""

HASH_DIGITS: Final = 16
"""Hexadecimal digits of a SHA-256 that are shown: enough to compare two bodies."""

LARGEST_VERSION: Final = 0x1F
"""Of an API that is not known. In a SASL token that is taken for a request, text stands where the
version would, and no printable character is below 32."""


def hidden(events: Sequence[Explained]) -> frozenset[str]:
    """Paths of the fields of a message whose values are secret."""
    beside = EnclosingFields(events)
    return frozenset(
        event.path for event in events if event.value not in _NOTHING and _is_secret(event, beside)
    )


def _is_secret(event: Explained, beside: EnclosingFields) -> bool:
    if not _ALWAYS.isdisjoint(event.roles):
        return True
    if "config_value" not in event.roles:
        return False
    sensitive = beside.of(event.path, "is_sensitive")
    return _hides(beside.of(event.path, "config_name"), sensitive)


def _hides(name: str | None, sensitive: bool | None) -> bool:
    """Whether the value of a configuration is a secret."""
    return name not in registry.open_configs() if sensitive is None else sensitive


def redact(
    fields: Sequence[Field],
    body: Mapping[str, Any],
    name: str | None = None,
    sensitive: bool | None = None,
) -> dict[str, Any]:
    """A body with `REDACTED` for each secret. `fields` are those of the body's layout.

    `name`, `sensitive`: of the configuration that the body is a part of.
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


def may_be_secret(
    api_key: int | None, version: int | None, direction: Direction, events: Sequence[Explained]
) -> bool:
    """Whether bytes of a message that cannot be read may be secret. `events`: those before them."""
    if api_key is None or version is None or not _is_known(api_key, version):
        return True
    if _has_secrets(api_key, direction):
        return True
    topics = {each.value for each in events if {"topic", "topic_id"} & set(each.roles)}
    return _has_role(api_key, direction, "records") and (
        not topics or not topics.isdisjoint((METADATA_TOPIC, METADATA_TOPIC_ID))
    )


def redacted_bytes(
    data: bytes, api_key: int | None, version: int | None, direction: Direction
) -> str:
    """What to show in place of bytes that may be secret: how many they are, and a hash of them.

    A hash lets a reader compare bodies, but also try passwords. So there is none where the API has
    secrets in the versions that are known, or the message may be a SASL token, which has text in
    place of API and version.
    """
    size = f"{len(data):,} byte{'' if len(data) == 1 else 's'} {REDACTED}"
    if api_key is None or version is None or _has_secrets(api_key, direction):
        return size
    may_be_text = not 0 <= api_key <= LARGEST_VERSION and not 0 <= version <= LARGEST_VERSION
    return (
        size if may_be_text else f"{size}, SHA-256 {hashlib.sha256(data).hexdigest()[:HASH_DIGITS]}"
    )


def _is_known(api_key: int, version: int) -> bool:
    return registry.api_name(api_key) is not None and version in registry.versions(api_key)


def _has_secrets(api_key: int, direction: Direction) -> bool:
    """Whether a known version of an API has a field that may be secret."""
    if registry.api_name(api_key) is None:
        return False
    return any(_has_role(api_key, direction, role) for role in SECRET_ROLES)


@cache
def _has_role(api_key: int, direction: Direction, role: str) -> bool:
    layouts = (registry.layout(api_key, direction, each) for each in registry.versions(api_key))
    return any(_holds(layout.fields, role) for layout in layouts)


def _holds(fields: Iterable[Field], role: str) -> bool:
    return any(role in each.roles or _holds(each.fields, role) for each in fields)
