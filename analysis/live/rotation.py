"""The files of a recording: their creation, rotation and removal.

A recording contains other people's traffic, and other users may be able to write to its folder. So
every file is created here: only its owner can read it, and an existing name is never opened, not
even a symbolic link.

A name contains the start time of the recording, in microseconds, and a number. So names sort by
time. Two recordings with the same start time use different numbers.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

from analysis.display.terminal import counted
from analysis.live.privileges import reason
from analysis.live.session import Watcher
from dissector.arrays import value
from dissector.errors import DissectorError


@value
class Rotation:
    """Limits of a file's size and age, and the number of files to keep. None: no limit."""

    bytes: int | None = None
    seconds: float | None = None
    keep: int | None = None

    @property
    def is_enabled(self) -> bool:
        """Whether a recording can have more than one file."""
        return self.bytes is not None or self.seconds is not None


def create(path: Path) -> FileIO:
    """Create a file that only its owner can read and write.

    Raises FileExistsError if the name exists, even as a symbolic link, and OSError.
    """
    return FileIO(path, "x", opener=_open_privately)


def _open_privately(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


class RotatedFiles:
    """The files of one kind. A name is `stem`, the time, a number and `suffix`.

    `unfinished` is appended to the name of a file until `finish`. `started`: the time in the name;
    default: now.
    """

    def __init__(
        self, stem: Path, suffix: str, rotation: Rotation, unfinished: str = "",
        started: datetime | None = None,
    ) -> None:  # fmt: skip
        self._stem = stem
        self._suffix = suffix
        self._rotation = rotation
        self._unfinished = unfinished
        self._started = (started or datetime.now(UTC)).strftime("%Y%m%dT%H%M%S.%fZ")
        self._count = 0
        self._kept: deque[Path] = deque()
        self._file_started = 0.0

    def next(self) -> FileIO:
        """Create the next file, and remove the oldest beyond the limit. Raises OSError."""
        file = None
        while file is None:
            self._count += 1
            name = f"{self._stem.name}-{self._started}-{self._count:05d}{self._suffix}"
            file = self._create(self._stem.with_name(name))
        self._file_started = time.monotonic()
        while self._rotation.keep is not None and len(self._kept) > self._rotation.keep:
            self._kept.popleft().unlink(missing_ok=True)
        return file

    def _create(self, path: Path) -> FileIO | None:
        """The file that will be named `path`; None if that name exists."""
        unfinished = path.with_name(path.name + self._unfinished)
        try:
            file = create(unfinished)
        except FileExistsError:
            return None
        # Another recording may have finished a file of the same name.
        if self._unfinished and os.path.lexists(path):
            file.close()
            unfinished.unlink()
            return None
        self._kept.append(path)
        return file

    def finish(self) -> None:
        """Rename the latest file to its final name."""
        path = self._kept[-1]
        path.with_name(path.name + self._unfinished).rename(path)

    def is_complete(self, size: int = 0) -> bool:
        """Whether the latest file, of this size, has reached a limit."""
        limit, seconds = self._rotation.bytes, self._rotation.seconds
        is_old = seconds is not None and time.monotonic() - self._file_started >= seconds
        return is_old or (limit is not None and size >= limit)


class AppendedFile(Watcher):
    """A watcher that appends whole pieces of bytes to a file, or to a sequence of rotated files.

    If a piece cannot be written because the disk is full, the file is cut after the last whole
    piece, so that it stays readable, and writing stops.
    """

    def __init__(
        self, path: Path, rotation: Rotation, unit: str, report: Callable[[str], None]
    ) -> None:
        """`unit`: the name of a counted item, in the singular. Raises DissectorError."""
        self._path = path
        self._files = RotatedFiles(path.with_suffix(""), path.suffix, rotation)
        self._is_rotated = rotation.is_enabled
        self._unit = unit
        self._report = report
        self.count = 0
        """Number of written items."""
        self.failure: str | None = None
        """Why writing stopped."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open()
        except FileExistsError as error:
            raise DissectorError(
                f"{error.filename} already exists: remove it, or choose another name"
            ) from error
        except OSError as error:
            raise DissectorError(f"cannot write {path}: {reason(error)}") from error

    def rotate(self) -> bool:
        """Start the next file if a limit is reached; returns whether it did. Raises OSError."""
        is_complete = self._is_rotated and self._files.is_complete(self._size)
        if is_complete:
            complete = self._file  # the current file until the next one exists
            self._open()
            complete.close()
        return is_complete

    def append(self, piece: bytes | bytearray, count: int = 0) -> None:
        """Write a whole piece, which has `count` items. Raises OSError."""
        view = memoryview(piece)
        while view:  # a disk that fills up may accept a part first
            view = view[self._file.write(view) or 0 :]
        self._size += len(piece)
        self.count += count

    @contextmanager
    def stopped_by_errors(self) -> Iterator[None]:
        """A context for `rotate` and `append`. An OSError in it stops writing."""
        try:
            yield
        except OSError as error:
            self._abort(error)

    def _abort(self, error: OSError) -> None:
        """Cut the file after its last whole piece."""
        with suppress(OSError):
            self._file.truncate(self._size)
        self._file.close()
        if not self._size:
            self._name.unlink(missing_ok=True)
        self.failure = (
            f"{error.filename or self._name}: {error.strerror}: "
            f"stopped after {counted(self.count, self._unit)}, which can be read"
        )
        self._report(self.failure)

    def close(self) -> None:
        self._file.close()

    def discard(self) -> None:
        """Remove the file."""
        self._file.close()
        self._name.unlink()

    def _open(self) -> None:
        self._file = self._files.next() if self._is_rotated else create(self._path)
        self._name = Path(str(self._file.name))
        self._size = 0
