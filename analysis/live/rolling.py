"""The files of a recording: how they are created, when the next one begins, and which are kept.

A recording holds other people's traffic, and its folder may be one that others can write to. So
every file is created here: only its owner can read it, and a name that exists is never opened, not
even a symbolic link.

A name contains the time at which the recording began, to the microsecond, and a number. So names
sort by time. Where two recordings get the same time, each takes the numbers that are free.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

from analysis.display.terminal import counted
from dissector.errors import DissectorError


@dataclass(frozen=True, slots=True)
class Rolling:
    """When a file is complete, and how many files stay. None: no such limit."""

    bytes: int | None = None
    seconds: float | None = None
    keep: int | None = None

    @property
    def is_wanted(self) -> bool:
        """There is a reason for a second file."""
        return self.bytes is not None or self.seconds is not None


def create(path: Path) -> FileIO:
    """Create a file that only its owner can read and write.

    Raises FileExistsError where the name is taken, also by a symbolic link, and OSError.
    """
    return FileIO(path, "x", opener=_open_privately)


def _open_privately(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


class Files:
    """The files of one kind: `stem`, the time, a number, `suffix`.

    `unfinished` stands behind the name of a file until `finish`.
    """

    def __init__(self, stem: Path, suffix: str, rolling: Rolling, unfinished: str = "") -> None:
        self._stem = stem
        self._suffix = suffix
        self._rolling = rolling
        self._unfinished = unfinished
        self._began = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        self._count = 0
        self._kept: deque[Path] = deque()
        self._file_began = 0.0

    def next(self) -> FileIO:
        """Create the next file, and remove those that are not kept. Raises OSError."""
        file = None
        while file is None:
            self._count += 1
            name = f"{self._stem.name}-{self._began}-{self._count:05d}{self._suffix}"
            file = self._create(self._stem.with_name(name))
        self._file_began = time.monotonic()
        while self._rolling.keep is not None and len(self._kept) > self._rolling.keep:
            self._kept.popleft().unlink(missing_ok=True)
        return file

    def _create(self, path: Path) -> FileIO | None:
        """The file that will be called `path`; None where that name is taken."""
        growing = path.with_name(path.name + self._unfinished)
        try:
            file = create(growing)
        except FileExistsError:
            return None
        # A recording that took the same name before may have finished its file.
        if self._unfinished and os.path.lexists(path):
            file.close()
            growing.unlink()
            return None
        self._kept.append(path)
        return file

    def finish(self) -> None:
        """Give the latest file its name."""
        path = self._kept[-1]
        path.with_name(path.name + self._unfinished).rename(path)

    def is_over(self, size: int = 0) -> bool:
        """Whether the latest file, of that size, is to be followed by the next one."""
        limit, seconds = self._rolling.bytes, self._rolling.seconds
        too_old = seconds is not None and time.monotonic() - self._file_began >= seconds
        return too_old or (limit is not None and size >= limit)


class GrowingFile:
    """Whole pieces of bytes, appended to a file, or to one file after another.

    Where a piece cannot be written, since the disk is full, the file is cut behind the last whole
    piece, so that it can be read, and nothing more is written.
    """

    def __init__(
        self, path: Path, rolling: Rolling, unit: str, note: Callable[[str], None]
    ) -> None:
        """`unit`: what is counted, in the singular. Raises DissectorError."""
        self._path = path
        self._files = Files(path.with_suffix(""), path.suffix, rolling)
        self._rolls = rolling.is_wanted
        self._unit = unit
        self._note = note
        self.count = 0
        """Units that were written."""
        self.failure: str | None = None
        """Why nothing more is written."""
        try:
            self._open()
        except FileExistsError as error:
            raise DissectorError(
                f"{path}: exists already: remove it, or choose another name"
            ) from error
        except OSError as error:
            raise DissectorError(f"{path}: cannot be written to: {error.strerror}") from error

    def roll(self) -> bool:
        """Begin the next file where this one is complete; whether it did so. Raises OSError."""
        is_over = self._rolls and self._files.is_over(self._size)
        if is_over:
            self._file.close()
            self._open()
        return is_over

    def append(self, piece: bytes | bytearray, count: int = 0) -> None:
        """Write all of a piece, which has `count` units. Raises OSError."""
        view = memoryview(piece)
        while view:  # a disk that fills up may take a part of it first
            view = view[self._file.write(view) or 0 :]
        self._size += len(piece)
        self.count += count

    def give_up(self, error: OSError) -> None:
        """After an error: cut the file behind its last whole piece."""
        with suppress(OSError):
            self._file.truncate(self._size)
        self._file.close()
        if not self._size:
            self._name.unlink(missing_ok=True)
        self.failure = (
            f"{self._name}: {error.strerror}: after {counted(self.count, self._unit)}, "
            "which can be read, no more are written"
        )
        self._note(self.failure)

    def close(self) -> None:
        self._file.close()

    def discard(self) -> None:
        """Remove the file."""
        self._file.close()
        self._name.unlink()

    def _open(self) -> None:
        self._file = self._files.next() if self._rolls else create(self._path)
        self._name = Path(str(self._file.name))
        self._size = 0
