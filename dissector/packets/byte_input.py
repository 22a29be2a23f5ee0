"""Bytes of a file or pipe, decompressed if needed.

A `ByteInput` returns bytes as they arrive. A file fills the requested buffer. A pipe is read until
it pauses, since a user may watch the output live: available bytes are returned after PAUSE seconds
without a new byte, and LINGER seconds after the first byte at the latest.

gzip (RFC 1952), zstd (RFC 8878) and lz4 frames are recognised by their first bytes, whatever the
name of the file, and may follow each other. A damaged or truncated compressed stream ends at the
damage; `damage` then describes it, and the bytes before it are valid.
"""

from __future__ import annotations

import io
import os
import select
import time
import zlib
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import zstandard

from dissector.packets.remote import is_url, open_file

PAUSE = 0.02
"""Seconds without a new byte after which a pipe's bytes are returned."""
LINGER = 0.1
"""Seconds after which they are returned even if new bytes keep arriving."""
CHUNK: Final = 1 << 16
"""Compressed bytes to read at a time."""
PIECE: Final = 1 << 18
"""Bytes to decompress at a time; the last block of the codec may exceed it: 128 KiB of zstd, 4 MiB
of lz4."""
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
ZSTD_WINDOW: Final = 1 << 27
"""Largest window of a zstd frame, which the decompressor keeps in memory. The zstd command has the
same limit, unless it is run with --long."""
_HEAD: Final = 64
"""Bytes of the first read: enough for the codec and the header of a capture file."""
_SKIPPABLE: Final = b"\x2a\x4d\x18"
"""The magic of a skippable frame, after a byte from 0x50 to 0x5F."""
_ZSTD_HEADER: Final = 8
"""Bytes that show the size of any unit of a zstd frame."""


