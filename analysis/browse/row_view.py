"""A table of `Rows` in some order: columns with a head, a cursor, and a column to sort by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.message import Message

from analysis.browse.cursor_view import CursorView
from analysis.browse.rows import Numbers, Order, Rows
from analysis.display.listing import cell_text
from analysis.display.row_table import DAY, cells, is_number

SAMPLE: Final = 300
"""Rows from which widths of columns are computed."""
WIDEST: Final = 32
"""Maximum number of cells of a column of text; the last column is not limited."""
SHARE: Final = 6
"""A column of text has at most a sixth of the width of the view, but `LEAST` cells if it needs
them."""
LEAST: Final = 20
GAP: Final = 2
"""Cells between columns; the mark of the sorted column is in the first one."""
DIGITS: Final = 6
"""Digits of a second in times."""


class RowView(CursorView):
    """Rows; `numbers` has the number of the row of each line."""

    HEAD = 1
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort", "sort"),
        Binding("S", "reverse", "reverse", show=False),
    ]

    @dataclass
    class Sorted(Message):
        """The user requests another order."""

        view: RowView
        order: Order

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows = Rows([], [])
        self.numbers: Numbers = np.zeros(0, np.int64)
        self.column = 0
        """Index of the column of the cursor."""
        self.order = Order()
        self._names: list[str] = []
        self._widths: list[int] = []
        self._of_numbers: set[str] = set()
        """Columns that are aligned to the right."""
        self._from_day = 0
        self._page: tuple[int, list[Text]] = (0, [])

    def show(self, rows: Rows, numbers: Numbers, order: Order, *, cursor: int = 0) -> None:
        """Show rows, which are in this order. `cursor`: the line of the cursor."""
        self.rows, self.numbers, self.order = rows, numbers, order
        self._names = list(rows.columns)
        self.column = min(self.column, max(len(self._names) - 1, 0))
        self._page = (0, [])
        self._measure()
        self.changed(cursor=cursor)

    @property
    def count(self) -> int:
        return len(self.numbers)

    @property
    def line_width(self) -> int:
        return max(sum(self._widths) + GAP * (len(self._widths) - 1), 0)

    @property
    def column_name(self) -> str:
        """The name of the column of the cursor."""
        return self._names[self.column] if self._names else ""

    def value(self, name: str) -> Any:
        """The value of a column in the row of the cursor."""
        return self.rows.take(name, self.numbers[self.cursor : self.cursor + 1])[0].as_py()

    def head(self) -> Text:
        head = Text()
        for index, (name, width) in enumerate(zip(self._names, self._widths, strict=True)):
            mark = ("▼" if self.order.descending else "▲") if name == self.order.column else ""
            title = Text(name + mark, "reverse" if index == self.column else "")
            before = width - len(name) if name in self._of_numbers else 0
            head.append(" " * before).append_text(title)
            head.append(" " * (width + GAP - before - title.cell_len))
        return head

    def text(self, line: int) -> Text:
        first, texts = self._page
        if not first <= line < first + len(texts):
            first = max(line if line < first else line - self.size.height + 1, 0)
            first = self.scroll_offset.y if self._is_visible(line) else first
            texts = self._texts(self.numbers[first : first + self.size.height + 1])
            self._page = first, texts
        return texts[line - first]

    def _is_visible(self, line: int) -> bool:
        return 0 <= line - self.scroll_offset.y <= self.size.height

    def _texts(self, numbers: Numbers) -> list[Text]:
        """Lines of rows; columns outside the screen are blank.

        Numbers that are partly outside are an ellipsis: a part looks like another number.
        """
        lines = [Text(no_wrap=True) for _ in numbers]
        left, right = self.scroll_offset.x, self.scroll_offset.x + self.visible_width
        at = 0
        for name, width in zip(self._names, self._widths, strict=True):
            if at + width < left or at > right:
                for line in lines:
                    line.append(" " * (width + GAP))
            else:
                is_number = name in self._of_numbers
                is_cut = is_number and not left <= at <= right - width
                for line, cell in zip(lines, self._cells(name, numbers), strict=True):
                    cell.truncate(1 if is_cut else width, overflow="ellipsis")
                    is_right = at < left if is_cut else is_number
                    before = width - cell.cell_len if is_right else 0
                    line.append(" " * before).append_text(cell)
                    line.append(" " * (width + GAP - before - cell.cell_len))
            at += width + GAP
        return lines

    def _cells(self, name: str, numbers: Numbers) -> list[Text]:
        values = self.rows.take(name, numbers)
        shown = cells(name, values, self._from_day, DIGITS, decimals=3)
        texts = [Text(cell) if isinstance(cell, str) else cell.copy() for cell in shown]
        style = self.rows.columns[name].style
        for text, value in zip(texts, values, strict=True):
            text.stylize(style(value.as_py()))
        return texts

    def _measure(self) -> None:
        """Compute the widths of columns from a sample."""
        index = np.linspace(0, max(self.count - 1, 0), min(self.count, SAMPLE)).astype(np.int64)
        sample = self.numbers[index]
        self._from_day = 0
        samples = {name: self.rows.take(name, sample) for name in self._names if len(sample)}
        self._of_numbers = {n for n, values in samples.items() if is_number(values.type)}
        times = {n: values for n, values in samples.items() if pa.types.is_timestamp(values.type)}
        days = {cell_text(cell)[:DAY] for each in times.items() for cell in cells(*each)} - {"-"}
        self._from_day = DAY + 1 if len(days) == 1 else 0
        self._widths = []
        limit = min(max(self.size.width // SHARE, LEAST), WIDEST)
        unlimited = {*self._of_numbers, *times, *self._names[-1:]}
        for name in self._names:
            texts = self._cells(name, sample) if len(sample) else []
            width = max((text.cell_len for text in texts), default=0)
            self._widths.append(max(len(name), width if name in unlimited else min(width, limit)))

    def on_resize(self) -> None:
        self._measure()
        self._page = (0, [])
        self.changed()

    def watch_scroll_x(self, old: float, new: float) -> None:
        self._page = (0, [])
        super().watch_scroll_x(old, new)

    def action_sideways(self, by: int) -> None:
        self.column = max(min(self.column + by, len(self._names) - 1), 0)
        left = sum(self._widths[: self.column]) + GAP * self.column
        right = left + self._widths[self.column] if self._widths else 0
        x = self.scroll_offset.x
        if left < x or right > x + self.visible_width:
            self.scroll_to(x=left if left < x else right - self.visible_width, animate=False)
        self.refresh()

    def head_clicked(self, x: int) -> None:
        at = 0
        for index, width in enumerate(self._widths):
            if at <= x < at + width + GAP:
                self.column = index
                self.action_sort()
            at += width + GAP

    def action_sort(self) -> None:
        """Sort by the column of the cursor; again: reverse."""
        if self.column_name == self.order.column:
            self.action_reverse()
        else:
            self.post_message(self.Sorted(self, Order(self.column_name)))

    def action_reverse(self) -> None:
        order = replace(self.order, descending=not self.order.descending)
        self.post_message(self.Sorted(self, order))
