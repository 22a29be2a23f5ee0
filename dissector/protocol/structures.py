"""Kafka's own structures: what travels as bytes inside messages and records.

They are written down in the same notation, and read by the same walkers. What differs is how the
bytes tell what they are:

- a version comes first, an int16, in consumer and Connect protocols, principals and the values of
  most records; where the structure's first field is itself `version`, that field is it;
- the key of a record of a coordinator (`__consumer_offsets`, `__transaction_state`,
  `__share_group_state`) begins with an int16 type, which says what key and value are;
- a record of `__cluster_metadata` or `__remote_log_metadata` begins with three unsigned varints:
  the version of this framing, the type, its version;
- the key of a control record has a type, which says what the value is.

A type or version that is not known raises UnknownVersion, bytes that are not what they say
DecodeError: what to do with bytes that cannot be read is for the caller to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

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
"""Page of each topic whose records have a key that tells the type."""

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
"""Its id is the same in every cluster, and no message tells its name beside it."""

METADATA_PAGES: Final = {
    METADATA_TOPIC: "cluster_metadata",
    "__remote_log_metadata": "remote_log_metadata",
}
"""Page of each topic whose records have a value that tells type and version."""

RECORD_TOPICS: Final = frozenset({*COORDINATOR_PAGES, *METADATA_PAGES})
"""Topics whose records `decode_record` reads."""

CONTROL_RECORDS: Final = "control_records"
STREAMS_ASSIGNOR: Final = "stream"
"""Name of the assignor of Kafka Streams: its user data are Streams' own."""

_FRAMING: Final = 1
_int16 = scalar("int16", False, False)


@dataclass(frozen=True, slots=True)
class DecodedStructure:
    """A structure that was read."""

    name: str
    """As in the pages: ``ConsumerProtocolSubscription``."""
    version: int | None
    """None of a coordinator's record that has no value."""
    body: dict[str, Any]
    """As `decode` gives it."""


@dataclass(frozen=True, slots=True)
class StructureBytes:
    """A structure within bytes that tell what it is."""

    name: str
    version: int
    start: int
    """Where its fields begin."""

    def decode(self, data: bytes) -> dict[str, Any]:
        """Its fields. Raises DecodeError."""
        return decode_structure(self.name, self.version, data, self.start)

    def explain(self, data: bytes) -> Explanation:
        """Every field of it."""
        return explain(structure_layout(self.name, self.version), data, self.start)


def decode_structure(name: str, version: int, data: bytes, start: int = 0) -> dict[str, Any]:
    """The bytes from `start` to the end as one version of a structure."""
    return decode(structure_layout(name, version), data, start)


def decode_versioned(name: str, data: bytes) -> DecodedStructure:
    """A structure that tells its version first, or in its first field."""
    return _decoded(versioned_structure(name, data), data)


def versioned_structure(name: str, data: bytes) -> StructureBytes:
    """Where the fields of such a structure are."""
    first = structure(name).lines[0]
    inside = first.name == "version"
    version, end = scalar(first.type if inside else "int16", False, False)(data, 0)
    return StructureBytes(name, version, 0 if inside else end)


def decode_record(topic: str, key: bytes | None, value: bytes | None) -> DecodedStructure:
    """A record of one of `RECORD_TOPICS`, which is no control record.

    A coordinator's record is named without Key or Value, and its body has `key` and `value`.
    """
    if topic in METADATA_PAGES:
        if value is None:
            raise DecodeError("the record has no value", offset=0)
        return decode_metadata_record(METADATA_PAGES[topic], value)
    if key is None:
        raise DecodeError("the record has no key", offset=0)
    of_key, of_value = coordinator_structures(COORDINATOR_PAGES[topic], key, value)
    body = {"key": of_key.decode(key), "value": None}
    name = of_key.name.removesuffix("Key")
    if of_value is None or value is None:
        return DecodedStructure(name, None, body)
    return DecodedStructure(name, of_value.version, body | {"value": of_value.decode(value)})


