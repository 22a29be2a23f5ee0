"""Start-up: imports that a command prevents, and imports that it must make early.

`hide_pandas`: PyArrow imports pandas, if it is installed, at its first conversion, to recognize
DataFrames. Few commands make DataFrames, and the import takes longer than all other work on a small
capture: `export` of a recording took 1.87 s of processor time with pandas hidden, and 2.37 s
without. Commands that need pandas call `allow_pandas` before they import PyArrow.

`import_pipeline`: `sniff` drops the privileges of root once its sockets are open. The modules that
it needs may be readable only by root, so it imports them before.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _HidePandas(MetaPathFinder):
    """Reports pandas as not installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)


def hide_pandas() -> None:
    """Hide pandas from imports in this process."""
    sys.meta_path.insert(0, _HidePandas())


def allow_pandas() -> None:
    """Undo `hide_pandas`."""
    sys.meta_path[:] = [f for f in sys.meta_path if not isinstance(f, _HidePandas)]


def import_pipeline() -> None:
    """Import all modules that reading packets needs, including those imported on first use."""
    from dissector.pipeline import Pipeline
    from dissector.tables import TABLES

    Pipeline(None).tables(TABLES)
