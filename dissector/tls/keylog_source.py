"""TLS secrets from a key log file, which may grow, and from the captures themselves."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from dissector import arguments
from dissector.errors import CaptureError, DissectorError
from dissector.problems import NO_CRYPTOGRAPHY, UNUSED_SECRETS, Problem
from dissector.tls.keylog import may_be_key_log

_HEAD = 1 << 20
"""Bytes at the start of a file, which decide whether it is a key log."""
_CHUNK = 1 << 24
"""Bytes to read at once."""
_LINE_BYTES = 512
"""More than a line has. A line that has fewer bytes and no end is read again with its other
bytes."""


def _has_cryptography() -> bool:
    """Whether the package for decryption is installed."""
    return importlib.util.find_spec("cryptography") is not None


class KeyLogSource:
    """Reads new secrets: those in captures, a list that grows, and those of a key log file."""

    def __init__(self, embedded: Sequence[bytes], path: str | os.PathLike[str] | None) -> None:
        """Raises CaptureError for a file that is unreadable or no key log, DissectorError for a
        missing package or a value that is not a path."""
        self._embedded = embedded
        self._used = 0
        self._path = None if path is None else Path(arguments.path("keylog", path))
        self._offset = 0
        if self._path is not None:
            if not _has_cryptography():
                raise DissectorError(NO_CRYPTOGRAPHY)
            if not may_be_key_log(self._read(self._path, _HEAD)):
                raise CaptureError(
                    f"{self._path} is not a key log: no line has the NSS key log format "
                    "(SSLKEYLOGFILE), such as CLIENT_RANDOM 5f2a... 91c0..."
                )
            self._offset = 0

    def read_new(self) -> Iterator[bytes]:
        """The lines since the previous call; the last one of the file may be incomplete."""
        embedded = self._embedded[self._used :]
        self._used += len(embedded)
        if embedded and _has_cryptography():
            yield from embedded
        # The file may be removed, and created again.
        is_last = self._path is None or not os.access(self._path, os.R_OK)
        while self._path is not None and not is_last:
            text = self._read(self._path, _CHUNK)
            is_last = len(text) < _CHUNK
            complete = max(map(text.rfind, (b"\n", b"\r"))) + 1
            if len(text) - complete >= _LINE_BYTES:
                complete = len(text)
            self._offset -= len(text) - complete
            yield text if is_last else text[:complete]

    def problems(self) -> list[Problem]:
        """A problem if the captures have secrets and a package is missing."""
        if not self._embedded or _has_cryptography():
            return []
        return [Problem("tls", "tls_unsupported", UNUSED_SECRETS)]

    def _read(self, path: Path, size: int) -> bytes:
        """The next `size` bytes of the file."""
        try:
            with path.open("rb") as file:
                if not file.seekable():
                    raise CaptureError(f"{path} is a pipe: a key log is read again, so name a file")
                if file.seek(0, os.SEEK_END) < self._offset:
                    self._offset = 0  # the file was truncated, or replaced
                file.seek(self._offset)
                text = file.read(size)
        except OSError as error:
            raise CaptureError(f"{path}: {error.strerror or error}") from error
        self._offset += len(text)
        return text
