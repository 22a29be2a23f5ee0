"""Any rows on a screen, for the eyes: fewer digits than in the data, and what has no room left out.

Numbers have no separators, so that an id or a packet number can be copied. Of times the day is said
once, where they are all of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import RenderableType
from rich.text import Text

from analysis.listing import Column, Listing
from analysis.terminal import printable, time_text

DAY: Final = 10
"""Characters of a day, as `time_text` writes it."""


def screen(rows: pa.Table) -> Iterator[RenderableType]:
    """The parts of the screen."""
    if not len(rows):
        yield Text("No rows.", "dim")
        return
    days = _days(rows)
    from_day = DAY + 1 if len(days) == 1 else 0
    columns = [
        Column(field.name, number=_is_number(field.type), optional=index > 0)
        for index, field in enumerate(rows.schema)
    ]
    texts = [_cells(column, from_day) for column in rows.columns]
    yield Listing(columns, zip(*texts, strict=True), tell=True)
    if from_day:
        yield Text(f"times of {days.pop()}, UTC", "dim")


def _cells(column: pa.ChunkedArray, from_day: int) -> list[Text]:
    text: Callable[[Any], str] = str
    if pa.types.is_timestamp(column.type):
        column = _ns(column)
        text = lambda ns: time_text(ns, 3)[from_day:]  # noqa: E731
    elif pa.types.is_floating(column.type):
        text = "{:.3f}".format
    elif pa.types.is_list(column.type):
        text = lambda values: ", ".join(map(str, values))  # noqa: E731
    elif pa.types.is_boolean(column.type):
        text = {True: "yes", False: "no"}.__getitem__
    missing = Text("-", "dim")
    return [
        missing if value is None else Text(printable(text(value))) for value in column.to_pylist()
    ]


def _days(rows: pa.Table) -> set[str]:
    times = [column for column in rows.columns if pa.types.is_timestamp(column.type)]
    ends = [end.as_py() for column in times for end in pc.min_max(_ns(column)).values()]
    return {time_text(end)[:DAY] for end in ends if end is not None}


def _ns(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times of any unit in ns since 1970."""
    return times.cast(pa.timestamp("ns")).cast(pa.int64())


def _is_number(type: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(test(type) for test in tests)
