"""Files on other machines: the files that a URL names, through fsspec.

``s3://``, ``hdfs://``, ``https://`` and the other schemes of fsspec, with the package that each
needs. Files are read in ranges, never as a whole. Patterns mean the same as in paths; a folder
means all files in it.

fsspec is an extra: without it, opening a URL raises an error that names it.
"""

from __future__ import annotations

import errno
import io
import os
from typing import Any

from dissector.arguments import local_path
from dissector.errors import CaptureError


def is_url(path: str) -> bool:
    """Whether a path has a scheme, which selects a file system; Hadoop writes ``file:/folder``."""
    return "://" in path or path.startswith("file:/")


def open_file(path: str) -> io.RawIOBase:
    """A file at a path or a URL, to be read from any byte. Raises OSError, and CaptureError."""
    return Remote(path) if is_url(path) else io.FileIO(path)


def files(url: str) -> list[str]:
    """The files that a URL names, in order of name; the URL itself if there are none. Raises
    OSError, and CaptureError."""
    system, path = located(url)
    if any(each in path for each in "*?["):
        paths = sorted(each for each in system.glob(path) if system.isfile(each))
    else:
        paths = sorted(system.find(path)) if system.isdir(path) else []
    return [system.unstrip_protocol(each) for each in paths] or [url]


class Remote(io.RawIOBase):
    """A file behind a URL."""

    def __init__(self, url: str) -> None:
        system, path = located(url)
        try:
            self._file = system.open(path, "rb")
        except FileNotFoundError as error:  # its text is the path alone, whatever the cause
            reason = error.__cause__ or os.strerror(errno.ENOENT)
            raise FileNotFoundError(errno.ENOENT, str(reason)) from error
        if not self._file.seekable():
            raise OSError("it cannot be read in ranges")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, view: Any) -> int:
        into = memoryview(view)
        data = self._file.read(len(into))
        into[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        place: int = self._file.seek(offset, whence)
        return place

    def close(self) -> None:
        if not self.closed and hasattr(self, "_file"):
            self._file.close()
        super().close()


def located(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, and the path in it. Raises CaptureError."""
    try:
        from fsspec.core import url_to_fs
    except ModuleNotFoundError as error:
        raise CaptureError(f"{url}: to read URLs, pip install fsspec") from error
    try:
        system, path = url_to_fs(url)
    except (ImportError, ValueError) as error:  # unknown scheme, or its package is missing
        raise CaptureError(f"{url}: {error}") from error
    return system, local_path(url) if url.startswith("file:") else path
