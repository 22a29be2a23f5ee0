"""Key logs as they are read: a file, which may grow, and what the captures themselves carry."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from dissector.errors import CaptureError, DissectorError
from dissector.problems import Problem
from dissector.tls import has_cryptography

NEEDED = "decrypting TLS needs the package cryptography: pip install 'kafka-dissector[tls]'"


class KeyFiles:
    """The secrets that captures carry, a list that grows, and those of a key log file."""

    def __init__(self, carried: Sequence[bytes], path: str | os.PathLike[str] | None) -> None:
        """Raises CaptureError where the file cannot be read, and DissectorError where a package is
        missing for its use."""
        self._carried = carried
        self._taken = 0
        self._path = Path(path) if path is not None else None
        self._offset = 0
        self._can_decrypt = has_cryptography()
        if self._path is not None:
            if not self._can_decrypt:
                raise DissectorError(NEEDED)
            self._more(self._path, 0)

    def new(self) -> Iterator[bytes]:
        """What came since this was asked last."""
        carried = self._carried[self._taken :]
        self._taken += len(carried)
        if self._can_decrypt:
            yield from (text + b"\n" for text in carried)
        if self._path is not None:
            yield self._more(self._path)

    def problems(self) -> list[Problem]:
        """Why the secrets of the captures are of no use, where it is so."""
        if self._can_decrypt or not self._carried:
            return []
        return [Problem("tls", "tls_unsupported", f"the capture has TLS secrets, but {NEEDED}")]

    def _more(self, path: Path, size: int = -1) -> bytes:
        """The next `size` bytes of the file, or all that are there."""
        try:
            with path.open("rb") as file:
                file.seek(self._offset)
                text = file.read(size)
        except OSError as error:
            raise CaptureError(f"{path}: {error.strerror or error}") from error
        self._offset += len(text)
        return text
