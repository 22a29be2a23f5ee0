"""Finds the records of a capture file: each has its length, and so the position of the next one."""

from __future__ import annotations

import numpy as np

from dissector import _native
from dissector.arrays import arrays
from dissector.packets.block import Bytes, Int64

CHAIN_LIMIT = 1 << 17
"""Records to follow before validation: this limits the cost of a wrong chain."""


@arrays
class Steps:
    """The step from a record to the next one."""

    size_at: int
    """Offset of the size, 4 bytes, in a record."""
    header: int
    """Number to add to the size."""
    least: int
    """Minimum distance to the next record."""
    most: int
    """Maximum size; the chain ends with a record of a larger one."""
    stop: int = 0
    """Number at the beginning of a record that ends the chain; 0 if there is none."""


def follow(data: Bytes, begin: int, end: int, order: str, steps: Steps) -> Int64:
    """Positions, ascending, of the records of the chain that begins at `begin`.

    `end`: after the last position at which a record may begin.
    """
    most = max(end - begin, 0) // max(steps.header, steps.least) + 1
    positions = np.empty(min(most, CHAIN_LIMIT), np.int64)
    count = _native.follow_chain(
        data, begin, end, order == ">",
        steps.size_at, steps.header, steps.least, steps.most, steps.stop, positions,
    )  # fmt: skip
    return positions[:count]
