"""Byte spaces: how later stages read bytes that lie in pieces, as if they lay in one row.

A message that spans packets lies in pieces of the block's data, with other bytes between them.
Joining the pieces would copy every byte of a bulk transfer for the sake of the few that are looked
at. So later stages read through a space: an address counts bytes of a stream in order, and a
gather turns addresses into positions.

`ContiguousBytes` is a space whose addresses are positions: for messages inside one packet, or bytes
from elsewhere. `ScatteredBytes` looks each address up among the pieces; addresses between two
pieces (lost bytes) read as zero, and the caller knows how far a frame is readable.

Contract: an address handed in lies in [0, size]; reads of up to eight bytes at any such address
stay inside memory, whatever they mean. Callers clip addresses to their frame before every gather.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dissector import kernel
from dissector.packets.block import PAD, Bytes, Int64


class ByteView(Protocol):
    """Gathers big-endian numbers and byte ranges at arrays of addresses."""

    size: int
    """Addresses lie in [0, size]."""

    def u8(self, at: Int64) -> NDArray[np.uint8]:
        """The byte at each address."""

    def number(self, at: Int64, dtype: str) -> NDArray[np.generic]:
        """A big-endian number at each address; `dtype` is NumPy's name of it, such as ``i4``."""

    def take(self, at: Int64, length: Int64) -> tuple[Bytes, Int64]:
        """The bytes of n ranges, one after the other, and their n + 1 offsets."""

    def bytes(self, at: int, length: int) -> bytes:
        """One range, copied."""


def ranges(start: Int64, length: Int64) -> tuple[Int64, Int64]:
    """Every position of n ranges, one after the other, and the n + 1 offsets between them."""
    offsets = np.zeros(len(length) + 1, np.int64)
    np.cumsum(length, out=offsets[1:])
    positions = np.arange(offsets[-1], dtype=np.int64)
    positions += np.repeat(start - offsets[:-1], length)
    return positions, offsets


class ContiguousBytes:
    """Bytes in one row; an address is a position. `data` ends with PAD bytes of padding."""

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self.size = len(data) - PAD
        # One overlapping view for each width: element i is the number that begins at byte i.
        self._views = {
            width: np.ndarray((len(data) - width + 1,), f">u{width}", data, strides=(1,))
            for width in (2, 4, 8)
        }

    @classmethod
    def of(cls, data: bytes) -> ContiguousBytes:
        """A space over a copy of `data`, padded."""
        return cls(np.frombuffer(data + bytes(PAD), np.uint8))

    def u8(self, at: Int64) -> NDArray[np.uint8]:
        return self.data[at]

    def number(self, at: Int64, dtype: str) -> NDArray[np.generic]:
        width = int(dtype[1])
        if width == 1:
            return self.data[at].view(dtype)
        if kernel.COMPILED:
            numbers: NDArray[np.generic] = np.empty(len(at), dtype)
            kernel.loops.read_numbers(self.data, at, width, numbers)
            return numbers
        return self._views[width][at].astype(f"u{width}").view(dtype)

    def take(self, at: Int64, length: Int64) -> tuple[Bytes, Int64]:
        if kernel.COMPILED:
            offsets = np.zeros(len(length) + 1, np.int64)
            np.cumsum(length, out=offsets[1:])
            copies = np.empty(int(offsets[-1]), np.uint8)
            kernel.loops.copy_ranges(self.data, at, length, copies)
            return copies, offsets
        positions, offsets = ranges(at, length)
        return self.data[positions], offsets

    def bytes(self, at: int, length: int) -> bytes:
        return self.data[at : at + length].tobytes()


class ScatteredBytes:
    """Bytes in pieces of one array, in order of address.

    `address`, `position`, `length`: int64 arrays of shape (pieces,): where each piece begins in the
    space, where in `data`, and how long it is. Addresses ascend, pieces do not overlap; where one
    begins behind the end of the one before, the bytes between are lost and read as zero.
    """

    def __init__(self, data: Bytes, address: Int64, position: Int64, length: Int64) -> None:
        self.data = data
        self.address = address
        self.position = position
        self.length = length
        self.size = int(address[-1] + length[-1]) if len(address) else 0
        self._flat = ContiguousBytes(data)
        self._nowhere = self._flat.size

    def _locate(self, at: Int64) -> tuple[Int64, Int64]:
        """Position in `data` of each address, and how many bytes of its piece follow from there."""
        if kernel.COMPILED and len(self.address):
            position, left = np.empty((2, len(at)), np.int64)
            kernel.loops.locate(
                self.address, self.position, self.length, at, self._nowhere, position, left
            )
            return position, left
        piece = np.searchsorted(self.address, at, side="right") - 1
        np.maximum(piece, 0, out=piece)
        inside = at - self.address[piece]
        left = self.length[piece] - inside
        position = self.position[piece] + inside
        lost = (left <= 0) | (inside < 0)
        if lost.any():
            position[lost] = self._nowhere
            left[lost] = 0
        return position, left

    def u8(self, at: Int64) -> NDArray[np.uint8]:
        position, left = self._locate(at)
        found = self.data[position]
        if not left.all():
            found[left == 0] = 0
        return found

    def number(self, at: Int64, dtype: str) -> NDArray[np.generic]:
        width = int(dtype[1])
        position, left = self._locate(at)
        found = self._flat.number(position, f"u{width}")
        astride = np.flatnonzero(left < width)
        if len(astride):  # the number lies across a border between pieces: byte by byte
            where = at[astride]
            value = np.zeros(len(where), np.uint64)
            for step in range(width):
                value = (value << np.uint64(8)) | self.u8(where + step).astype(np.uint64)
            found[astride] = value.astype(found.dtype)
        return found.view(dtype)

    def take(self, at: Int64, length: Int64) -> tuple[Bytes, Int64]:
        positions, offsets = ranges(at, length)
        return self.u8(positions), offsets

    def bytes(self, at: int, length: int) -> bytes:
        out = bytearray(length)
        first = max(int(np.searchsorted(self.address, at, side="right")) - 1, 0)
        end = at + length
        for piece in range(first, len(self.address)):
            begin = int(self.address[piece])
            if begin >= end:
                break
            low, high = max(begin, at), min(begin + int(self.length[piece]), end)
            if low < high:
                source = int(self.position[piece]) + low - begin
                out[low - at : high - at] = self.data[source : source + high - low].tobytes()
        return bytes(out)
