"""How many elements the arrays of a message may have in all.

An element of an array takes about a hundred bytes once it is a row. So a message of empty names
would take fifty times its size. Kafka's elements take four bytes or more each: a message that
announces more elements than a quarter of its bytes, or more than two million, is not decoded.
Both column walkers and the explaining walker count the elements that arrays announce, before they
walk them.
"""

from __future__ import annotations

from typing import Final

MIN_LIMIT: Final = 1 << 14
"""So many elements a message of any size may have."""
MAX_LIMIT: Final = 1 << 21
ELEMENT_BYTES: Final = 4
"""Bytes that an element takes at least, where there are more than `MIN_LIMIT`."""


def most_elements(size: int) -> int:
    """How many elements a body of that many bytes may have."""
    return max(MIN_LIMIT, min(size // ELEMENT_BYTES, MAX_LIMIT))
