"""All exceptions of this project, with one base class.

Users of the public functions need to catch only `DissectorError`. Damage inside a capture does not
raise an exception: it becomes a row of the table `problems`, and reading continues.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from errno import ENOENT
from functools import partial
from typing import Any

from dissector.redaction import without_credentials


class DissectorError(Exception):
    """Root of all exceptions of this project. Credentials in URLs are redacted in the message."""

    def __init__(self, message: object = "") -> None:
        super().__init__(without_credentials(str(message)))


class CaptureError(DissectorError):
    """An input cannot be read as a capture: it is missing, empty, closed, of an unknown format, or
    a pipe that was already read."""


class DecodeError(DissectorError):
    """Bytes do not follow their definition.

    `offset`: bytes from the start of the input. `path`: the field, such as
    ``topics[2].partitions[0].error_code``; empty if no field had started.
    """

    def __init__(self, detail: str, *, offset: int, path: str = "") -> None:
        super().__init__(f"{detail} at byte {offset}" + (f", in {path}" if path else ""))
        self.detail = detail
        self.offset = offset
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, copies, also in other processes, are made without the keywords.
        return partial(type(self), offset=self.offset, path=self.path), (self.detail,)


class UnknownVersion(DecodeError):
    """The definitions do not contain the API key, or this version of the API."""


class TooManyElements(DecodeError):
    """The arrays of a message have more elements than the limit."""


class DefinitionError(DissectorError):
    """A definition page does not follow the notation. `page`, `line`: the location."""

    def __init__(self, detail: str, *, page: str, line: int) -> None:
        super().__init__(f"{page}:{line}: {detail}")
        self.detail = detail
        self.page = page
        self.line = line

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), page=self.page, line=self.line), (self.detail,)


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """A suggestion of the most similar name, for the end of an error message; may be empty."""
    from difflib import get_close_matches

    similar = get_close_matches(str(name), names, 1)
    return f". Did you mean {similar[0]}?" if similar else ""


def reason(error: OSError) -> str:
    """The reason of an error, without the file's name, which is all that fsspec may report."""
    if isinstance(error, FileNotFoundError) and error.strerror is None:
        return os.strerror(ENOENT)
    return error.strerror or str(error)
