"""Decompressors of gzip (RFC 1952), zstd (RFC 8878) and lz4 frames.

All have one interface. Their libraries raise an error of damage without the output of the same
call. Here, the error has the output before the damage, because it contains valid packets.
"""

from __future__ import annotations

import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

import zstandard

from dissector.errors import DissectorError

ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
ZSTD_WINDOW: Final = 1 << 27
"""Largest window of a zstd frame, which the decompressor keeps in memory. The zstd command has the
same limit, unless it is run with --long."""
SKIPPABLE: Final = b"\x2a\x4d\x18"
"""The magic of a skippable frame, after a byte from 0x50 to 0x5F."""
_UNIT_HEADER: Final = 8
"""Bytes that show the size of any unit of a frame of zstd or lz4."""
_CHECKSUM: Final = 4
"""Bytes of a checksum of zstd or lz4."""


class DamagedStreamError(DissectorError):
    """A compressed stream is damaged.

    `plain`: the output before the damage, since the last call.
    """

    def __init__(self, reason: Exception, plain: bytes) -> None:
        super().__init__(str(reason))
        self.plain = plain


class Decompressor(Protocol):
    """The common interface of the decompressors of bz2, lzma and lz4."""

    @property
    def eof(self) -> bool:
        """The end of a stream was reached."""

    @property
    def unused_data(self) -> bytes:
        """The bytes after the end of the stream."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """About `max_length` bytes; if that many are returned, further output may be pending.

        Raises DamagedStreamError.
        """


class _Gzip:
    """zlib's decompressor with this interface."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        source = self._zlib.unconsumed_tail + data
        before = self._zlib.copy()  # zlib returns no output together with an error
        try:
            return self._zlib.decompress(source, max_length)
        except zlib.error as error:
            raise DamagedStreamError(error, _before_damage(before, source)) from error


def _before_damage(stream: Any, source: bytes) -> bytes:
    """The output of a stream of zlib up to the first damaged byte of `source`."""
    pieces: list[bytes] = []
    with suppress(zlib.error):
        pieces.extend(stream.decompress(bytes([byte])) for byte in source)
    return b"".join(pieces)


class _Blocks(ABC):
    """A decompressor of frames of blocks with this interface.

    It gets at most one block at a time, so that no output before damage is lost. It gets the first
    byte of a block alone, because that of lz4 may keep the output of the block before it until
    another byte comes. Besides, that of zstandard accepts no limit, and a block of 4 bytes can
    expand to 128 KiB.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._input = b""
        self._unit_left = 0
        """Bytes of the frame header, block or checksum at the front of the input."""
        self._has_header = self._has_last_block = False

    @property
    def eof(self) -> bool:
        is_over: bool = self._stream.eof
        return is_over

    @property
    def unused_data(self) -> bytes:
        return (self._stream.unused_data or b"") + self._input if self.eof else b""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        source = self._input + data
        pieces: list[bytes] = []
        size = at = 0
        while size < max_length and not self.eof:
            try:
                is_first = not self._unit_left
                self._unit_left = self._unit_left or self._unit(source[at : at + _UNIT_HEADER])
                most = 1 if is_first else self._unit_left
                step = min(most, self._unit_left, len(source) - at)
                if not step:
                    break
                pieces.append(self._stream.decompress(source[at : at + step]))
            except (zstandard.ZstdError, RuntimeError) as error:
                raise DamagedStreamError(error, b"".join(pieces)) from error
            self._unit_left -= step
            size += len(pieces[-1])
            at += step
        self._input = source[at:]
        return b"".join(pieces)

    def _unit(self, head: bytes) -> int:
        """Bytes of the frame header, block or checksum that begins with `head`.

        0 if `head` is too short.
        """
        if self._has_header:
            return self._block(head)
        if head[1:4] == SKIPPABLE:  # it has no blocks
            return 8 + int.from_bytes(head[4:8], "little") if len(head) >= 8 else 0
        if len(head) < 6:
            return 0
        self._has_header = True
        return self._header(head)

    @abstractmethod
    def _header(self, head: bytes) -> int:
        """Bytes of a frame header, which begins with the 6 bytes of `head`."""

    @abstractmethod
    def _block(self, head: bytes) -> int:
        """Bytes of a block or of the checksum; 0 if `head` is too short."""


class _Zstd(_Blocks):
    """RFC 8878, section 3.1.1."""

    def __init__(self) -> None:
        super().__init__(zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj())

    def _header(self, head: bytes) -> int:
        descriptor, window = head[4], head[5]
        is_single = descriptor & 0x20 != 0
        base = 1 << 10 + (window >> 3)
        is_frame = head.startswith(ZSTD_MAGIC)  # otherwise the decompressor reports it
        if is_frame and not is_single and base + base // 8 * (window & 7) > ZSTD_WINDOW:
            limit = f"{ZSTD_WINDOW >> 20} MiB"
            raise zstandard.ZstdError(f"its window is larger than {limit}, the largest supported")
        content_size = (int(is_single), 2, 4, 8)[descriptor >> 6]
        return 5 + (not is_single) + (0, 1, 2, 4)[descriptor & 3] + content_size

    def _block(self, head: bytes) -> int:
        if self._has_last_block:
            return _CHECKSUM  # without one, the frame has ended
        if len(head) < 3:
            return 0
        block = int.from_bytes(head[:3], "little")
        self._has_last_block = block & 1 == 1
        is_run = block >> 1 & 3 == 1
        return 3 + (1 if is_run else block >> 3)


class _Lz4(_Blocks):
    """The frame format of lz4, version 1.6."""

    def __init__(self) -> None:
        import lz4.frame  # takes 5 ms, and few captures are compressed with it

        super().__init__(lz4.frame.LZ4FrameDecompressor())
        self._flags = 0

    def _header(self, head: bytes) -> int:
        self._flags = head[4]
        has_size, has_dictionary = self._flags & 0x08, self._flags & 0x01
        return 7 + (8 if has_size else 0) + (4 if has_dictionary else 0)

    def _block(self, head: bytes) -> int:
        if self._has_last_block:
            return _CHECKSUM
        if len(head) < 4:
            return 0
        block = int.from_bytes(head[:4], "little")
        self._has_last_block = block == 0
        has_checksum = self._flags & 0x10 and block
        return 4 + (block & 0x7FFFFFFF) + (_CHECKSUM if has_checksum else 0)


class Codec(NamedTuple):
    """One kind of compressed stream."""

    name: str
    magic: bytes
    new: Callable[[], Decompressor]
    front: re.Pattern[bytes]
    """First bytes of a stream, as they are searched after damage."""


CODECS = (
    # Method, flags, time, level and operating system (RFC 1952, section 2.3).
    Codec(
        "gzip", b"\x1f\x8b", _Gzip, re.compile(rb"(?s)\x1f\x8b\x08[\0-\x1f].{4}[\0\2\4][\0-\r\xff]")
    ),
    Codec("zstd", ZSTD_MAGIC, _Zstd, re.compile(re.escape(ZSTD_MAGIC))),
    Codec("lz4", b"\x04\x22\x4d\x18", _Lz4, re.compile(rb"\x04\x22\x4d\x18")),
)
