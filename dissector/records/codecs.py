"""Decompression of batches, with a limit on what comes out.

Kafka's codecs, by number: 1 gzip, 2 snappy, 3 lz4, 4 zstd.

- gzip (RFC 1952), possibly of several members.
- snappy: either one raw block, or snappy-java's framing ("xerial"): 8 bytes of magic, two int32 of
  versions, then blocks, each behind an int32 length. A raw block begins with the length that it
  decompresses to.
- lz4: the LZ4 frame format. Producers of magic 0 computed the header checksum over the frame's
  magic number too (KAFKA-3160), and consumers of magic 0 never checked it: it is set right here.
- zstd (RFC 8878).

A kilobyte can decompress to gigabytes. So what comes out is counted while it comes, and refused
beyond a limit of bytes, or, where it is more than a small amount, beyond a ratio that records do
not reach. gzip is done by ISA-L, which takes half the time of zlib.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import cramjam
import lz4.frame
import numpy as np
from isal import isal_zlib
from zstandard import ZstdDecompressor, ZstdError, frame_content_size

from dissector.errors import DecodeError
from dissector.packets.block import Bytes
from dissector.records.batch_headers import CODECS

_LZ4 = 3
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
_SNAPPY_RATIO = 22
"""No raw snappy block decompresses to more: three bytes copy at most 64."""
_LZ4_RATIO = 255
"""No LZ4 block decompresses to more: a byte of length stands for at most 255."""
_STEP = 1 << 16
"""Bytes that are made room for at first, where there is no telling how many will come."""
_ERRORS = (
    cast("type[Exception]", isal_zlib.error),
    cramjam.DecompressionError,
    RuntimeError,  # all that lz4 raises
    ZstdError,
    EOFError,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one batch may decompress to."""

    batch_bytes: int = 128 << 20
    """Never more than this."""
    ratio: int = 1024
    """Bytes out for each byte in, about what gzip can reach; zstd could reach more."""
    free_bytes: int = 16 << 20
    """So many bytes may come out whatever the ratio: equal records compress well."""

    def of(self, compressed: int) -> int:
        """How many bytes may come out of so many."""
        return min(self.batch_bytes, max(self.free_bytes, self.ratio * compressed))


class Inflated:
    """A row of bytes that batches are decompressed into, one behind the other."""

    def __init__(self, guess: int = 0) -> None:
        self.data: Bytes = np.empty(guess, np.uint8)
        self.used = 0
        self._limit = self._stop = 0

    def limit(self, size: int) -> None:
        """From here on no more than `size` bytes may come."""
        self._limit, self._stop = size, self.used + size

    @property
    def left(self) -> int:
        """How many bytes may still come."""
        return self._stop - self.used

    def take(self, size: int) -> None:
        """Count bytes that have come; `DecodeError` where they are more than may."""
        self.used += size
        if self.used > self._stop:
            self.used = self._stop - self._limit
            raise DecodeError(
                f"decompresses to more than the limit of {self._limit:,} bytes", offset=0
            )

    def room(self, size: int) -> memoryview:
        """All that is free behind what has come, at least `size` bytes."""
        needed = self.used + size
        if needed > len(self.data):
            grown = np.empty(2 * needed, np.uint8)
            grown[: self.used] = self.data[: self.used]
            self.data = grown
        return self.data.data[self.used :]

    def add(self, chunk: bytes) -> None:
        """Copy what has come; `DecodeError` where it is more than may."""
        self.room(len(chunk))[: len(chunk)] = chunk
        self.take(len(chunk))


def decompress(codec: int, data: memoryview, limits: Limits, *, magic: int = 2) -> bytes:
    """What `data` decompresses to by the codec of that number. `DecodeError` as below."""
    row = Inflated()
    decompress_into(row, codec, data, limits, magic=magic)
    return row.data[: row.used].tobytes()


def decompress_into(
    row: Inflated, codec: int, data: memoryview, limits: Limits, *, magic: int = 2
) -> None:
    """Put behind the others in `row` what `data` decompresses to by the codec of that number.

    `DecodeError` where there is no such codec, the data is damaged, or a limit is reached; the row
    is then as it was.
    """
    if codec not in _DECOMPRESS:
        raise DecodeError(f"no codec has the number {codec}", offset=0)
    if codec == _LZ4 and magic == 0:
        data = memoryview(with_right_checksum(data))
    before = row.used
    row.limit(limits.of(len(data)))
    try:
        _DECOMPRESS[codec](data, row)
    except _ERRORS as error:
        row.used = before
        raise DecodeError(f"damaged {CODECS[codec]} data: {error}", offset=0) from error


