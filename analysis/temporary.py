"""Folders of temporary files, which no signal leaves behind.

Before its first file, `tempfile` tries the folder of the system with a file of its own. So signals
wait while it does that, and while a folder is created or removed: see `analysis.startup`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from analysis.startup import deferred_interruption


def system_folder() -> str:
    """The folder of the system for temporary files. Raises OSError if none can be written."""
    with deferred_interruption():
        return tempfile.gettempdir()


@contextmanager
def temporary_folder() -> Iterator[str]:
    """A context in which a new folder exists, which only the user can read. Raises OSError."""
    with ExitStack() as stack:
        with deferred_interruption():
            folder = tempfile.TemporaryDirectory(prefix="kafka-dissector-")
            stack.callback(_remove, folder)
        yield folder.name


def _remove(folder: tempfile.TemporaryDirectory[str]) -> None:
    with deferred_interruption():
        folder.cleanup()
