"""Byte views: later stages read scattered bytes as if they were contiguous.

The bytes of a message that spans packets lie in several pieces of the block's data. Joining the
pieces would copy each byte of a bulk transfer, although later stages read few of them. So they read
through a view: an address counts bytes in stream order, and the view maps addresses to positions
in the data.

`ContiguousBytes` is a view whose addresses are positions: of messages inside one packet, or of
other bytes. `ScatteredBytes` looks each address up among the pieces. Addresses between two pieces
(lost bytes) read as zero; the caller knows how far a frame is readable.

Contract: addresses lie in [0, size], and reads of up to eight bytes at any such address stay inside
memory. Callers clip addresses to their frame before every gather.
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
        """The big-endian number at each address; `dtype` is its NumPy type, such as ``i4``."""

    def take(self, at: Int64, length: Int64) -> tuple[Bytes, Int64]:
        """The concatenated bytes of n ranges, and their n + 1 offsets."""

    def bytes(self, at: int, length: int) -> bytes:
        """A copy of one range."""


def ranges(start: Int64, length: Int64) -> tuple[Int64, Int64]:
    """The positions in n ranges, concatenated, and their n + 1 offsets."""
    offsets = np.zeros(len(length) + 1, np.int64)
    np.cumsum(length, out=offsets[1:])
    positions = np.arange(offsets[-1], dtype=np.int64)
    positions += np.repeat(start - offsets[:-1], length)
    return positions, offsets


class ContiguousBytes:
    """Contiguous bytes; an address is a position. `data` ends with PAD bytes of padding."""

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self.size = len(data) - PAD
        # One overlapping array for each width: element i is the number that begins at byte i.
        self._views = {
            width: np.ndarray((len(data) - width + 1,), f">u{width}", data, strides=(1,))
            for width in (2, 4, 8)
        }

    @classmethod
    def of(cls, data: bytes) -> ContiguousBytes:
        """A view of a padded copy of `data`."""
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
    """Pieces of one array, in order of address.

    `address`, `position`, `length`: int64 arrays of shape (pieces,): the address of each piece, its
    position in `data`, and its length. Addresses ascend and pieces do not overlap. The bytes
    between two pieces are lost and read as zero.
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
        """Position in `data` of each address, and the number of bytes from there to the end of its
        piece: 0 where the byte is lost."""
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
        values = self.data[position]
        if not left.all():
            values[left == 0] = 0
        return values

    def number(self, at: Int64, dtype: str) -> NDArray[np.generic]:
        width = int(dtype[1])
        position, left = self._locate(at)
        numbers = self._flat.number(position, f"u{width}")
        astride = np.flatnonzero(left < width)
        if len(astride):  # the number spans two pieces: byte by byte
            start = at[astride]
            value = np.zeros(len(start), np.uint64)
            for step in range(width):
                value = (value << np.uint64(8)) | self.u8(start + step).astype(np.uint64)
            numbers[astride] = value.astype(numbers.dtype)
        return numbers.view(dtype)

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
