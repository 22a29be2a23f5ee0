"""Surplus: the bytes behind the last field of a message.

Brokers and clients of Kafka read the fields that a version has, and ignore the bytes behind them.
Clients in use depend on that: librdkafka 0.9 to 1.3 sends ApiVersions v0 with 4 bytes too many, and
librdkafka 2 sends Metadata v9 to v13 of all topics with 3. So surplus bytes are no error. They are
reported: as a problem `surplus_bytes`, and as `Message.surplus`.

A request states its API and version, so any number of surplus bytes is accepted. A response is read
as its request states. If the two do not belong together, or the broker answered in another version,
a layout with few fields fits nearly all bytes and leaves some of them over: librdkafka's mock
cluster answers ApiVersions v3 in a form of its own, which reads as 8 bytes of v3 and 5 more, with a
throttle time of 20 minutes. So the surplus of a response is limited: to `FEW` bytes, or to a part
of what its fields take. A larger one is an error.
"""

from __future__ import annotations

from typing import Final

from dissector.protocol.notation import Direction

FEW: Final = 4
"""The largest surplus that was seen in any message. Responses had 1 byte."""
PART: Final = 4
"""The surplus of a response may take one byte for this many that its fields take."""

LIMITS: Final = {Direction.REQUEST: 1 << 40, Direction.RESPONSE: FEW}
"""Surplus bytes that are accepted whatever the size of the fields. A frame has at most 2^31."""


def is_accepted(direction: Direction, read: int, surplus: int) -> bool:
    """Whether a message may have `surplus` bytes behind the `read` bytes of its body's fields."""
    return surplus <= max(LIMITS[direction], read // PART)
