"""The notation of the protocol: a page of text per API, parsed into a tree of fields.

A page has one section for each direction; a line is a field, indentation makes the fields of a
struct:

    api 0 Produce   versions 0-13   flexible 9+
    # 3: transactional_id; records are v2 batches from here on
    request
      transactional_id   string?   3+     @transactional_id
      acks               int16            @acks
      topic_data         []
        name             string    0-12   @topic
        partition_data   []
          index          int32            @partition
          records        records?

Columns: name, type, versions (none: all), roles. `?` nullable (`?3+`: from version 3 on), `[]` array
of struct, `{}` struct, `[int32]` array of a primitive, `tag 0` a tagged field, `#` a comment. What is
encoded compactly, and where tagged sections stand, follows from `flexible`.

`Layout` is one version of one direction: the fields that it has, in wire order, everything that
depends on the version decided. It is all that the walkers read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Direction(IntEnum):
    """Index of a direction; the value serves as an array element."""

    REQUEST = 0
    RESPONSE = 1


@dataclass(frozen=True, slots=True)
class Field:
    """One field of one version."""

    name: str
    """snake_case, as in Kafka's protocol guide."""
    type: str
    """bool, int8, int16, uint16, int32, uint32, int64, float64, uuid, string, bytes, records, struct."""
    is_array: bool = False
    """An array of `type`."""
    nullable: bool = False
    """The array where it is one, else the value, may be null."""
    tag: int | None = None
    """Number of a tagged field; None where the field is not tagged."""
    roles: tuple[str, ...] = ()
    """What the tables make of it, without the @."""
    fields: tuple[Field, ...] = ()
    """Of a struct or an array of structs: in wire order, tagged ones last, by tag."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One version of one direction of one API: what both walkers read."""

    api_key: int
    api: str
    direction: Direction
    version: int
    flexible: bool
    """Compact lengths and tagged sections (KIP-482)."""
    header_version: int
    fields: tuple[Field, ...]
