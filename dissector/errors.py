"""The one root of every exception that this project raises.

Whoever calls the public functions needs to catch `DissectorError` and nothing else. Damage inside a
capture is never an exception: it becomes a row of the `problems` table, and the reading goes on.
"""


class DissectorError(Exception):
    """Root of all exceptions of this project."""


class CaptureError(DissectorError):
    """An input could not be read as a capture at all: missing, empty, or of no known format."""


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
