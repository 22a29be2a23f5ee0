"""Listings: tables without lines that fit the width of the terminal.

If the terminal is too narrow, columns are hidden, the least important first, and text is folded. A
number, a time or a heading is never broken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from analysis.display.terminal import printable
from dissector.arrays import value

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


class Listing:
    """Columns and rows of cells, for rich to print."""

    def __init__(
        self,
        columns: Sequence[Column],
        rows: Iterable[Sequence[Text]],
        *,
        note: str = "",
        hint: str = "",
        is_wide: bool = False,
    ) -> None:
        """`note`: follows the rows. `hint`: how to see hidden columns, if there is an option.
        `is_wide`: hide and fold nothing; lines may exceed the width of the terminal."""
        self._columns = [replace(each, name=printable(each.name)) for each in columns]
        self._rows = list(rows)
        self._note = note
        self._hint = hint
        self._is_wide = is_wide

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self._widths()
        shown = self._shown(widths, options.max_width)
        if sum(widths[index] + GAP for index in shown) - GAP <= options.max_width:
            yield from self._lines(shown, widths, console)
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

    def _lines(
        self, shown: Sequence[int], widths: Sequence[int], console: Console
    ) -> Iterator[Segment]:
        """A line for each row. A table of rich takes more than ten times as long."""
        heads = [Text(column.name, "dim") for column in self._columns]
        places = [(index, widths[index], self._columns[index].number) for index in shown]
        for row in (heads, *self._rows):
            gap = ""
            for index, width, is_number in places:
                cell = row[index]
                padding = " " * (width - cell.cell_len)
                style = console.get_style(cell.style) if cell.style else None
                text = padding + cell.plain if is_number else cell.plain + padding
                yield Segment(gap + text, style)
                gap = " " * GAP
            yield Segment.line()

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
        for row in self._rows:
            table.add_row(*(row[index] for index in shown))
        return table

    def _widths(self) -> list[int]:
        heads = [Text(column.name) for column in self._columns]
        return [
            max(cell.cell_len for cell in cells) for cells in zip(heads, *self._rows, strict=True)
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
        head = Text(self._columns[index].name).cell_len
        return min(width, max(folded, head)) if self._is_text(index) else width

    def _is_text(self, index: int) -> bool:
        return not (self._columns[index].number or self._columns[index].is_whole)
