"""Intervals of time to group by, as SQL: ``minute``, ``10s``, ``day``.

Intervals begin at local times: a day is that of the zone in which times are shown, and has 23 or 25
hours if the clock is changed. DuckDB's time zones are not used, because their rules may be older or
newer than those of Python, which shows the times.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, tzinfo
from functools import cache
from typing import TYPE_CHECKING

from analysis.display import presentation

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    import pyarrow as pa


def is_interval(name: str) -> bool:
    """Whether a column to group by is a length of time: ``minute``, ``10s``."""
    from analysis.input.times import length_ns

    return 0 < (length_ns(name) or 0) < 1 << 63  # times are 64 bits


def interval_start(name: str, time: str) -> str:
    """SQL for the start of the interval that contains a time; `name`: see `is_interval`.

    In a zone other than UTC, the query needs a connection of `create_function`.
    """
    from analysis.input.times import length_ns

    length, ns = length_ns(name), f"epoch_ns({time})"
    if presentation.zone() == UTC:
        return f"make_timestamp_ns({ns} // {length} * {length})"
    return f'make_timestamp_ns("{_function(presentation.zone())}"({ns}, {length}))'


def create_function(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the function of `interval_start` for the zone in which times are shown."""
    zone = presentation.zone()
    if zone == UTC:
        return
    import duckdb
    from duckdb.func import PythonUDFType

    with suppress(duckdb.CatalogException):  # another connection to the database has created it
        connection.create_function(
            _function(zone),
            lambda times, lengths: _starts(zone, times, lengths),
            ["BIGINT", "BIGINT"],
            "BIGINT",
            type=PythonUDFType.ARROW,
        )


def _function(zone: tzinfo) -> str:
    """The name of the function in SQL. Connections to one database share their functions."""
    return f"kafka_local_interval {zone}"


def _starts(zone: tzinfo, times: pa.Array, lengths: pa.Array) -> pa.Array:
    """The starts of intervals that contain times; all in ns."""
    import numpy as np
    import pyarrow as pa

    from analysis.input.times import HOUR

    utc, local, offsets = _periods(zone)
    ns, length = (np.asarray(each) for each in (times, lengths))
    offset = offsets[np.searchsorted(utc, ns, "right")]
    start = (ns + offset) // length * length
    # An hour that the clock repeats is two hours; a longer interval has the offset of its start.
    first = offsets[np.searchsorted(local, start, "right")]
    return pa.array(start - np.where(length <= HOUR, offset, first))


@cache
def _periods(zone: tzinfo) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The changes of the clock in UTC and in local time, and the offsets before and after them.

    Local times that are repeated or skipped are before the change: a midnight that is repeated is
    the first one, and one that is skipped is the time of the change.
    """
    import numpy as np

    from analysis.input.times import offsets

    starts, values = np.array(offsets(zone)).T
    return starts[1:], starts[1:] + np.maximum(values[:-1], values[1:]), values
