"""Varints: the variable-length integers inside record batches, as columns.

A varint is base 128, least significant group first; the high bit of a byte means that another byte
follows. Kafka writes signed numbers in zigzag form (0, -1, 1, -2, … as 0, 1, 2, 3, …), in at most
10 bytes. Nearly all take one or two bytes, so two bytes are looked up in a table of 65,536 entries.
Longer ones are read byte by byte, all at once.

Positions must be in [0, len(data) - PAD]; no read goes beyond `data`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Bytes, Int64

MAX_WIDTH = 10
"""Bytes of the longest varint, which has 64 bits."""


def words(data: Bytes, width: int) -> NDArray[np.unsignedinteger]:
    """An overlapping view: element i is the little-endian number of `width` bytes at byte i."""
    return np.ndarray((len(data) - width + 1,), f"<u{width}", data, strides=(1,))


def unzigzag(raw: NDArray[np.uint64]) -> Int64:
    """Decode zigzag numbers."""
    return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64)


def _table() -> Int64:
    word = np.arange(1 << 16, dtype=np.uint64)
    long = (word & np.uint64(0x80)) != 0
    raw = word & np.uint64(0x7F)
    raw[long] |= (word[long] >> np.uint64(1)) & np.uint64(0x3F80)
    width = np.where(long, 2, 1)
    width[(word & np.uint64(0x8080)) == np.uint64(0x8080)] = 0
    return unzigzag(raw) << 2 | width


SHORT = _table()
"""The varint in the low bytes of a 16-bit little-endian word: its value times 4, plus its width of
1 or 2 bytes; width 0 if it is longer. int64, shape (65536,)."""


def value_of(short: Int64) -> Int64:
    """The values of entries of `SHORT`."""
    return short >> 2


def width_of(short: Int64) -> Int64:
    """The widths of entries of `SHORT`."""
    return short & 3


def read(data: Bytes, at: Int64) -> tuple[Int64, Int64]:
    """The signed varint at each position, and the position after it.

    A varint that does not end within `MAX_WIDTH` bytes or the data is 0, and ends after all data.
    """
    short = SHORT[words(data, 2)[at].astype(np.intp)]
    value, width = value_of(short), width_of(short)
    if width.all():
        return value, at + width
    long = np.flatnonzero(width == 0)
    end = at + width
    value[long], end[long] = _read_long(data, at[long])
    return value, end


def _read_long(data: Bytes, at: Int64) -> tuple[Int64, Int64]:
    """`read`, one byte of all varints per step."""
    raw = np.zeros(len(at), np.uint64)
    end = np.full(len(at), len(data) + 1)
    going = np.arange(len(at))
    for step in range(MAX_WIDTH):
        position = at[going] + step
        position = np.minimum(position, len(data) - 1)
        byte = data[position].astype(np.uint64)
        raw[going] |= (byte & np.uint64(0x7F)) << np.uint64(7 * step)
        last = byte < np.uint64(0x80)
        end[going[last]] = position[last] + 1
        going = going[~last]
        if not len(going):
            break
    raw[going] = 0
    return unzigzag(raw), end


def read_one(data: memoryview, at: int, stop: int) -> tuple[int, int]:
    """The signed varint at `at`, and the position after it, or -1 if it does not end by `stop`."""
    raw = shift = 0
    for position in range(at, min(at + MAX_WIDTH, stop)):
        byte = data[position]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFF_FFFF_FFFF_FFFF
            return (raw >> 1) ^ -(raw & 1), position + 1
        shift += 7
    return 0, -1