def _gunzip(data: memoryview, row: Inflated) -> None:
    rest: memoryview | bytes = data
    while rest:
        stream = isal_zlib.decompressobj(wbits=31)
        row.add(stream.decompress(rest, row.left + 1))
        if not stream.eof:
            raise EOFError("it ends early")
        rest = stream.unused_data


def _unsnappy(data: memoryview, row: Inflated) -> None:
    if data[: len(_XERIAL)] != _XERIAL:
        _unsnappy_block(data, row)
        return
    at = _XERIAL_HEADER
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], signed=True)
        at += 4
        if not 0 < length <= len(data) - at:
            raise EOFError(f"a block of {length} bytes where {len(data) - at} are left")
        _unsnappy_block(data[at : at + length], row)
        at += length


def _unsnappy_block(block: memoryview, row: Inflated) -> None:
    length = cramjam.snappy.decompress_raw_len(block)
    if length > _SNAPPY_RATIO * len(block):
        raise EOFError(f"a block of {len(block)} bytes says that it holds {length}")
    if length <= row.left:
        cramjam.snappy.decompress_raw_into(block, row.room(length))
    row.take(length)


def _unlz4(data: memoryview, row: Inflated) -> None:
    while data:
        told = int.from_bytes(data[6:14], "little") if _tells_its_size(data) else 0
        if told > _LZ4_RATIO * len(data):
            raise EOFError(f"a frame of {len(data)} bytes says that it holds {told}")
        if _LZ4_RATIO * len(data) <= row.left:
            whole, used = lz4.frame.decompress(data, return_bytes_read=True)
            row.add(whole)
            data = data[used:]
        else:
            data = _unlz4_by_steps(data, row)


def _tells_its_size(frame: memoryview) -> bool:
    return frame[:4] == _LZ4_MAGIC and len(frame) > 4 and bool(frame[4] & 0x08)


def _unlz4_by_steps(data: memoryview, row: Inflated) -> memoryview:
    """One frame that may reach the limit; what stands behind it."""
    stream = lz4.frame.LZ4FrameDecompressor()
    step = _STEP
    rest: memoryview | bytes = data
    while not stream.eof:
        if stream.needs_input and not rest:
            raise EOFError("it ends early")
        row.add(stream.decompress(rest, min(step, row.left + 1)))
        rest, step = b"", 2 * step
    return memoryview(stream.unused_data or b"")


def with_right_checksum(frame: memoryview) -> bytes:
    """An LZ4 frame whose header checksum is what the format says."""
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
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        lane = int.from_bytes(data[at : at + 4], "little")
        value = rotated((value + lane * prime[2]) & mask, 17) * prime[3]
    for byte in data[whole:]:
        value = rotated((value + byte * prime[4]) & mask, 11) * prime[0]
    value &= mask
    value = (value ^ value >> 15) * prime[1] & mask
    value = (value ^ value >> 13) * prime[2] & mask
    return value ^ value >> 16


class _PerThread(threading.local):
    """A zstd decompressor is expensive to make, and serves one thread at a time."""

    def __init__(self) -> None:
        self.zstd = ZstdDecompressor()


_per_thread = _PerThread()


def _unzstd(data: memoryview, row: Inflated) -> None:
    room = row.room(_STEP)[: row.left]
    # Where the frame tells its size, and there is room, it is read at once, a twelfth sooner; what
    # is wrong with it is told by the reader below.
    if 0 <= frame_content_size(data) <= len(room):
        with suppress(cramjam.DecompressionError):
            row.take(cramjam.zstd.decompress_into(data, room))
            return
    reader = _per_thread.zstd.stream_reader(data, read_across_frames=True)
    whole = False
    while not whole:
        room = row.room(_STEP)[: row.left + 1]
        size = reader.readinto(room)
        row.take(size)
        # Only the end of the data makes it give less than there is room for.
        whole = size < len(room)


_DECOMPRESS: dict[int, Callable[[memoryview, Inflated], None]] = {
    1: _gunzip,
    2: _unsnappy,
    _LZ4: _unlz4,
    4: _unzstd,
}
