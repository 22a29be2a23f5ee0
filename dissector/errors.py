"""The one root of every exception that this project raises.

Whoever calls the public functions needs to catch `DissectorError` and nothing else. Damage inside a
capture is never an exception: it becomes a row of the `problems` table, and the reading goes on.
"""

from __future__ import annotations

from collections.abc import Iterable


class DissectorError(Exception):
    """Root of all exceptions of this project."""


class CaptureError(DissectorError):
    """An input cannot be read as a capture: missing, empty, of no known format, closed, or a pipe
    that was read before."""


class DecodeError(DissectorError):
    """Bytes are not what their definition says.

    `offset` counts bytes from the start of what was handed in; `path` names the field, as
    ``topics[2].partitions[0].error_code``, or is empty where no field had begun.
    """

    def __init__(self, detail: str, *, offset: int, path: str = "") -> None:
        super().__init__(f"{detail} at byte {offset}" + (f", in {path}" if path else ""))
        self.detail = detail
        self.offset = offset
        self.path = path


class UnknownVersion(DecodeError):
    """The API key, or this version of it, is newer than the definitions, or never existed."""


class TooManyElements(DecodeError):
    """The arrays of a message have more elements than are kept of one."""


class DefinitionError(DissectorError):
    """A definition page does not follow the notation. `page` and `line` say where."""

    def __init__(self, detail: str, *, page: str, line: int) -> None:
        super().__init__(f"{page}:{line}: {detail}")
        self.page = page
        self.line = line


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """A question with the most similar name, for the end of an error; empty if none is similar."""
    from difflib import get_close_matches

    similar = get_close_matches(str(name), names, 1)
    return f". Did you mean {similar[0]}?" if similar else ""
