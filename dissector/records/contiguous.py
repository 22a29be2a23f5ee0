"""Contiguous memory for address ranges, without a copy where the bytes are contiguous already.

Checksums and decompressors need memory, not addresses.
"""

from __future__ import annotations

import numpy as np

from dissector import _native
from dissector.byteview import ByteView, offsets_of
from dissector.packets.block import PAD, Bytes, Int64

MAX_ROW = (1 << 31) - 1
"""Longest array: Arrow views have 32-bit positions."""


def as_contiguous(space: ByteView, start: Int64, length: Int64) -> tuple[Bytes, Int64]:
    """An array with PAD bytes of padding at its end, and the position of each range in it.

    It is the array of `space` if each range is contiguous in it, otherwise a copy, in which lost
    bytes are zeros. `length` is 0 or more.
    """
    data = space.data
    if PAD <= len(data) <= MAX_ROW + PAD and (len(space.address) or not len(start)):
        piece = np.maximum(np.searchsorted(space.address, start, side="right") - 1, 0)
        begin = start - space.address[piece]
        at = begin + space.position[piece]
        is_inside = (begin >= 0) & (begin + length <= space.length[piece])
        if (is_inside & (at + length <= len(data) - PAD)).all():
            return data, at
    offsets = offsets_of(length)
    copies = np.zeros(int(offsets[-1]) + PAD, np.uint8)
    start, length = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(length, np.int64)
    _native.copy_ranges(*space.pieces, start, length, copies)
    return copies, offsets[:-1]
