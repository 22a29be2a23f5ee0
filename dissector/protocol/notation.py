"""The notation of the definition pages, and the classes of a parsed page.

An API has a page of text. A page has a section for each direction. A line is a field; indentation
marks the fields of a struct:

    api 0 Produce   versions 0-13   flexible 9+
    client throttles 6+
    removed 0-2 in 4.0: cannot produce
    # 3: transactional_id; records are v2 batches from here on

    request
      transactional_id   string?   3+     @transactional_id
      acks               int16            @acks
      topic_data         []
        name             string    0-12   @topic
        topic_id         uuid      13+    @topic_id
        partition_data   []
          index          int32            @partition
          records        records?

    response
      ...

The header line has the API's key, its name, its versions, and its flexible versions or ``none``.
A section follows Kafka's rule for headers (request 1, response 0, plus one in a flexible version)
unless its line states a header: ``response   header 0``, or for some versions only, ``request
header 0   0``.

Facts about the API may follow the header line, each at most once:

- ``client throttles 6+``: in these versions the broker sends a throttled response at once, and the
  client waits for the throttle time. In earlier versions the broker held the response back
  (KIP-219). Default: all versions.
- ``removed 0-2 in 4.0: cannot produce``: versions that a release of Kafka removed, the release,
  and the effect on clients that know no newer version.
- ``long poll``: a request waits at the broker until there is data, up to ``@max_wait_ms``.
- ``group barrier``: a request waits at the broker for the other members of its group.

A field line has the columns name, type, versions, tag and roles. Their form identifies them;
alignment is for readers.

- Type: bool, int8, int16, uint16, int32, uint32, int64, float64, uuid, string, bytes, records;
  ``{}`` a struct; ``[]`` an array of structs; ``[int32]`` an array of another type. ``?`` means
  nullable, ``?3+`` nullable in these versions only.
- Versions: ``3``, ``3+``, ``0-2``. Default: all versions of the enclosing struct or section. A
  field whose type or position depends on the version has two lines with disjoint versions.
- ``tag 0``: a tagged field with its number (KIP-482). Tagged fields come last on the wire.
- ``@topic``: roles; `roles` describes them.
- ``#`` starts a comment, up to the end of the line.

``flexible`` determines which lengths are compact and where tagged sections are.

Structures inside messages and records have pages too, several per page: a header line ``structure
OffsetCommitValue   versions 0-4   flexible 4+``, and the fields below it. If a number selects the
structure, the header line ends with ``type 3`` or ``type 0-1``.

`Layout` is one version of one direction: its fields in wire order. Nothing in it depends on the
version any more. The decoders read layouts only.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, TypeAlias

from dissector.arrays import value

WIDTHS: Final = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8,
    "float64": 8, "uuid": 16,
}  # fmt: skip
"""Bytes of the types of fixed width."""


class Direction(IntEnum):
    """Index of a direction; the value serves as an array element."""

    REQUEST = 0
    RESPONSE = 1


@value
class Field:
    """One field of one version."""

    name: str
    """In snake_case, as in Kafka's protocol guide."""
    type: str
    """``struct``, or a type of the notation."""
    is_array: bool = False
    """Whether the field is an array of `type`."""
    nullable: bool = False
    """Whether the array, or the value of a field without array, may be null."""
    tag: int | None = None
    """Number of a tagged field; None for an untagged field."""
    roles: tuple[str, ...] = ()
    """Roles, without the @."""
    fields: tuple[Field, ...] = ()
    """Of a struct or an array of structs: in wire order, tagged fields last, by tag."""


@value
class Layout:
    """One version of one direction of an API: what the decoders read."""

    api_key: int
    api: str
    direction: Direction
    version: int
    flexible: bool
    """Compact lengths and tagged sections (KIP-482)."""
    header_version: int
    fields: tuple[Field, ...]

    def __hash__(self) -> int:
        # Key, direction and version identify a layout; hashing all fields would be slow.
        return hash((self.api_key, self.direction, self.version))


@value
class StructureLayout:
    """One version of a structure inside a message or record."""

    name: str
    version: int
    flexible: bool
    fields: tuple[Field, ...]

    def __hash__(self) -> int:
        return hash((self.name, self.version))


Definition: TypeAlias = Layout | StructureLayout


@value
class FieldLine:
    """One line of a page: a field in the versions of the line."""

    name: str
    type: str
    is_array: bool
    versions: range
    nullable: range
    """Versions in which the field may be null."""
    tag: int | None
    roles: tuple[str, ...]
    lines: tuple[FieldLine, ...]


@value
class PageSection:
    """The lines of one direction of an API, or of a structure."""

    lines: tuple[FieldLine, ...]
    header: int | None = None
    """Header version, if it differs from Kafka's rule."""
    header_versions: range = range(0)
    """Versions in which `header` replaces the rule."""


@value
class Removal:
    """Versions of an API that a release of Kafka removed."""

    versions: range
    release: str
    """Such as 4.0."""
    effect: str
    """What clients that know no newer version cannot do with this release."""


@value
class Api:
    """An API without its fields: the first lines of its page."""

    key: int
    name: str
    versions: range
    flexible: range
    client_throttles: range
    """Versions in which a throttled client waits by itself; before, brokers held the response."""
    removal: Removal | None = None
    is_long_poll: bool = False
    """Requests wait at the broker until there is data."""
    is_group_barrier: bool = False
    """Requests wait at the broker for the other members of their group."""

    @property
    def kept_since(self) -> int | None:
        """The first version that was not removed; None where all of them were."""
        if self.removal is None:
            return self.versions[0]
        kept = self.removal.versions.stop
        return kept if kept in self.versions else None


@value
class Page:
    """The page of one API."""

    api: Api
    sections: tuple[PageSection, PageSection]
    """By direction."""

    def layout(self, direction: Direction, version: int) -> Layout:
        """One version of one direction; `version` is one of the API's versions."""
        section = self.sections[direction]
        flexible = version in self.api.flexible
        header = (0 if direction is Direction.RESPONSE else 1) + flexible
        if section.header is not None and version in section.header_versions:
            header = section.header
        fields = _fields(section.lines, version)
        return Layout(self.api.key, self.api.name, direction, version, flexible, header, fields)


@value
class Structure:
    """All versions of a structure."""

    name: str
    versions: range
    flexible: range
    types: range
    """Numbers that select the structure among those of its page; empty if it has none."""
    lines: tuple[FieldLine, ...]

    def layout(self, version: int) -> StructureLayout:
        """One version; `version` is one of `versions`."""
        fields = _fields(self.lines, version)
        return StructureLayout(self.name, version, version in self.flexible, fields)


def _fields(lines: Sequence[FieldLine], version: int) -> tuple[Field, ...]:
    present = [line for line in lines if version in line.versions]
    present.sort(key=lambda line: -1 if line.tag is None else line.tag)
    return tuple(
        Field(
            line.name,
            line.type,
            line.is_array,
            version in line.nullable,
            line.tag,
            line.roles,
            _fields(line.lines, version),
        )
        for line in present
    )
