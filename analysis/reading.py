"""Reading for the functions of Python: files with problems are warnings of Python."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator

from analysis.input.open import Opened, file_warnings
from dissector.tables.finalizer import NamedBatch


def streamed(opened: Opened, tables: Collection[str]) -> Iterator[NamedBatch]:
    """The rows of tables, as `Capture.stream`; then a warning for each file that could not be read,
    or not wholly: without it, an answer without rows would look like a capture without problems."""
    yield from opened.stream(tables)
    for line in file_warnings(opened.file_problems):
        warnings.warn(line.removeprefix("Warning: "), stacklevel=2)
