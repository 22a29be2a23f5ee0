"""Decompresses batches, with limits on the size of the output.

Kafka's codecs, by number: 1 gzip, 2 snappy, 3 lz4, 4 zstd.

- gzip (RFC 1952), possibly with several members. Bytes after the last member are ignored, as Java's
  GZIPInputStream does.
- snappy: one raw block, or the framing of snappy-java ("xerial"): 8 bytes of magic, two int32
  versions, then blocks with an int32 length each. A raw block begins with its decompressed length.
  Such streams may follow each other.
- lz4: the LZ4 frame format. Bytes after the last frame are ignored, as Kafka's Lz4BlockInputStream
  does. Producers of magic 0 included the magic number of the frame in the header checksum
  (KAFKA-3160), and consumers of magic 0 never verified it. It is corrected here.
- zstd (RFC 8878).

A kilobyte can decompress to gigabytes. So output is counted as it is produced, and refused above a
number of bytes, or, unless it is small, above a ratio that records do not reach. ISA-L decompresses
gzip in half the time of zlib.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import cast

import cramjam
import lz4.frame
import numpy as np
import pyarrow as pa
from isal import isal_zlib
from zstandard import ZstdDecompressor, ZstdError, frame_header_size, get_frame_parameters

from dissector.arrays import value
from dissector.errors import DecodeError
from dissector.packets.block import Bytes
from dissector.records.batch_headers import CODECS

_LZ4 = 3
_GZIP_MAGIC = b"\x1f\x8b"
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
_UINT32 = struct.Struct("<I").unpack_from
_SNAPPY_RATIO = 22
"""Largest ratio of a raw snappy block: three bytes copy at most 64."""
_LZ4_RATIO = 255
"""Largest ratio of an LZ4 block: a length byte stands for at most 255 bytes."""
_LZ4_BLOCKS = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
"""Bytes of the largest block, by its code in the header of a frame."""
_SKIPPED = 0x0184D2A5
"""Magic number of a frame of lz4 or zstd without content, but for its last four bits."""
_ZSTD_BLOCKS = 100_000
_STEP = 1 << 16
"""Initial output buffer if the decompressed size is unknown."""
_ERRORS = (
    cast("type[Exception]", isal_zlib.error),
    cramjam.DecompressionError,
    RuntimeError,  # the only exception of lz4
    ZstdError,
    EOFError,
)


@value
class Limits:
    """Limits on the decompressed size of one batch."""

    batch_bytes: int = 128 << 20
    """Absolute limit."""
    ratio: int = 1024
    """Output bytes per input byte, about the maximum of gzip; zstd could reach more."""
    free_bytes: int = 16 << 20
    """Output bytes that any batch may have, since equal records compress well."""

    def of(self, compressed: int) -> int:
        """The limit for a batch of `compressed` bytes."""
        return min(self.batch_bytes, max(self.free_bytes, self.ratio * compressed))


class Inflated:
    """A buffer into which batches are decompressed, one after the other.

    Its memory is Arrow's, which is used again; new memory of the system costs more than a copy.
    """

    def __init__(self, guess: int = 0) -> None:
        self._allocate(guess)
        self.used = self.stop = self._limit = 0

    def _allocate(self, size: int) -> None:
        self.data: Bytes = np.frombuffer(pa.allocate_buffer(size), np.uint8)
        self._memory = self.data.data

    def limit(self, size: int) -> None:
        """Limit the next batch to `size` bytes: up to position `stop`."""
        self._limit, self.stop = size, self.used + size

    def take(self, size: int) -> None:
        """Count `size` bytes of output. Raises DecodeError above the limit."""
        self.used += size
        if self.used > self.stop:
            self.used = self.stop - self._limit
            raise DecodeError(
                f"decompresses to more than the limit of {self._limit:,} bytes", offset=0
            )

    def room(self, size: int) -> memoryview:
        """The free part of the buffer, at least `size` bytes."""
        needed = self.used + size
        if needed > len(self._memory):
            before = self._memory[: self.used]
            self._allocate(2 * needed)
            self._memory[: self.used] = before
        return self._memory[self.used :]

    def add(self, chunk: bytes) -> None:
        """Append `chunk`. Raises DecodeError above the limit."""
        self.room(len(chunk))[: len(chunk)] = chunk
        self.take(len(chunk))


def decompress(codec: int, data: memoryview, limits: Limits, *, magic: int = 2) -> bytes:
    """Decompress `data` with codec number `codec`. Raises DecodeError as `decompress_into`."""
    row = Inflated()
    decompress_into(row, codec, data, limits, magic=magic)
    return row.data[: row.used].tobytes()


def decompress_into(
    row: Inflated, codec: int, data: memoryview, limits: Limits, *, magic: int = 2
) -> None:
    """Decompress `data` with codec number `codec`, and append the result to `row`.

    Raises DecodeError for an unknown codec, damaged data, and output above a limit. Then `row` is
    unchanged.
    """
    if codec not in _DECOMPRESS:
        raise DecodeError(f"unknown codec number {codec}", offset=0)
    if codec == _LZ4 and magic == 0:
        data = memoryview(with_valid_checksum(data))
    before = row.used
    row.limit(limits.of(len(data)))
    try:
        _DECOMPRESS[codec](data, row)
    except _ERRORS as error:
        row.used = before
        raise DecodeError(f"damaged {CODECS[codec]} data: {error}", offset=0) from error


def _gunzip(data: memoryview, row: Inflated) -> None:
    remaining: memoryview | bytes = data
    while remaining:
        stream = isal_zlib.decompressobj(wbits=31)
        row.add(stream.decompress(remaining, row.stop - row.used + 1))
        if not stream.eof:
            raise EOFError("the data is truncated")
        remaining = stream.unused_data
        if remaining[:2] != _GZIP_MAGIC:
            break


def _unsnappy(data: memoryview, row: Inflated) -> None:
    if data[: len(_XERIAL)] != _XERIAL:
        _unsnappy_block(data, row)
        return
    at = 0
    size = len(data)
    while at < size:
        if data[at : at + len(_XERIAL)] == _XERIAL:
            at += _XERIAL_HEADER
            continue
        length = int.from_bytes(data[at : at + 4], signed=True)
        at += 4
        if not 0 < length <= size - at:
            raise EOFError(f"a block has {length} bytes but {size - at} are left")
        _unsnappy_block(data[at : at + length], row)
        at += length


def _unsnappy_block(block: memoryview, row: Inflated) -> None:
    length = cramjam.snappy.decompress_raw_len(block)
    if length > _SNAPPY_RATIO * len(block):
        raise EOFError(f"a block of {len(block)} bytes announces {length} bytes of output")
    if length <= row.stop - row.used:
        cramjam.snappy.decompress_raw_into(block, row.room(length))
    row.take(length)


def _unlz4(data: memoryview, row: Inflated) -> None:
    is_frame = bool(data)
    while is_frame:
        data = _unlz4_frame(data, row)
        magic = int.from_bytes(data[:4], "little")
        is_frame = data[:4] == _LZ4_MAGIC or magic >> 4 == _SKIPPED


def _unlz4_frame(data: memoryview, row: Inflated) -> memoryview:
    """Decompress one frame; returns the bytes after it."""
    end, most = _lz4_extent(data)
    if 0 < most <= row.stop - row.used:
        with suppress(cramjam.DecompressionError):  # the steps report damage
            row.take(cramjam.lz4.decompress_into(data[:end], row.room(most)[:most]))
            return data[end:]
    return _unlz4_by_steps(data, row)


def _lz4_extent(data: memoryview) -> tuple[int, int]:
    """The end of the first frame, and the most bytes that it can have; (0, 0) if it is damaged."""
    size = len(data)
    if data[:4] != _LZ4_MAGIC or size < 7:
        return 0, 0
    flags, block = data[4], _LZ4_BLOCKS.get(data[5] >> 4, 0)
    at = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    behind = 8 if flags & 0x10 else 4  # with the length, and the checksum
    blocks = 0
    while at + 4 <= size:
        (length,) = _UINT32(data, at)
        if not length & 0x7FFF_FFFF:
            at += 8 if flags & 0x04 else 4
            return (at, min(blocks * block, _LZ4_RATIO * at)) if at <= size else (0, 0)
        at += (length & 0x7FFF_FFFF) + behind
        blocks += 1
    return 0, 0


def _unlz4_by_steps(data: memoryview, row: Inflated) -> memoryview:
    """Decompress one frame that is damaged, or may reach the limit; returns the bytes after it."""
    stream = lz4.frame.LZ4FrameDecompressor()
    step = _STEP
    remaining: memoryview | bytes = data
    while not stream.eof:
        if stream.needs_input and not remaining:
            raise EOFError("the data is truncated")
        row.add(stream.decompress(remaining, min(step, row.stop - row.used + 1)))
        remaining, step = b"", 2 * step
    return memoryview(stream.unused_data or b"")


def with_valid_checksum(frame: memoryview) -> bytes:
    """An LZ4 frame with the header checksum that the format defines."""
    fixed = bytearray(frame)
    if len(fixed) > 6:
        end = 6 + (8 if fixed[4] & 0x08 else 0) + (4 if fixed[4] & 0x01 else 0)
        if end < len(fixed):
            fixed[end] = (_xxh32(fixed[4:end]) >> 8) & 0xFF
    return bytes(fixed)


def _xxh32(data: bytes | bytearray) -> int:
    """xxHash32 with seed 0, of fewer than 16 bytes."""
    mask = 0xFFFF_FFFF
    prime = (2_654_435_761, 2_246_822_519, 3_266_489_917, 668_265_263, 374_761_393)

    def rotated(number: int, bits: int) -> int:
        return (number << bits | number >> 32 - bits) & mask

    value = prime[4] + len(data)
    aligned = len(data) & ~3
    for at in range(0, aligned, 4):
        lane = int.from_bytes(data[at : at + 4], "little")
        value = rotated((value + lane * prime[2]) & mask, 17) * prime[3]
    for byte in data[aligned:]:
        value = rotated((value + byte * prime[4]) & mask, 11) * prime[0]
    value &= mask
    value = (value ^ value >> 15) * prime[1] & mask
    value = (value ^ value >> 13) * prime[2] & mask
    return value ^ value >> 16


class _PerThread(threading.local):
    """A zstd decompressor is expensive to create, and not thread-safe."""

    def __init__(self) -> None:
        self.zstd = ZstdDecompressor()


_per_thread = _PerThread()


def _require_zstd_end(data: memoryview) -> None:
    """Raise an error if a frame is truncated, which the reader does not report.

    Follows the sizes of frames and blocks (RFC 8878, section 3.1), but not of more than
    `_ZSTD_BLOCKS`: crafted data may have millions of empty ones.
    """
    at, is_between_frames, checksum = 0, True, 0
    for _ in range(_ZSTD_BLOCKS):
        if at >= len(data) > 0:
            break
        if is_between_frames and int.from_bytes(data[at : at + 4], "little") >> 4 == _SKIPPED:
            at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
            continue
        if is_between_frames:
            checksum = 4 * get_frame_parameters(data[at:]).has_checksum
            at += frame_header_size(data[at:])
        header = int.from_bytes(data[at : at + 3], "little")
        is_between_frames, is_one_byte = bool(header & 1), header >> 1 & 3 == 1
        at += 3 + (1 if is_one_byte else header >> 3) + checksum * is_between_frames
    if at > len(data) or (at == len(data) and not is_between_frames):
        raise EOFError("the data is truncated")


def _unzstd(data: memoryview, row: Inflated) -> None:
    _require_zstd_end(data)
    reader = _per_thread.zstd.stream_reader(data, read_across_frames=True)
    is_done = False
    while not is_done:
        room = row.room(_STEP)[: row.stop - row.used + 1]
        size = reader.readinto(room)
        row.take(size)
        # The reader fills the buffer, except at the end of the data.
        is_done = size < len(room)


_DECOMPRESS: dict[int, Callable[[memoryview, Inflated], None]] = {
    1: _gunzip,
    2: _unsnappy,
    _LZ4: _unlz4,
    4: _unzstd,
}
