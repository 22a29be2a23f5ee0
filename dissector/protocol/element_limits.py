"""Limits on the number of array elements in a message.

An element takes about a hundred bytes as a row, so a message of empty names would take fifty times
its size. Kafka's elements take four bytes or more each. A message whose arrays announce more
elements than a quarter of its bytes, or more than two million, is therefore not decoded. The column
decoders and `explain` check the announced counts before they read elements.
"""

from __future__ import annotations

from typing import Final

MIN_LIMIT: Final = 1 << 14
"""Elements that a message of any size may have."""
MAX_LIMIT: Final = 1 << 21
ELEMENT_BYTES: Final = 4
"""Smallest size of an element, for messages with more than `MIN_LIMIT` elements."""


def most_elements(size: int) -> int:
    """The number of elements that a body of `size` bytes may have."""
    return max(MIN_LIMIT, min(size // ELEMENT_BYTES, MAX_LIMIT))
