"""Bytes of a file or pipe, decompressed if needed.

A `ByteInput` returns bytes as they arrive. A file fills the requested buffer. A pipe is read until
it pauses, since a user may watch the output live: available bytes are returned after PAUSE seconds
without a new byte, and LINGER seconds after the first byte at the latest.

gzip (RFC 1952), zstd (RFC 8878) and lz4 frames are recognised by their first bytes, whatever the
name of the file, and may follow each other. A damaged or truncated compressed stream ends at the
damage; `damage` then describes it, and the bytes before it are valid. If another stream follows it,
reading continues there.
"""

from __future__ import annotations

import io
import os
import select
import time
from collections import deque
from typing import Final

from dissector.packets.formats.decompression import (
    CODECS,
    SKIPPABLE,
    Codec,
    DamagedStreamError,
    Decompressor,
)
from dissector.packets.formats.remote import is_url, open_file

PAUSE = 0.02
"""Seconds without a new byte after which a pipe's bytes are returned."""
LINGER = 0.1
"""Seconds after which they are returned even if new bytes keep arriving."""
CHUNK: Final = 1 << 16
"""Compressed bytes to read at a time."""
PIECE: Final = 1 << 18
"""Bytes to decompress at a time; the last block of the codec may exceed it: 128 KiB of zstd, 4 MiB
of lz4."""
RECENT: Final = 8 << 20
"""Compressed bytes that are kept of a stream. A truncated one takes bytes of the next stream, at
least until its last block is complete: one of lz4 has up to 4 MiB."""
STREAMS: Final = 100
"""Damaged streams after which a file is abandoned."""
_HEAD: Final = 64
"""Bytes of the first read: enough for the codec and the header of a capture file."""


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
        # A copy: a thread that reads ahead may outlast a change of standard input.
        self._file = io.FileIO(os.dup(0)) if path == "-" else open_file(path)
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
        self._recent: deque[bytes] = deque()  # the last input of the decompressor
        self._is_lost = False  # the next stream is searched
        self._streams_left = STREAMS
        self._open_stream()

    def _open_stream(self) -> None:
        """Recognise the codec, after skippable frames (RFC 8878, section 3.1.2; lz4 has them too).
        pzstd writes such a frame before each other one."""
        self._waiting = self._read(_HEAD)
        magic = self.take(4)
        while magic[1:] == SKIPPABLE and magic[0] >> 4 == 5:
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
        if not self._streams_left:
            return None
        chunk, self._waiting = self._waiting[:CHUNK], self._waiting[CHUNK:]
        if not chunk and not self._full:
            chunk = self._read(CHUNK)
            if not chunk:
                if not self._stream.eof:
                    self.damage = self.damage or f"the {self._codec.name} stream is truncated"
                return None
        if self._is_lost:
            self._recent.append(chunk)
            self._seek_stream(0)
            return b""
        if self._stream.eof:
            chunk = chunk.lstrip(b"\0")  # archives pad with zeros
            if not chunk:
                return b""
            self._begin_stream()
        self._recent.append(chunk)
        if len(self._recent) > RECENT // CHUNK:
            self._recent.popleft()
        try:
            plain = self._stream.decompress(chunk, limit)
        except DamagedStreamError as error:
            self.damage = self.damage or f"the {self._codec.name} stream is damaged: {error}"
            self._streams_left -= 1
            self._seek_stream(1)
            return error.plain
        self._full = len(plain) >= limit and not self._stream.eof
        self._waiting = self._stream.unused_data + self._waiting
        return plain

    def _begin_stream(self) -> None:
        assert self._codec
        self._stream, self._full = self._codec.new(), False
        self._recent.clear()

    def _seek_stream(self, begin: int) -> None:
        """Continue at the next stream in the recent input, or search in that which follows."""
        assert self._codec
        content = b"".join(self._recent) + self._waiting
        front = self._codec.front.search(content, begin)
        self._begin_stream()
        self._is_lost = front is None
        self._waiting = content[front.start() :] if front else b""
        if not front:
            self._recent.append(content[-_HEAD:])

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
        """`is_last`: the range ends with its file, so that no packet can continue after it."""
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
