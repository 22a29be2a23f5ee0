"""Reading for the functions of Python: files with problems, and several clusters, are warnings of
Python."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from traceback import walk_stack
from typing import TYPE_CHECKING, Final

from analysis.input.open import Opened, file_warnings
from dissector.tables.finalizer import NamedBatch

if TYPE_CHECKING:
    import pyarrow as pa

_OWN: Final = ("analysis", "dissector", "kafka_dissector", "contextlib")
"""Packages between the caller and a warning."""


def streamed(
    opened: Opened, tables: Collection[str], warned: set[str] | None = None
) -> Iterator[NamedBatch]:
    """The rows of tables, as `Capture.stream`; then a warning for each file that could not be read,
    or not wholly: without it, an answer without rows would look like a capture without problems.

    `warned`: the warnings of earlier passes, which are not repeated. It gets the new ones.
    """
    yield from opened.stream(tables)
    lines = [line for line in file_warnings(opened.file_problems) if line not in (warned or ())]
    if warned is not None:
        warned.update(lines)
    for line in lines:
        _warn(line)


def warn_of_clusters(endpoints: pa.Table) -> None:
    """Warn that an answer mixes clusters, if there are several. `endpoints`: the rows of
    `analysis.input.clusters.ENDPOINTS`."""
    from analysis.input.clusters import warning

    advice = "To select a cluster, pass its tables instead of the paths:"
    if lines := warning(endpoints, advice, 'load(paths, chosen=Filter(cluster="{}"))'):
        _warn("\n".join(lines))


def _warn(text: str) -> None:
    file, number = _caller()
    # Without a registry, Python shows the warning each time, even when a cell runs again.
    warnings.warn_explicit(text.removeprefix("Warning: "), UserWarning, file, number)


def _caller() -> tuple[str, int]:
    """The file and line that called a function of this project."""
    file, number = "", 1
    for frame, number in walk_stack(None):  # noqa: B007
        file = frame.f_code.co_filename
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _OWN:
            break
    return file, number
