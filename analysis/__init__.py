"""From tables to answers: pandas, SQL, the command line.

load      a capture as pandas DataFrames, by table name
Filter    conditions on exchanges, for `load`
cut       the packets of chosen exchanges as a capture
connect   a capture as views of DuckDB, for questions in SQL
latency   and the other answers: functions from a capture to a DataFrame, listed in `ANSWERS`
diagnose  findings about a capture, the worst first
compare   what changed between two captures
trace     one record: produced, fetched, committed
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Unpack

from analysis.answers import ANSWERS

__all__ = [
    "ANSWERS", "DIAGNOSIS_TABLES", "Filter", "__version__", "compare", "connect", "cut",
    "diagnose", "load", "response_times", "trace",
]  # fmt: skip

_MODULES = {
    "DIAGNOSIS_TABLES": "analysis.diagnosis.run",
    "Filter": "analysis.input.filters",
    "compare": "analysis.comparison.run",
    "connect": "analysis.sql.views",
    "cut": "analysis.cutting.driver",
    "diagnose": "analysis.diagnosis.run",
    "response_times": "analysis.encrypted.response_times",
    "trace": "analysis.timeline.record",
}
"""Modules of names that are imported when they are first used."""

if TYPE_CHECKING:
    import pandas as pd

    from analysis import functions
    from analysis.comparison.run import compare
    from analysis.cutting.driver import cut
    from analysis.diagnosis.run import DIAGNOSIS_TABLES, diagnose
    from analysis.encrypted.response_times import response_times
    from analysis.functions import *  # noqa: F403
    from analysis.input.filters import Filter
    from analysis.sql.views import connect
    from analysis.timeline.record import trace
    from dissector.capture import Names, OpenOptions, Paths

    __all__ += functions.__all__
    __version__: str
else:  # type checkers would accept any name
    __all__ += ANSWERS.names

    def __getattr__(name: str) -> Any:
        """Import a name when it is first used. The call of an answer imports pandas and DuckDB."""
        if name == "__version__":
            import dissector

            return dissector.__version__
        if name in ANSWERS:
            return ANSWERS[name].function
        if name in _MODULES:
            return getattr(import_module(_MODULES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def load(
    paths: Paths,
    tables: Names | None = None,
    chosen: Filter | None = None,
    **options: Unpack[OpenOptions],
) -> dict[str, pd.DataFrame]:
    """A capture as DataFrames, by table name: ``load("x.pcap")["exchanges"]``.

    `paths` and `options` are those of `open_capture`; `paths` may also be tables that were exported
    as Parquet. `tables`: one or more names; by default, all tables that are not opt-in. `chosen`:
    load only the rows of exchanges that meet it: ``load("x.pcap", chosen=Filter(client=["app"]))``.

    A column has the same dtype in every capture:

        times               datetime64[ns, UTC]
        integers, booleans  Int64, Int32, …, boolean: pandas' nullable types, null is NA
        numbers in ms       float64, null is NaN
        text                str, as pandas has it by default; null is missing
        bytes, lists        object: bytes, NumPy arrays; null is None. Headers are dicts in an array

    Issues a UserWarning for each file that could not be read completely. Raises CaptureError if
    nothing could be read, and DissectorError for a table that does not exist.
    """
    from analysis.frames import frame
    from analysis.input.open import open_input
    from analysis.reading import streamed
    from dissector.pipeline import collected, known_tables

    wanted = known_tables(tables)
    rows = streamed(open_input(paths, chosen, **options), wanted)
    return {name: frame(table) for name, table in collected(rows, wanted).items()}
