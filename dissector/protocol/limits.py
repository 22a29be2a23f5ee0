"""Limits of a message: array elements, and surplus bytes after the last field.

An element takes about a hundred bytes as a row, so a message of empty names would take fifty times
its size. Kafka's elements take four bytes or more each. A message whose arrays announce more
elements than a quarter of its bytes, or more than two million, is therefore not decoded. The column
decoders and `explain` check the announced counts before they read elements.

Brokers and clients of Kafka read the fields of a version and ignore the bytes after them. Clients
depend on that: librdkafka 0.9 to 1.3 sends ApiVersions v0 with 4 surplus bytes, and librdkafka 2
sends Metadata v9 to v13 for all topics with 3. So surplus bytes are no error. They are reported: as
a problem `surplus_bytes`, and as `Message.surplus`.

A request contains its API and version, so any number of surplus bytes is accepted. A response is
decoded by the version of its request. If the two do not belong together, or the broker responded in
another version, a layout with few fields fits almost any bytes and leaves a surplus: librdkafka's
mock cluster responds to ApiVersions v3 in its own form, which decodes as 8 bytes of v3 and a
surplus of 5, with a throttle time of 20 minutes. So the surplus of a response is limited to `FEW`
bytes, or to a fraction of the size of its fields. A larger surplus is an error.
"""

from __future__ import annotations

from typing import Final

from dissector.protocol.notation import Direction

MIN_LIMIT: Final = 1 << 14
"""Elements that a message of any size may have."""
MAX_LIMIT: Final = 1 << 21
ELEMENT_BYTES: Final = 4
"""Smallest size of an element, for messages with more than `MIN_LIMIT` elements."""

FEW: Final = 4
"""The largest surplus observed in a message. Responses had at most 1 byte."""
PART: Final = 4
"""A response may have one surplus byte per this number of bytes in its fields."""

ANY: Final = 1 << 40
"""More than the bytes of any frame, which has at most 2^31."""
LIMITS: Final = {Direction.REQUEST: ANY, Direction.RESPONSE: FEW}
"""Surplus bytes accepted for any size of the fields."""


def most_elements(size: int) -> int:
    """The number of elements that a body of `size` bytes may have."""
    return max(MIN_LIMIT, min(size // ELEMENT_BYTES, MAX_LIMIT))


def is_accepted(direction: Direction, read: int, surplus: int) -> bool:
    """Whether a message may have `surplus` bytes after the `read` bytes of its fields."""
    return surplus <= max(LIMITS[direction], read // PART)
