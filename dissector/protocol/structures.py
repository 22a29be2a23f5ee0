"""Structures of Kafka that travel as bytes inside messages and records.

They have pages in the same notation, and the same decoders read them. The bytes identify the
structure in one of these ways:

- Consumer and Connect protocols, principals and most record values begin with an int16 version. If
  the structure's first field is `version`, that field is the version.
- The key of a coordinator's record (`__consumer_offsets`, `__transaction_state`,
  `__share_group_state`) begins with an int16 type, which selects the structures of key and value.
- A record of `__cluster_metadata` or `__remote_log_metadata` begins with three unsigned varints:
  the framing version, the type and its version.
- The key of a control record has a type, which selects the structure of the value.

An unknown type or version raises UnknownVersion; bytes that do not fit raise DecodeError. Callers
decide what to do with unreadable bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from dissector.arrays import value
from dissector.errors import DecodeError, UnknownVersion
from dissector.protocol.explain import Explanation, explain
from dissector.protocol.notation import Field, Structure
from dissector.protocol.registry import structure, structure_layout, structures
from dissector.protocol.tree_decoder import decode
from dissector.protocol.wire import scalar, unsigned_varint

COORDINATOR_PAGES: Final = {
    "__consumer_offsets": "consumer_offsets",
    "__transaction_state": "transaction_state",
    "__share_group_state": "share_group_state",
}
"""Page of each topic whose record keys contain the type."""

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
"""The id of the metadata topic in every cluster. No message contains its name."""

METADATA_PAGES: Final = {
    METADATA_TOPIC: "cluster_metadata",
    "__remote_log_metadata": "remote_log_metadata",
}
"""Page of each topic whose record values contain type and version."""

RECORD_TOPICS: Final = frozenset({*COORDINATOR_PAGES, *METADATA_PAGES})
"""Topics whose records `decode_record` decodes."""

CONTROL_RECORDS: Final = "control_records"
STREAMS_ASSIGNOR: Final = "stream"
"""Assignor of Kafka Streams, whose user data have structures of Kafka Streams."""

_FRAMING: Final = 1
_int16 = scalar("int16", False, False)


@value
class DecodedStructure:
    """A decoded structure."""

    name: str
    """As on the page: ``ConsumerProtocolSubscription``."""
    version: int | None
    """None for a coordinator's record without a value."""
    body: dict[str, Any]
    """As `tree_decoder.decode` returns it."""


@value
class StructureBytes:
    """A structure inside bytes: which one, and where."""

    name: str
    version: int
    start: int
    """Offset of its first field."""

    def decode(self, data: bytes) -> dict[str, Any]:
        """Decode its fields. Raises DecodeError."""
        return decode(structure_layout(self.name, self.version), data, self.start)

    def explain(self, data: bytes) -> Explanation:
        """Explain its fields."""
        return explain(structure_layout(self.name, self.version), data, self.start)


def decode_versioned(name: str, data: bytes) -> DecodedStructure:
    """Decode a structure that begins with its version, or has it in its first field."""
    return _decoded(versioned_structure(name, data), data)


def versioned_structure(name: str, data: bytes) -> StructureBytes:
    """Version and position of such a structure."""
    first = structure(name).lines[0]
    inside = first.name == "version"
    version, end = scalar(first.type if inside else "int16", False, False)(data, 0)
    return StructureBytes(name, version, 0 if inside else end)


def record_structures(
    topic: str | None, key: bytes | None, value: bytes | None, *, is_control: bool = False
) -> tuple[StructureBytes | None, StructureBytes | None]:
    """The structures in key and value of a record; None where there is none. Raises DecodeError.

    `is_control`: a record of a control batch, which is a transaction marker or a record of KRaft.
    """
    if is_control:
        return None, _control_structure(key or b"", value or b"")
    if topic in METADATA_PAGES and value is not None:
        return None, _metadata_structure(METADATA_PAGES[topic], value)
    if topic not in COORDINATOR_PAGES or key is None:
        return None, None
    kind, at = _int16(key, 0)
    of_key, of_value = _of_type(COORDINATOR_PAGES[topic], kind)
    structure = None if value is None else versioned_structure(of_value.name, value)
    return StructureBytes(of_key.name, 0, at), structure


def decode_record(topic: str, key: bytes | None, value: bytes | None) -> DecodedStructure:
    """Decode a record of one of `RECORD_TOPICS` that is not a control record.

    The name of a coordinator's record has no suffix Key or Value; its body has `key` and `value`.
    """
    of_key, of_value = record_structures(topic, key, value)
    if of_key is None or key is None:
        if of_value is None or value is None:
            part = "value" if topic in METADATA_PAGES else "key"
            raise DecodeError(f"the record has no {part}", offset=0)
        return _decoded(of_value, value)
    body = {"key": of_key.decode(key), "value": None}
    name = of_key.name.removesuffix("Key")
    if of_value is None or value is None:
        return DecodedStructure(name, None, body)
    return DecodedStructure(name, of_value.version, body | {"value": of_value.decode(value)})


