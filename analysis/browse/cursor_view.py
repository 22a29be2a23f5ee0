"""A list of lines with a cursor, of which only the visible ones are made.

textual's tables and trees have an object for each row. This view requests the text of a row when
the row is on the screen, so a list of millions of rows costs as much as a screen.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

SIDEWAYS: Final = 8
"""Columns of a step to the left or right."""


class CursorView(ScrollView, can_focus=True):
    """A scrolled list; the cursor is the number of a line, from 0."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"cursor-view--cursor", "cursor-view--head"}
    DEFAULT_CSS = """
    CursorView { height: 1fr; scrollbar-size: 0 1; }
    CursorView > .cursor-view--cursor { background: $surface-lighten-2; }
    CursorView:focus > .cursor-view--cursor { background: $primary; color: $text; }
    CursorView > .cursor-view--head { color: $text-muted; text-style: bold; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("home", "go(0)", "first", show=False),
        Binding("end", "last", "last", show=False),
        Binding("left", "sideways(-1)", "left", show=False),
        Binding("right", "sideways(1)", "right", show=False),
        Binding("enter", "open", "open", show=False),
    ]
    HEAD: ClassVar[int] = 0
    """Lines above the first one, which do not scroll."""

    @dataclass
    class Moved(Message):
        """The cursor is on another line, or the line has other content."""

        view: CursorView

    @dataclass
    class Opened(Message):
        """Enter was pressed on a line, or the line was clicked twice."""

        view: CursorView

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.cursor = 0

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of lines."""

    @property
    def visible_width(self) -> int:
        """Cells beside the scroll bar."""
        return self.scrollable_content_region.width

    @property
    @abstractmethod
    def line_width(self) -> int:
        """Cells of the longest line."""

    @abstractmethod
    def text(self, line: int) -> Text:
        """The text of a line."""

    def head(self) -> Text:
        """The text of the line above the first one."""
        return Text()

    def changed(self, *, cursor: int | None = None) -> None:
        """Show other content. `cursor`: the new line of the cursor."""
        self.virtual_size = Size(self.line_width, self.count + self.HEAD)
        self.go(self.cursor if cursor is None else cursor)
        self.refresh()

    def go(self, line: int) -> None:
        """Move the cursor to a line, or as near as possible."""
        self.cursor = max(min(line, self.count - 1), 0)
        if self.count:
            # The head covers the first line of the visible part.
            region = Region(self.scroll_offset.x, self.cursor, 1, 1 + self.HEAD)
            self.scroll_to_region(region, animate=False, force=True)
            self.post_message(self.Moved(self))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width, (x, top) = self.size.width, self.scroll_offset
        if y < self.HEAD:
            style = self.get_component_rich_style("cursor-view--head")
            return self._marked(self._strip(self.head(), x, width, style), style)
        line = y - self.HEAD + top
        if line >= self.count:
            return Strip.blank(width, self.rich_style)
        style = Style()
        if line == self.cursor:
            style = self.get_component_rich_style("cursor-view--cursor")
        return self._strip(self.text(line), x, width, style)

    def _strip(self, text: Text, x: int, width: int, style: Style) -> Strip:
        segments = [Segment(part.text, part.style) for part in text.render(self.app.console)]
        strip = Strip(segments).crop_extend(x, x + width, None)
        return strip.apply_style(self.rich_style + style)

    def _marked(self, head: Strip, style: Style) -> Strip:
        """The head, with marks where columns are beyond the left or right edge."""
        width, x = self.visible_width, self.scroll_offset.x
        before, beyond = int(x > 0), int(x + width < self.line_width)
        marks = (Strip([Segment(mark, self.rich_style + style)]) for mark in "‹›")
        left, right = (
            mark.crop(0, count) for mark, count in zip(marks, (before, beyond), strict=True)
        )
        return Strip.join([left, head.crop(before, width - beyond), right])

    def action_move(self, by: int) -> None:
        self.go(self.cursor + by)

    def action_page(self, by: int) -> None:
        self.go(self.cursor + by * max(self.size.height - self.HEAD - 1, 1))

    def action_go(self, line: int) -> None:
        self.go(line)

    def action_last(self) -> None:
        self.go(self.count - 1)

    def action_sideways(self, by: int) -> None:
        self.scroll_to(x=self.scroll_offset.x + by * SIDEWAYS, animate=False)

    def action_open(self) -> None:
        if self.count:
            self.post_message(self.Opened(self))

    def on_click(self, event: events.Click) -> None:
        if event.y < self.HEAD:
            self.head_clicked(event.x + self.scroll_offset.x)
            return
        self.go(event.y - self.HEAD + self.scroll_offset.y)
        if event.chain == 2:
            self.action_open()

    def head_clicked(self, x: int) -> None:
        """The head was clicked at column x of the line."""