class Decompressor(Protocol):
    """The common interface of the decompressors of bz2, lzma and lz4."""

    @property
    def eof(self) -> bool:
        """The end of a stream was reached."""

    @property
    def unused_data(self) -> bytes | None:
        """The bytes after the end of the stream."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """About `max_length` bytes; if that many are returned, further output may be pending."""


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
        return self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)


class _Zstd:
    """zstandard's decompressor with this interface.

    It accepts no limit, and a block of 4 bytes can expand to 128 KiB. So it gets at most one block
    at a time (RFC 8878, section 3.1.1).
    """

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()
        self._input = b""
        self._unit_left = 0
        """Bytes of the frame header or block at the front of the input."""
        self._has_header = self._has_last_block = False

    @property
    def eof(self) -> bool:
        return self._zstd.eof

    @property
    def unused_data(self) -> bytes:
        return self._zstd.unused_data + self._input if self.eof else b""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        source = self._input + data
        pieces: list[bytes] = []
        size = at = 0
        while size < max_length and not self.eof:
            self._unit_left = self._unit_left or self._unit(source[at : at + _ZSTD_HEADER])
            step = min(self._unit_left, len(source) - at)
            if not step:
                break
            pieces.append(self._zstd.decompress(source[at : at + step]))
            self._unit_left -= step
            size += len(pieces[-1])
            at += step
        self._input = source[at:]
        return b"".join(pieces)

    def _unit(self, head: bytes) -> int:
        """Bytes of the frame header, block or checksum that begins with `head`.

        0 if `head` is too short.
        """
        if self._has_last_block:
            return 4  # the checksum; without one, the frame has ended
        if self._has_header:
            block = int.from_bytes(head[:3], "little")
            if len(head) < 3:
                return 0
            self._has_last_block = block & 1 == 1
            is_run = block >> 1 & 3 == 1
            return 3 + (1 if is_run else block >> 3)
        if head[1:4] == _SKIPPABLE:  # it has no blocks
            return 8 + int.from_bytes(head[4:8], "little") if len(head) >= 8 else 0
        if len(head) < 6:
            return 0
        self._has_header = True
        descriptor, window = head[4], head[5]
        is_single = descriptor & 0x20 != 0
        base = 1 << 10 + (window >> 3)
        is_frame = head.startswith(ZSTD_MAGIC)  # otherwise the decompressor reports it
        if is_frame and not is_single and base + base // 8 * (window & 7) > ZSTD_WINDOW:
            limit = f"{ZSTD_WINDOW >> 20} MiB"
            raise zstandard.ZstdError(f"its window is larger than {limit}, the largest supported")
        content_size = (int(is_single), 2, 4, 8)[descriptor >> 6]
        return 5 + (not is_single) + (0, 1, 2, 4)[descriptor & 3] + content_size


class Codec(NamedTuple):
    """One kind of compressed stream."""

    name: str
    magic: bytes
    new: Callable[[], Decompressor]


def _lz4() -> Decompressor:
    import lz4.frame  # takes 5 ms, and few captures are compressed with it

    decompressor: Decompressor = lz4.frame.LZ4FrameDecompressor()
    return decompressor


CODECS = (
    Codec("gzip", b"\x1f\x8b", _Gzip),
    Codec("zstd", ZSTD_MAGIC, _Zstd),
    Codec("lz4", b"\x04\x22\x4d\x18", _lz4),
)


def is_stream(path: str) -> bool:
    """Whether `path` is standard input or a pipe, which can be read only once."""
    if path == "-" or is_url(path):
        return path == "-"
    is_input = not os.path.isfile(path) and os.path.exists(path)  # noqa: PTH110, PTH113 - faster
    return is_input and not os.path.isdir(path)  # noqa: PTH112 - likewise


class ByteInput:
    """A file, a pipe, or (as ``-``) standard input, from front to back.

    Raises OSError if it cannot be opened. Later errors do not raise: they end the input, and
    `damage` describes them.
    """

    def __init__(self, path: str) -> None:
        standard = path == "-"
        self._file = io.FileIO(0, closefd=False) if standard else open_file(path)
        self.is_stream = is_stream(path)
        """It can be read only once, and its size is unknown."""
        self.size = 0 if self.is_stream else self._file.seek(0, os.SEEK_END)
        """Size of the file in bytes, before decompression."""
        if not self.is_stream:
            self._file.seek(0)
        self.consumed = 0
        """Bytes of the file read so far."""
        self.damage: str | None = None
        """The error, in one sentence; known at the end."""
        self._waiting = b""  # read from the file, not yet decompressed
        self._pending = memoryview(b"")  # decompressed, not yet returned
        self._codec: Codec | None = None
        self._stream: Decompressor | None = None
        self._full = False  # the decompressor may have output without further input
        self._open_stream()

    def _open_stream(self) -> None:
        """Recognise the codec, behind skippable frames (RFC 8878, section 3.1.2; lz4 has them too).
        pzstd writes such a frame before each other one."""
        self._waiting = self._read(_HEAD)
        magic = self.take(4)
        while magic[1:] == _SKIPPABLE and magic[0] >> 4 == 5:
            left = int.from_bytes(self.take(4), "little")
            while left and (data := self.take(min(left, CHUNK))):
                left -= len(data)
            magic = self.take(4)
        self._waiting = magic + bytes(self._pending)
        self._pending = memoryview(b"")
        self._codec = next((c for c in CODECS if magic.startswith(c.magic)), None)
        self._stream = self._codec.new() if self._codec else None

    def close(self) -> None:
        self._file.close()

    def take(self, size: int) -> bytes:
        """The next `size` bytes; waits for them. Fewer only at the end."""
        taken = bytearray(size)
        got = 0
        while got < size and (step := self._readinto(memoryview(taken)[got:])) != 0:
            got += step or 0
        return bytes(taken[:got])

    def fill(self, view: memoryview) -> tuple[int, bool]:
        """Fill `view`, from a pipe until it pauses. Returns the number of bytes, and whether the
        input ended."""
        got = 0
        deadline = None
        while got < len(view):
            if got and self.is_stream:
                deadline = deadline or time.monotonic() + LINGER
                patience = min(PAUSE, deadline - time.monotonic())
                if patience < 0 or not select.select([self._file], [], [], patience)[0]:
                    return got, False
            step = self._readinto(view[got:])
            if step == 0:
                return got, True
            got += step or 0
        return got, False

    def _readinto(self, view: memoryview) -> int | None:
        """Read once. Returns the number of bytes put into `view`; 0 at the end; None if the read
        gave no output."""
        if not self._pending:
            if self._stream:
                plain = self._decompress(min(len(view), PIECE))
                if not plain:
                    return 0 if plain is None else None
                self._pending = memoryview(plain)
            elif self._waiting:
                self._pending, self._waiting = memoryview(self._waiting), b""
            else:
                return self._readinto_raw(view)
        size = min(len(view), len(self._pending))
        view[:size] = self._pending[:size]
        self._pending = self._pending[size:]
        return size

    def _decompress(self, limit: int) -> bytes | None:
        """The next bytes of the file, decompressed; may be empty; None at the end."""
        assert self._codec
        assert self._stream
        chunk, self._waiting = self._waiting, b""
        if not chunk and not self._full:
            chunk = self._read(CHUNK)
            if not chunk:
                if not self._stream.eof:
                    self.damage = self.damage or f"the {self._codec.name} stream is truncated"
                return None
        if self._stream.eof:
            chunk = chunk.lstrip(b"\0")  # archives pad with zeros
            if not chunk:
                return b""
            self._stream = self._codec.new()
        try:
            plain = self._stream.decompress(chunk, limit)
        except (zlib.error, zstandard.ZstdError, RuntimeError) as error:
            self.damage = f"the {self._codec.name} stream is damaged: {error}"
            return None
        self._full = len(plain) >= limit and not self._stream.eof
        self._waiting = self._stream.unused_data or b""
        return plain

    def _read(self, size: int) -> bytes:
        """One read from the file; no bytes at the end."""
        buffer = bytearray(size)
        return bytes(buffer[: self._readinto_raw(memoryview(buffer))])

    def _readinto_raw(self, view: memoryview) -> int:
        try:
            while (step := self._file.readinto(view)) is None:
                select.select([self._file], [], [])  # another process made this pipe non-blocking
        except OSError as error:
            self.damage = f"reading failed: {error.strerror or error}"
            return 0
        self.consumed += step
        return step


class RangeSource:
    """A byte range of a file that is not compressed, with the members of `ByteInput`."""

    is_stream = False

    def __init__(self, path: str, begin: int, end: int, *, is_last: bool = True) -> None:
        """`is_last`: the range ends with its file, so that no packet can go on behind it."""
        self._is_last = is_last
        self._file = open_file(path)
        self._file.seek(begin)
        self.size = end - begin
        self.consumed = 0
        self.damage: str | None = None

    def fill(self, view: memoryview) -> tuple[int, bool]:
        view = view[: self.size - self.consumed]
        got = 0
        try:
            while got < len(view) and (step := self._file.readinto(view[got:])):
                got += step
        except OSError as error:
            self.damage = f"reading failed: {error.strerror or error}"
        self.consumed += got
        missing = self.size - self.consumed
        if got < len(view) and self.damage is None:
            self.damage = (
                f"the file was made shorter while it was read: {missing:,} bytes are missing"
            )
        return got, self.damage is not None or (self._is_last and not missing)

    def close(self) -> None:
        self._file.close()
