"""From tables to answers: pandas, SQL, the command line.

load      a capture as pandas DataFrames, by table name
connect   a capture as views of DuckDB, for questions in SQL
throttle  and the like: the answers of `analysis.answers`, each a function of what `load` gives
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

__all__ = ["connect", "load"]


def __getattr__(name: str) -> Callable[..., pd.DataFrame]:
    """The answer of that name, and pandas with it, when it is first asked for."""
    from analysis.answers import ANSWERS

    if name in ANSWERS:
        return ANSWERS[name].function
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from analysis.answers import ANSWERS

    return sorted([*globals(), *ANSWERS])


def load(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    tables: str | Collection[str] | None = None,
    **options: Any,
) -> dict[str, pd.DataFrame]:
    """A capture as DataFrames, by table name: ``load("x.pcap")["exchanges"]``.

    `paths` and `options` are those of `dissector.open_capture`. `tables`: which; None: all but
    `records`, which may be as large as the capture. A column has the same dtype whatever is in it:

        times               datetime64[ns, UTC]
        integers, booleans  Int64, Int32, …, boolean: pandas' nullable types, null is NA
        numbers in ms       float64, null is NaN
        text                str, as pandas has it by default; null is missing
        bytes, lists        object: bytes, NumPy arrays; null is None

    Raises CaptureError when nothing could be read, DissectorError for a table that does not exist.
    """
    import dissector
    from analysis.frames import frame

    wanted = [tables] if isinstance(tables, str) else tables
    read = dissector.open_capture(paths, **options).tables(wanted)
    return {name: frame(table) for name, table in read.items()}


def connect(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], **options: Any
) -> duckdb.DuckDBPyConnection:
    """A connection to DuckDB in which every table is a view: ``connect("x.pcap").sql("…").df()``.

    `paths` and `options` are those of `dissector.open_capture`. The capture is read when a query
    names a table that was not read yet; the rows are then kept outside of memory. Times are
    TIMESTAMP_NS, in UTC.

    Raises CaptureError when nothing can be read. What goes wrong in a query is an error of
    DuckDB's.
    """
    from analysis.sql import connect as connected

    return connected(paths, **options)
