"""Listings: tables without lines that fit the width of the terminal.

If the terminal is too narrow, columns are hidden, the least important first, and text is folded. A
number, a time or a heading is never broken.

A listing may have millions of cells. So a cell without a style is a `str`, and a pipe gets lines
that are joined without rich. rich folds text, and writes colours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, TypeAlias

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import StyleType
from rich.table import Table
from rich.text import Text

from analysis.display.terminal import printable
from dissector.arrays import value

Cell: TypeAlias = str | Text
"""A text without a style, or with one."""
Piece: TypeAlias = str | tuple[str, StyleType]
"""The same for `Text.assemble`."""

ROWS: Final = 1000
"""Maximum number of rows that are printed in one piece."""
GAP: Final = 2
"""Spaces between columns."""
FOLDED: Final = 20
"""Width to which an important text is folded before a less important column is hidden."""
NARROW: Final = 14
"""The same, if all important columns fit with it. Narrower names are hard to read."""
LEAST: Final = FOLDED // 2
"""Smallest width to which a text is folded."""

ALWAYS: Final = 0
OPTIONAL: Final = 1000
"""Ranks: see `Column.rank`."""


@value
class Column:
    """One column of a listing."""

    name: str
    number: bool = False
    """Aligned to the right, never broken."""
    rank: int = ALWAYS
    """Columns with a higher rank are hidden first. `OPTIONAL`: even if the column fits only with
    folded text. `ALWAYS`: only if it does not fit with text folded as far as possible."""
    is_whole: bool = False
    """Never broken."""
    note: str = ""
    """Follows the rows, once, if a column with it is shown."""


class Lines:
    """Lines of pieces with styles. A `Text` of rich takes more than ten times as long to make."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        """`pieces`: texts, or texts with their style; they contain the ends of all lines but the
        last."""
        self._pieces = pieces

    @property
    def plain(self) -> str:
        """The lines without styles."""
        return "".join([each if isinstance(each, str) else each[0] for each in self._pieces])

    def __rich__(self) -> Text:
        return Text.assemble(*self._pieces)


class Listing:
    """Columns with their cells, for rich to print."""

    def __init__(
        self,
        columns: Sequence[Column],
        cells: Sequence[Sequence[Cell]],
        *,
        note: str = "",
        hint: str = "",
        is_wide: bool = False,
    ) -> None:
        """`cells`: those of each column. `note`: follows the rows. `hint`: how to see hidden
        columns, if there is an option. `is_wide`: hide and fold nothing; lines may exceed the width
        of the terminal."""
        self._columns = [replace(each, name=printable(each.name)) for each in columns]
        self._cells = cells
        self._note = note
        self._hint = hint
        self._is_wide = is_wide

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return self.pieces(options.max_width)

    def pieces(self, room: int) -> Iterator[RenderableType]:
        """Parts of the listing in this width, so that a long one is not printed as a whole."""
        widths = self._widths()
        shown = self._shown(widths, room)
        if sum(widths[index] + GAP for index in shown) - GAP <= room:
            yield from self._lines(shown, widths)
        else:
            yield self._folded(shown, widths)
        if self._note:
            yield Text(self._note, "dim")
        hidden = [column.name for i, column in enumerate(self._columns) if i not in shown]
        if hidden:
            hint = f"; {self._hint}" if self._hint else ""
            yield Text(f"Hidden (terminal too narrow): {', '.join(hidden)}{hint}", "dim")
        for note in dict.fromkeys(filter(None, (self._columns[index].note for index in shown))):
            yield Text(note, "dim")

    def _lines(self, shown: Sequence[int], widths: Sequence[int]) -> Iterator[Lines]:
        """A line for each row. A table of rich takes more than ten times as long."""
        last = max(map(len, self._cells), default=0)
        heads: list[Sequence[Cell]] = [[Text(column.name, "dim")] for column in self._columns]
        parts = (
            [cells[start : start + ROWS] for cells in self._cells] for start in range(0, last, ROWS)
        )
        for columns in chain([heads], parts):
            padded = [
                _padded(columns[index], self._columns[index], widths[index], GAP if place else 0)
                for place, index in enumerate(shown)
            ]
            ends = ["\n"] * len(padded[0])
            yield Lines([*chain.from_iterable(zip(*padded, ends, strict=True))][:-1])

    def _folded(self, shown: Sequence[int], widths: Sequence[int]) -> Table:
        """A table with texts on several lines."""
        table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
        for index in shown:
            column, width = self._columns[index], widths[index]
            is_whole = self._is_wide or not self._is_text(index)
            table.add_column(
                Text(column.name),
                justify="right" if column.number else "left",
                no_wrap=is_whole,
                overflow="fold",
                min_width=width if is_whole else self._least(index, width, LEAST),
            )
        for row in zip(*(self._cells[index] for index in shown), strict=True):
            table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
        return table

    def _widths(self) -> list[int]:
        return [
            max(map(cell_width, (column.name, *cells)))
            for column, cells in zip(self._columns, self._cells, strict=True)
        ]

    def _shown(self, widths: Sequence[int], room: int) -> list[int]:
        """Indexes of the columns that are shown."""
        places = range(len(widths))
        if self._is_wide:
            return list(places)

        def fit(shown: Sequence[int], folded: int) -> bool:
            needed = [self._least(each, widths[each], folded) + GAP for each in shown]
            return sum(needed) - GAP <= room

        important = [each for each in places if self._columns[each].rank < OPTIONAL]
        widths_to_try = range(FOLDED, NARROW - 1, -1)
        important_width = next((each for each in widths_to_try if fit(important, each)), FOLDED)
        shown: list[int] = []
        for index in sorted(places, key=lambda index: self._columns[index].rank):
            rank = self._columns[index].rank
            folded = LEAST if rank == ALWAYS else important_width if rank < OPTIONAL else room
            if not shown or fit((*shown, index), folded):
                shown.append(index)
        return sorted(shown)

    def _least(self, index: int, width: int, folded: int) -> int:
        """The width of a column whose text is folded to this width."""
        head = cell_width(self._columns[index].name)
        return min(width, max(folded, head)) if self._is_text(index) else width

    def _is_text(self, index: int) -> bool:
        return not (self._columns[index].number or self._columns[index].is_whole)


def cell_width(cell: Cell) -> int:
    """The width of a text, or of a cell, on a terminal."""
    text = cell_text(cell)
    return len(text) if text.isascii() else cell_len(text)


def cell_text(cell: Cell) -> str:
    """The text of a cell without its style."""
    return cell if isinstance(cell, str) else cell.plain


def _padded(cells: Sequence[Cell], column: Column, width: int, gap: int) -> list[Piece]:
    """The cells of a column in its width, after a gap."""
    padded: list[Piece] = []
    for cell in cells:
        text = cell_text(cell)
        space = " " * (width - cell_width(text))
        text = " " * gap + (space + text if column.number else text + space)
        padded.append(text if isinstance(cell, str) else (text, cell.style))
    return padded
