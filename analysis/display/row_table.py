"""Rows for people: rounded numbers, names of addresses, and columns that fit the width.

Numbers have no separators, so that ids and packet numbers can be copied. All numbers of a column
have the same decimals, at most three. If all times are of one day, the day is printed below the
table. Long texts are shortened. A table in Markdown has the same cells. The vertical form has a
line for each value, with whole texts, and with times and durations in nanoseconds.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import RenderableType
from rich.text import Text

from analysis.display import presentation
from analysis.display.listing import (
    ALWAYS,
    OPTIONAL,
    ROWS,
    Cell,
    Column,
    Lines,
    Listing,
    Piece,
    cell_text,
    cell_width,
)
from analysis.display.terminal import EMPTY, excerpt, local_date, printable, time_text, zone_name
from analysis.input.times import is_days
from analysis.names.addresses import COLUMNS as ADDRESSES

Values: TypeAlias = "pa.Array | pa.ChunkedArray"

DAY: Final = 10
"""Characters of a day in `time_text`."""
LONGEST: Final = 1000
"""Characters of a text that is not shortened: all settings of a client have less."""

_MARKDOWN: Final = re.compile(r"[\\|`*<\[~$]|_(?=_*(?:\W|$))|&(?=[#\w])")
"""Characters with a meaning in the cells of a table in Markdown. Underscores have one only together
with those at the end of a word, so that only these are escaped."""

HINT: Final = "use --wide, --vertical or --columns"


def screen(
    rows: pa.Table,
    essential: Sequence[str] = (),
    useful: Sequence[str] = (),
    *,
    is_wide: bool = False,
) -> Iterator[RenderableType]:
    """The parts of the screen.

    `essential`: columns that a narrow screen hides last; `useful`: columns that it hides before
    them; both with the most important first. Of the others, those without a value are hidden first.
    `is_wide`: show all columns at any width.
    """
    if not len(rows):
        yield Text("No rows.", "dim")
        return
    texts, caption = _texts(rows)
    ranks = {name: rank for rank, name in enumerate(useful, OPTIONAL)}
    ranks |= {name: rank for rank, name in enumerate(dict.fromkeys(essential), ALWAYS + 1)}
    last = OPTIONAL + len(useful)
    columns = [
        Column(
            field.name,
            number=is_number(field.type),
            is_whole=pa.types.is_timestamp(field.type) or pa.types.is_date(field.type),
            rank=_rank(rows[index], ranks.get(field.name, last), last + 1) if index else ALWAYS,
            note=caption if pa.types.is_timestamp(field.type) else "",
        )
        for index, field in enumerate(rows.schema)
    ]
    yield Listing(columns, texts, hint=HINT, is_wide=is_wide)


def markdown(rows: pa.Table) -> Iterator[RenderableType]:
    """The parts of a table in Markdown, with all columns (GitHub Flavored Markdown, section 4.10).

    Lines may exceed the width of the terminal, which does not break them.
    """
    if not len(rows):
        yield Text("No rows.")
        return
    texts, caption = _texts(rows)
    columns = [
        _markdown_column([printable(field.name), *column], is_number=is_number(field.type))
        for column, field in zip(texts, rows.schema, strict=True)
    ]
    lines = (f"| {' | '.join(row)} |" for row in zip(*columns, strict=True))
    while part := [*islice(lines, ROWS)]:
        yield Text("\n".join(part), no_wrap=True)
    if caption:
        yield Text(f"\n{caption}", no_wrap=True)


def _markdown_column(cells: Sequence[Cell], *, is_number: bool) -> list[str]:
    """The cells of a column, of which the first is its name, with the same width."""
    texts = [*map(cell_text, cells)]
    escaped = {text: _MARKDOWN.sub(r"\\\g<0>", text) for text in {*texts}}
    width = max(3, *map(cell_width, escaped.values()))
    padded = {}
    for text, shown in escaped.items():
        space = " " * (width - cell_width(shown))
        padded[text] = space + shown if is_number else shown + space
    head, *others = (padded[text] for text in texts)
    return [head, "-" * (width - 1) + (":" if is_number else "-"), *others]


def _texts(rows: pa.Table) -> tuple[list[list[Cell]], str]:
    """The cells of each column, and the caption with the day of all times; empty without one."""
    days = _days(rows)
    from_day = DAY + 1 if len(days) == 1 else 0
    texts = [cells(n, c, from_day) for n, c in zip(rows.column_names, rows.columns, strict=True)]
    return texts, f"times of {days.pop()}, {zone_name()}" if from_day else ""


def hidden_rows(shown: int, total: int) -> Text:
    """The note below a table of which only the first rows are shown."""
    # The empty line ends a table in Markdown.
    return Text(
        f"\nHidden: rows {shown + 1:,} to {total:,}; select fewer with filters such as --topic, or "
        "use -o FILE or a pipe",
        "dim",
    )


def vertical(rows: pa.Table, total: int) -> Iterator[RenderableType]:
    """The parts of a screen with a line for each value. `total`: number of all rows."""
    if not len(rows):
        yield Text("No rows.", "dim")
        return
    columns = [
        cells(name, column, digits=9, is_brief=False)
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    ]
    names = [printable(name) for name in rows.column_names]
    width = max(map(len, names))
    heads = [(f"  {name:<{width}}  ", "dim") for name in names]
    for index, row in enumerate(zip(*columns, strict=True)):
        number = f"{chr(10) if index else ''}row {index + 1} of {total}"
        lines: list[Piece] = [(number, "dim"), "\n"]
        for head, cell in zip(heads, row, strict=True):
            lines += head, cell if isinstance(cell, str) else (cell.plain, cell.style), "\n"
        yield Lines(lines[:-1])


def dated(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    """The rows, with dates for the starts of days in columns to group by: ``day``, ``2d``."""
    for index, name in enumerate(rows.column_names):
        if name in by and is_days(name):
            starts = _ns(rows[index]).to_pylist()
            dates = [None if start is None else local_date(start) for start in starts]
            rows = rows.set_column(index, name, pa.array(dates, pa.date32()))
    return rows


def cells(
    name: str, column: Values, from_day: int = 0, digits: int = 3, *, is_brief: bool = True,
    decimals: int | None = None,
) -> list[Cell]:  # fmt: skip
    """The text of each value of a column. `from_day`: characters of times to leave out.

    `digits`: of the fraction of seconds in times. `is_brief`: a name stands for the address of its
    host, and a long text is shortened. `decimals`: of other numbers; None: those that the column
    needs, at most 3, or more if ms then have the precision of times.
    """
    text: Callable[[Any], str] = str
    if pa.types.is_timestamp(column.type):
        column = _ns(column)
        text = lambda ns: time_text(ns, digits)[from_day:]  # noqa: E731
    elif pa.types.is_floating(column.type):
        if decimals is None:
            decimals = _decimals(column, max(digits - 3, 3))
        text = f"{{:.{decimals}f}}".format
    elif pa.types.is_list(column.type):
        text = lambda values: ", ".join(map(str, values))  # noqa: E731
    elif name in ADDRESSES and _is_text(column.type):
        text = presentation.names().brief if is_brief else presentation.names().shown
    elif pa.types.is_boolean(column.type):
        text = {True: "yes", False: "no"}.__getitem__
    missing, empty = Text("-", "dim"), Text(EMPTY, "dim")
    is_text = _is_text(column.type)
    longest = LONGEST if is_brief else sys.maxsize

    def cell(value: Any) -> Cell:
        if value is None:
            return missing
        return empty if is_text and not value else excerpt(text(value), longest)

    if pa.types.is_nested(column.type) or not len(column):  # Arrow makes no dictionary of them
        return [*map(cell, column.to_pylist())]
    # Many values are repeated: a text is made once.
    chunks = pa.chunked_array([column]) if isinstance(column, pa.Array) else column
    encoded = chunks.dictionary_encode().combine_chunks()
    texts = [*map(cell, encoded.dictionary.to_pylist())]
    return [missing if at is None else texts[at] for at in encoded.indices.to_pylist()]


def _rank(column: pa.ChunkedArray, rank: int, last: int) -> int:
    """The rank of a column, which is the last one if it has no value and is not essential."""
    return last if rank >= OPTIONAL and column.null_count == len(column) else rank


def _decimals(numbers: Values, most: int) -> int:
    """How many decimals the numbers need, at most `most`."""
    return next(
        (
            digits
            for digits in range(most)
            if pc.all(pc.equal(pc.round(numbers, digits), pc.round(numbers, most))).as_py()
            is not False
        ),
        most,
    )


def _days(rows: pa.Table) -> set[str]:
    times = [column for column in rows.columns if pa.types.is_timestamp(column.type)]
    ends = [end.as_py() for column in times for end in pc.min_max(_ns(column)).values()]
    return {time_text(end)[:DAY] for end in ends if end is not None}


def _ns(times: Values) -> Values:
    """Times of any unit in ns since 1970."""
    return times.cast(pa.timestamp("ns")).cast(pa.int64())


def _is_text(type: pa.DataType) -> bool:
    return any(test(type) for test in (pa.types.is_string, pa.types.is_large_string))


def is_number(type: pa.DataType) -> bool:
    """Whether values are aligned to the right."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(test(type) for test in tests)
