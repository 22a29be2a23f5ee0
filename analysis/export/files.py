"""Output files, which are complete or absent.

A file is written under its name with the suffix ``.partial``, and renamed at the end. After Ctrl-C,
SIGTERM or SIGHUP, a partial file of rows remains and is readable. Other partial files are removed,
and with them the folders that were created for them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from errno import EACCES, EAGAIN, EEXIST
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

try:
    import fcntl
except ImportError:  # on Windows, a file that is open is neither replaced nor removed
    fcntl = None  # type: ignore[assignment]

from analysis.startup import deferred_interruption

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _NamedFile(FileIO):
    """A file whose write errors have its name, as those of `open` do."""

    def __init__(self, file: str | int, name: str) -> None:
        super().__init__(file, "w", closefd=isinstance(file, str))
        self._label = name

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._label) from error


def writer(file: str | int, name: str) -> BufferedWriter:
    """A writer of a path or a file descriptor; its errors have this name."""
    return BufferedWriter(_NamedFile(file, name))


@contextmanager
def output_file(
    path: Path, *, overwrite: bool = True, keeps_partial: bool = False
) -> Iterator[BinaryIO]:
    """A context for an output file, which gets the name `path` after success.

    `keeps_partial`: the partial file remains after Ctrl-C, SIGTERM or SIGHUP, not only after a
    crash.

    A device or a pipe is written to directly. Raises OSError; FileExistsError if a file exists and
    `overwrite` is False.
    """
    if path.exists() and not path.is_file():
        with writer(str(path), str(path)) as sink:
            yield sink
        return
    if not overwrite and (there := taken(path)) is not None:
        raise FileExistsError(EEXIST, os.strerror(EEXIST), str(there))
    growing = partial(path)
    with folder(growing.parent), ExitStack() as stack:
        try:
            stack.enter_context(claimed(growing, is_new=not overwrite, keeps_partial=keeps_partial))
            sink = stack.enter_context(writer(str(growing), str(path)))
        except OSError as error:
            named = growing if error.errno in (EEXIST, EAGAIN) else path
            raise OSError(error.errno, error.strerror, str(named)) from error
        yield sink
    if not overwrite and path.exists():  # created by another process meanwhile
        raise FileExistsError(EEXIST, f"exists; the rows are in {growing}: rename it", str(path))
    growing.replace(growing.with_suffix(""))


@contextmanager
def claimed(path: Path, *, is_new: bool, keeps_partial: bool = False) -> Iterator[None]:
    """A context in which a partial file exists, and no other process claims it.

    After an error, the file is removed. `keeps_partial`: it remains after Ctrl-C, SIGTERM or
    SIGHUP. Raises OSError: FileExistsError if `is_new` and the file exists, BlockingIOError if
    another process claims it.
    """
    with ExitStack() as stack:
        # A signal between these steps would leave the file behind.
        with deferred_interruption():
            file = stack.enter_context(path.open("xb" if is_new else "ab"))
            _lock(file, path)
            stack.enter_context(_removed_after_errors(path, keeps_partial=keeps_partial))
        yield


def _lock(file: BinaryIO, path: Path) -> None:
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (EACCES, EAGAIN):  # otherwise the file system has no locks
                text = "another process writes to this file"
                raise BlockingIOError(EAGAIN, text, str(path)) from error


@contextmanager
def _removed_after_errors(path: Path, *, keeps_partial: bool) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if not (keeps_partial and isinstance(error, KeyboardInterrupt)):
            path.unlink(missing_ok=True)
        raise


@contextmanager
def folder(path: Path) -> Iterator[None]:
    """A context in which the folder exists, with the folders that contain it.

    After an error, those that were created and are empty are removed. Raises OSError.
    """
    missing = [each for each in (path, *path.parents) if not each.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for each in missing:
            with suppress(OSError):
                each.rmdir()
        raise


def taken(path: Path) -> Path | None:
    """The existing file that `output_file` would replace: complete or partial."""
    if path.exists() and not path.is_file():
        return None
    return next((each for each in (path, partial(path)) if each.exists()), None)


def partial(path: Path) -> Path:
    """The name of an output file until it is complete; in the folder of the target of a link."""
    return Path(os.path.realpath(path) + ".partial")
