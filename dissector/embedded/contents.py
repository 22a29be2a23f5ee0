"""The decoded content of a field: its name and its fields."""

from __future__ import annotations

from dataclasses import field
from typing import Final

from dissector.arrays import value
from dissector.errors import DecodeError
from dissector.protocol.explain import Explained

NOWHERE: Final = -1
"""Offset of values that were compressed or encoded on the wire."""

TEXT: Final = "text"
"""Type of an event whose value is a description."""


@value
class Contents:
    """The content of bytes. Offsets of events are relative to the first byte."""

    name: str
    """A description: ``ConsumerProtocolSubscription version 1``."""
    events: list[Explained] = field(default_factory=list)
    error: DecodeError | None = None
    """The error after the last event."""
    end: int = 0
    """Offset of the first byte that could not be decoded."""


def field_event(
    name: str,
    value: str | None,
    *,
    type: str = "string",
    offset: int = NOWHERE,
    length: int = 0,
    roles: tuple[str, ...] = (),
) -> Explained:
    """An event for a field without a definition."""
    return Explained(name, name, type, value, offset, length, 0, roles)
