"""What the bytes of one field hold: a name for it, and its fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from dissector.errors import DecodeError
from dissector.protocol.explain import Explained

NOWHERE: Final = -1
"""Offset of what was not on the wire as it is shown: it was compressed, or encoded."""

TEXT: Final = "text"
"""Type of an event whose value is said in words."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What bytes hold. Offsets of events count from the first of these bytes."""

    name: str
    """In words: ``ConsumerProtocolSubscription version 1``."""
    events: list[Explained] = field(default_factory=list)
    error: DecodeError | None = None
    """What is wrong behind the last event."""
    end: int = 0
    """Where an error leaves off."""


def said(
    name: str,
    value: str | None,
    *,
    type: str = "string",
    offset: int = NOWHERE,
    length: int = 0,
    roles: tuple[str, ...] = (),
) -> Explained:
    """An event of a field that no definition has."""
    return Explained(name, name, type, value, offset, length, 0, roles)
