"""Byte views: later stages read scattered bytes as if they were contiguous.

The bytes of a message that spans packets lie in several pieces of the block's data. Joining the
pieces would copy each byte of a bulk transfer, although later stages read few of them. So they read
through a view: an address counts bytes in stream order, and the view maps addresses to positions
in the data.

`ContiguousBytes` are a view of one piece whose addresses are positions: of messages inside one
packet, or of other bytes. Addresses between two pieces (lost bytes) read as zero; the caller knows
how far a frame is readable.

Contract: addresses lie in [0, size], and reads of up to eight bytes at any such address stay inside
memory. Callers clip addresses to their frame before every gather.
"""

from __future__ import annotations

import numpy as np

from dissector import _native
from dissector.packets.block import PAD, Bytes, Int64

_ZERO = np.zeros(1, np.int64)


def offsets_of(length: Int64) -> Int64:
    """The n + 1 offsets of n ranges, one after the other."""
    offsets = np.zeros(len(length) + 1, np.int64)
    np.cumsum(length, out=offsets[1:])
    return offsets


def ranges(start: Int64, length: Int64) -> tuple[Int64, Int64]:
    """The positions in n ranges, concatenated, and their n + 1 offsets."""
    offsets = offsets_of(length)
    positions = np.arange(offsets[-1], dtype=np.int64)
    positions += np.repeat(start - offsets[:-1], length)
    return positions, offsets


def copy_ranges(data: Bytes, at: Int64, length: Int64, copies: Bytes) -> None:
    """Copy n ranges of an array to the beginning of another one, one after the other."""
    _native.copy_ranges(data, _ZERO, _ZERO, np.array([len(data)]), at, length, copies)


class ByteView:
    """Gathers big-endian numbers and byte ranges at arrays of addresses.

    `address`, `position`, `length`: int64 arrays of shape (pieces,): the address of each piece, its
    position in `data`, and its length. Addresses ascend and pieces do not overlap.
    """

    def __init__(self, data: Bytes, address: Int64, position: Int64, length: Int64) -> None:
        self.data = data
        self.address = address
        self.position = position
        self.length = length
        self.pieces = data, address, position, length
        self.size = int(address[-1] + length[-1]) if len(address) else 0
        """Addresses lie in [0, size]."""

    def number(self, at: Int64, dtype: str) -> Int64:
        """The big-endian number at each address; `dtype` is its NumPy type, such as ``i4``. Those
        of 8 bytes are signed."""
        at = np.ascontiguousarray(at, np.int64)
        numbers = np.empty(len(at), np.int64)
        _native.read_numbers(*self.pieces, at, int(dtype[1]), dtype[0] == "i", numbers)
        return numbers

    def take(self, at: Int64, length: Int64) -> tuple[Bytes, Int64]:
        """The concatenated bytes of n ranges, and their n + 1 offsets."""
        offsets = offsets_of(length)
        copies = np.empty(int(offsets[-1]), np.uint8)
        at, length = np.ascontiguousarray(at, np.int64), np.ascontiguousarray(length, np.int64)
        _native.copy_ranges(*self.pieces, at, length, copies)
        return copies, offsets

    def bytes(self, at: int, length: int) -> bytes:
        """A copy of one range."""
        return self.take(np.array([at]), np.array([length]))[0].tobytes()


class ContiguousBytes(ByteView):
    """Contiguous bytes; an address is a position. `data` ends with PAD bytes of padding."""

    def __init__(self, data: Bytes) -> None:
        super().__init__(data, _ZERO, _ZERO, np.array([len(data)]))
        self.size = len(data) - PAD

    @classmethod
    def of(cls, data: bytes) -> ContiguousBytes:
        """A view of a padded copy of `data`."""
        return cls(np.frombuffer(data + bytes(PAD), np.uint8))