def _metadata_structure(page: str, value: bytes) -> StructureBytes:
    """The structure in the value of a record of `METADATA_PAGES`, or of a KRaft snapshot."""
    framing, at = unsigned_varint(value, 0)
    if framing != _FRAMING:
        raise UnknownVersion(f"unknown framing version {framing} in {page}", offset=0)
    kind, at = unsigned_varint(value, at)
    version, at = unsigned_varint(value, at)
    return StructureBytes(_of_type(page, kind)[0].name, version, at)


def decode_control_record(key: bytes, value: bytes) -> DecodedStructure:
    """Decode a record of a control batch."""
    return _decoded(_control_structure(key, value), value)


def _control_structure(key: bytes, value: bytes) -> StructureBytes:
    _, at = _int16(key, 0)  # the version of the key has no effect
    kind, _ = _int16(key, at)
    return versioned_structure(_of_type(CONTROL_RECORDS, kind)[0].name, value)


def _decoded(part: StructureBytes, data: bytes) -> DecodedStructure:
    return DecodedStructure(part.name, part.version, part.decode(data))


@cache
def _of_type(page: str, kind: int) -> Sequence[Structure]:
    """The structures of a page with this type, in the page's order: key before value."""
    matches = [each for each in structures(page).values() if kind in each.types]
    if not matches:
        raise UnknownVersion(f"unknown type {kind} in {page}", offset=0)
    return matches


def unfold_structures(
    fields: Sequence[Field],
    body: Mapping[str, Any],
    protocol_type: str | None = None,
    protocol_name: str | None = None,
) -> dict[str, Any]:
    """A body in which structures, as dicts, replace the bytes that contain them.

    `fields`: the fields of the body's layout. A dict has `structure` (the name), `version` and the
    structure's fields. Bytes that are not a structure, or cannot be decoded, stay as they are.

    In most versions, a field next to the bytes or around them names the protocol of the group.
    Otherwise the known protocols are tried; the bytes must fit one of them completely.
    """
    for item in fields:
        value = body.get(item.name)
        if isinstance(value, str):
            protocol_type = value if "protocol_type" in item.roles else protocol_type
            protocol_name = value if "protocol_name" in item.roles else protocol_name
    return {
        item.name: _unfold_value(item, body[item.name], protocol_type, protocol_name)
        for item in fields
        if item.name in body
    }


def _unfold_value(
    item: Field, value: Any, protocol_type: str | None, protocol_name: str | None
) -> Any:
    if isinstance(value, list):
        return [_unfold_value(item, each, protocol_type, protocol_name) for each in value]
    if isinstance(value, dict):
        return unfold_structures(item.fields, value, protocol_type, protocol_name)
    if not isinstance(value, bytes) or not value:
        return value
    matches = recognise(item.roles, value, protocol_type, protocol_name)
    if matches is None:
        return value
    candidate, read = matches
    inner = structure_layout(read.name, read.version or 0).fields
    body = unfold_structures(inner, read.body, candidate.protocol_type, protocol_name)
    return {"structure": read.name, "version": read.version, **body}


def recognise(
    roles: Iterable[str],
    value: bytes,
    protocol_type: str | None = None,
    protocol_name: str | None = None,
) -> tuple[Candidate, DecodedStructure] | None:
    """The structure in the bytes of a field with these roles; None if none fits."""
    for role in roles:
        for candidate in _EMBEDDED.get(role, ()):
            if candidate.fits(protocol_type, protocol_name):
                try:
                    return candidate, decode_versioned(candidate.name, value)
                except DecodeError:
                    continue
    return None


@value
class Candidate:
    """A structure that the bytes of a role may contain, in groups of a protocol."""

    name: str
    protocol_type: str | None = None
    protocol_name: str | None = None

    def fits(self, protocol_type: str | None, protocol_name: str | None) -> bool:
        """Whether the protocol, as far as it is known, allows this structure."""
        return (self.protocol_type in (None, protocol_type) or protocol_type is None) and (
            self.protocol_name in (None, protocol_name) or protocol_name is None
        )


_EMBEDDED: Final[Mapping[str, Sequence[Candidate]]] = {
    "consumer_subscription": (
        Candidate("ConsumerProtocolSubscription", "consumer"),
        Candidate("ConnectSubscription", "connect"),
    ),
    "consumer_assignment": (
        Candidate("ConsumerProtocolAssignment", "consumer"),
        Candidate("ConnectAssignment", "connect"),
    ),
    "subscription_user_data": (Candidate("SubscriptionInfo", "consumer", STREAMS_ASSIGNOR),),
    "assignment_user_data": (Candidate("AssignmentInfo", "consumer", STREAMS_ASSIGNOR),),
    "principal": (Candidate("DefaultPrincipalData"),),
}

EMBEDDED_ROLES: Final = frozenset(_EMBEDDED)
"""Roles of fields that may contain a structure."""
