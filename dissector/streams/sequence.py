"""Sequence arithmetic: conversion between 32-bit sequence numbers and positions.

A sequence number is the offset of a byte in its stream, modulo 2^32 (RFC 9293, section 3.4). All
other code counts in positions: int64, never wrapping, 0 at the stream's origin. A sequence number
stands for the position nearest to a known one; the signed 32-bit difference gives the distance. So
wraps and streams beyond 4 GiB are no special cases.
"""

from __future__ import annotations

import numpy as np

from dissector.packets.block import Int64, UInt32

MODULO = 1 << 32
"""Number of sequence numbers."""


def positions(seq: UInt32, origin: UInt32, near: Int64) -> Int64:
    """The position of each sequence number that is nearest to `near`; all of shape (n,).

    `origin`: the sequence number of position 0.
    """
    return near + ahead(seq, numbers(near, origin))


def numbers(position: Int64, origin: UInt32) -> UInt32:
    """The sequence number of each position."""
    return origin + position.astype(np.uint32)


def ahead(seq: UInt32, reference: UInt32) -> Int64:
    """Distance from a reference to each sequence number; negative if the number is before it."""
    return (seq - reference).view(np.int32).astype(np.int64)
