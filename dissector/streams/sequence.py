"""Sequence numbers (RFC 9293, section 3.4): 32 bits that wrap, beside positions that do not.

A position counts the bytes of a stream in 64 bits. A sequence number is the low 32 bits of a
position plus the stream's first sequence number, so the difference of two numbers less than 2 GiB
apart, as a signed 32-bit number, is the difference of their positions, across any wrap.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Int64


def difference(sequence: NDArray[np.integer] | int, reference: NDArray[np.integer] | int) -> Int64:
    """How far each sequence number is ahead of the reference, in [-2**31, 2**31); int64."""
    apart = np.asarray(sequence, np.int64) - np.asarray(reference, np.int64)
    return np.asarray(((apart + (1 << 31)) & 0xFFFFFFFF) - (1 << 31), np.int64)