def coordinator_structures(
    page: str, key: bytes, value: bytes | None
) -> tuple[StructureBytes, StructureBytes | None]:
    """Where the structures of key and value are in a record of one of `COORDINATOR_PAGES`."""
    kind, at = _int16(key, 0)
    of_key, of_value = _of_type(page, kind)
    return (
        StructureBytes(of_key.name, 0, at),
        None if value is None else versioned_structure(of_value.name, value),
    )


def decode_metadata_record(page: str, value: bytes) -> DecodedStructure:
    """The value of a record of one of `METADATA_PAGES`, or of a KRaft snapshot."""
    return _decoded(metadata_structure(page, value), value)


def metadata_structure(page: str, value: bytes) -> StructureBytes:
    """Where the structure of such a value is."""
    framing, at = unsigned_varint(value, 0)
    if framing != _FRAMING:
        raise UnknownVersion(f"{page} has no framing version {framing} here", offset=0)
    kind, at = unsigned_varint(value, at)
    version, at = unsigned_varint(value, at)
    return StructureBytes(_of_type(page, kind)[0].name, version, at)


def decode_control_record(key: bytes, value: bytes) -> DecodedStructure:
    """A record of a control batch: a transaction's marker, or one of KRaft's."""
    return _decoded(control_structure(key, value), value)


def control_structure(key: bytes, value: bytes) -> StructureBytes:
    """Where the structure of such a record's value is."""
    _, at = _int16(key, 0)  # the key's version, which nothing depends on
    kind, _ = _int16(key, at)
    return versioned_structure(_of_type(CONTROL_RECORDS, kind)[0].name, value)


def _decoded(part: StructureBytes, data: bytes) -> DecodedStructure:
    return DecodedStructure(part.name, part.version, part.decode(data))


@cache
def _of_type(page: str, kind: int) -> Sequence[Structure]:
    """The structures of a page that a type tells, in the page's order: key before value."""
    found = [each for each in structures(page).values() if kind in each.types]
    if not found:
        raise UnknownVersion(f"no type {kind} is known in {page}", offset=0)
    return found


def unfold_structures(
    fields: Sequence[Field],
    body: Mapping[str, Any],
    protocol_type: str | None = None,
    protocol_name: str | None = None,
) -> dict[str, Any]:
    """A body, with the structures that it holds as bytes in the place of those bytes.

    `fields` are those of the body's layout. A structure is a dict of `structure` (its name),
    `version` and its own fields. Bytes that are none, or cannot be read, stay.

    Which protocol a group speaks is told beside the bytes, or farther out, in most versions; where
    it is not, those that are known are tried, and the bytes must fit one to the last.
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
    found = recognise(item.roles, value, protocol_type, protocol_name)
    if found is None:
        return value
    candidate, read = found
    inner = structure_layout(read.name, read.version or 0).fields
    body = unfold_structures(inner, read.body, candidate.protocol_type, protocol_name)
    return {"structure": read.name, "version": read.version, **body}


def recognise(
    roles: Iterable[str],
    value: bytes,
    protocol_type: str | None = None,
    protocol_name: str | None = None,
) -> tuple[Candidate, DecodedStructure] | None:
    """The structure that bytes of a field with these roles hold; None where it is none of them."""
    for role in roles:
        for candidate in _EMBEDDED.get(role, ()):
            if candidate.fits(protocol_type, protocol_name):
                try:
                    return candidate, decode_versioned(candidate.name, value)
                except DecodeError:
                    continue
    return None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A structure that bytes of a role may be, in groups of a protocol."""

    name: str
    protocol_type: str | None = None
    protocol_name: str | None = None

    def fits(self, protocol_type: str | None, protocol_name: str | None) -> bool:
        """Whether nothing that is known speaks against it."""
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
"""Roles of fields that may hold a structure."""
