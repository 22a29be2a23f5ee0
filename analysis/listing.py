"""Listings: tables without lines, that fit the screen.

Where a screen is too narrow, columns that can be missed are left out, the last first; then text is
folded. A number is never cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

GAP: Final = 2
"""Blanks between columns."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a listing."""

    name: str
    number: bool = False
    """Stands to the right, and is not broken."""
    optional: bool = False
    """Can be missed."""


class Listing:
    """Columns and rows of cells, for rich to print."""

    def __init__(
        self, columns: Sequence[Column], rows: Iterable[Sequence[Text]], *, tell: bool = False
    ) -> None:
        """`tell`: say below which columns are left out."""
        self._columns = columns
        self._rows = list(rows)
        self._tell = tell

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
        widths = self._widths()
        shown = self._shown(widths, options.max_width)
        for index in shown:
            column = self._columns[index]
            if column.number:
                table.add_column(
                    column.name, justify="right", no_wrap=True, min_width=widths[index]
                )
            else:
                table.add_column(column.name, overflow="fold")
        for row in self._rows:
            table.add_row(*(row[index] for index in shown))
        yield table
        missed = [column.name for i, column in enumerate(self._columns) if i not in shown]
        if self._tell and missed:
            yield Text(f"no room for {', '.join(missed)}", "dim")

    def _widths(self) -> list[int]:
        heads = [Text(column.name) for column in self._columns]
        return [
            max(cell.cell_len for cell in cells) for cells in zip(heads, *self._rows, strict=True)
        ]

    def _shown(self, widths: Sequence[int], room: int) -> list[int]:
        """Indexes of the columns that are shown."""
        shown = list(range(len(widths)))
        for index in reversed(shown):
            if sum(widths[each] + GAP for each in shown) - GAP <= room:
                break
            if self._columns[index].optional:
                shown.remove(index)
        return shown
