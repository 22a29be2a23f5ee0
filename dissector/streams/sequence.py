"""Sequence arithmetic: the one home of 32-bit sequence numbers.

A sequence number says where in a stream a byte stands, modulo 2^32 (RFC 9293, section 3.4). All
other code counts in positions: int64, never wrapping, 0 at the stream's origin. A sequence number
means the position nearest to one that is known, which the signed 32-bit difference tells. So wraps
and streams beyond 4 GiB need no case.
"""

from __future__ import annotations

import numpy as np

from dissector.packets.block import Int64, UInt32


def positions(seq: UInt32, origin: UInt32, near: Int64) -> Int64:
    """The position of each sequence number that is nearest to `near`; all of shape (n,).

    `origin`: the sequence number of position 0.
    """
    return near + ahead(seq, numbers(near, origin))


def numbers(position: Int64, origin: UInt32) -> UInt32:
    """The sequence number of each position."""
    return origin + position.astype(np.uint32)


def ahead(seq: UInt32, reference: UInt32) -> Int64:
    """How far each sequence number lies ahead of a reference; negative behind it."""
    return (seq - reference).view(np.int32).astype(np.int64)
