"""The fields of the selected exchange as a tree, and the bytes of the selected field.

The bytes of a secret are hidden wherever its value is: also in the bytes of the fields around it,
and where the secret is inside compressed bytes, all of these.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeAlias

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Container, VerticalScroll
from textual.widgets import Static

from analysis.browse.cursor_view import CursorView
from analysis.browse.field_view import FieldView, TreeLine
from analysis.display.exchange_tree import (
    HIDDEN_BYTE,
    INDENT,
    OFFSET,
    SCREEN_FIELDS,
    Line,
    concealed,
    conceals_unread,
    hex_rows,
    tree_lines,
)
from analysis.display.terminal import counted, printable
from dissector.embedded import NOWHERE
from dissector.embedded.records import Decode
from dissector.exchanges.exchange import Exchange
from dissector.protocol.explain import Explained, Explanation
from dissector.protocol.notation import Direction
from dissector.redaction import REDACTED

HEX_LINES: Final = 512
"""Maximum number of lines of bytes."""
SCROLLBAR: Final = 2
"""Cells of a scroll bar."""
FULL_TEXT: Final = 100_000
"""Maximum number of characters of a text."""

Place: TypeAlias = tuple[Direction | None, str | None]
"""A message, and the path of a field in it."""


@dataclass
class MessageContent:
    """The lines of an exchange, and the bytes that may be shown."""

    exchange: Exchange
    lines: Sequence[Line]
    secret: dict[Direction, list[tuple[int, int]]] = field(default_factory=dict)
    """Ranges of bytes that are hidden, by message."""
    concealed: frozenset[str] = frozenset()
    """Paths of hidden fields: message and path."""

    @classmethod
    def of(
        cls, exchange: Exchange, *, secrets: bool, decode: Decode | None = None
    ) -> MessageContent:
        """Explain an exchange. `secrets`: show them. `decode`: see `Exchange.unfold`."""
        # The head of a message is two lines: an empty one, and its title.
        # A large message has millions of fields: it is explained once.
        explained = {direction: exchange.explain(direction) for direction in Direction}
        lines = tree_lines(
            exchange, secrets=secrets, decode=decode, most=SCREEN_FIELDS, explained=explained
        )
        content = cls(exchange, [part for line in lines for part in _split(line)])
        for direction in () if secrets else Direction:
            ranges = _secret_ranges(exchange, direction, explained[direction])
            content.secret[direction], paths = ranges
            content.concealed |= {f"{direction.name}{path}" for path in paths}
        return content

    def tree(self) -> list[TreeLine]:
        """The lines with their places in the tree: fields are below the title of their message."""
        tree: list[TreeLine] = []
        before: Line | None = None
        for line in self.lines:
            place, event = _place_of(line), line.event
            if line.direction is None:
                tree.append(TreeLine(line.text, key=place))
            elif before is None or before.direction is None:
                tree.append(TreeLine(line.text, key=place, mark_at=0))
            else:
                depth = event.depth if event else 0
                is_element = event is not None and event.name.startswith("[")
                at = OFFSET + INDENT * depth
                tree.append(TreeLine(line.text, depth + 1, place, at, is_element))
            before = line
        return tree

    def details(self, index: int, columns: int) -> list[Text]:
        """The field of a line in words, its text, and its bytes. `columns`: bytes per line."""
        line = self.lines[index]
        if line.direction is None:
            return []
        event = line.event
        if event is None:
            frame = self.exchange.frame(line.direction)
            name = f"{line.direction.name.lower()}"
            head = Text(name, "bold") if frame else Text(f"no {name}", "dim")
            return [head, *self._hex(line.direction, 0, len(frame or b""), columns)]
        offset, length = self._place(index)
        place = f"{'at' if event.offset != NOWHERE else 'inside the bytes at'} {offset:,}"
        size = counted(length, "byte")
        details = [Text(printable(event.path), "bold"), Text(f"{place}, {size}", "dim")]
        if f"{line.direction.name}{event.path}" in self.concealed:
            return [*details, Text(REDACTED, "yellow")]
        details += _full_text(event)
        return details + self._hex(line.direction, offset, length, columns)

    def place_of(self, index: int) -> Place:
        """The message and field of a line."""
        return _place_of(self.lines[index])

    def line_of(self, place: Place | None) -> int:
        """The line of a field; if there is none, of the first message."""
        places = [self.place_of(index) for index in range(len(self.lines))]
        if place in places and place != (None, None):
            return places.index(place)
        return next((n for n, line in enumerate(self.lines) if line.direction is not None), 0)

    def _place(self, index: int) -> tuple[int, int]:
        """The bytes of a field, or of the smallest field around it that has bytes."""
        event = self.lines[index].event
        depth = event.depth if event else 0
        for line in reversed(self.lines[: index + 1]):
            if line.event is None:
                break
            if line.event.depth <= depth:
                depth = line.event.depth
                if line.event.offset != NOWHERE:
                    return line.event.offset, line.event.length
        return 0, 0

    def _hex(self, direction: Direction, offset: int, length: int, columns: int) -> list[Text]:
        frame = self.exchange.frame(direction) or b""
        end = min(offset + length, len(frame))
        values = list(frame[offset:end])
        for low, high in self.secret.get(direction, ()):
            begin, stop = max(low, offset), min(high, end)
            if begin < stop:
                values[begin - offset : stop - offset] = [HIDDEN_BYTE] * (stop - begin)
        lines, width = [], 3 * min(columns, len(values)) - 1
        for at, hexadecimal, shown in hex_rows(values[: HEX_LINES * columns], columns):
            parts = (f"{offset + at:>8}  ", "dim"), f"{hexadecimal:<{width}}  ", (shown, "cyan")
            lines.append(Text.assemble(*parts, no_wrap=True))
        if len(values) > HEX_LINES * columns:
            lines.append(Text(f"{len(values) - HEX_LINES * columns:,} bytes more", "dim"))
        return lines


def _place_of(line: Line) -> Place:
    return line.direction, line.event.path if line.event else None


def _split(line: Line) -> list[Line]:
    """The line; if it begins with a newline, an empty line first."""
    if not line.text.plain.startswith("\n"):
        return [line]
    return [Line(Text()), Line(line.text[1:], line.direction, line.event)]


def _secret_ranges(
    exchange: Exchange, direction: Direction, whole: Explanation | None
) -> tuple[list[tuple[int, int]], frozenset[str]]:
    """The bytes of a message that are hidden, and the paths of hidden fields."""
    frame = exchange.frame(direction) or b""
    unfolded = exchange.unfold(direction, explanation=whole)
    if whole is None or unfolded is None:
        is_secret = conceals_unread(exchange, direction, Explanation())
        paths = concealed(exchange, direction, unfolded) if unfolded else frozenset()
        return ([(0, len(frame))] if is_secret else []), paths
    outer = concealed(exchange, direction, whole)
    ranges = [(e.offset, e.offset + e.length) for e in whole.events if e.path in outer]
    paths = concealed(exchange, direction, unfolded)
    around: list[Explained] = []
    for event in unfolded.events:
        while around and around[-1].depth >= event.depth:
            around.pop()
        around.append(event)
        if event.path in paths:
            place = next(each for each in reversed(around) if each.offset != NOWHERE)
            ranges.append((place.offset, place.offset + place.length))
    if conceals_unread(exchange, direction, whole):
        ranges.append((whole.end, len(frame)))
    return ranges, paths


def _full_text(event: Explained) -> list[Text]:
    """The text of a field, which its line may truncate; JSON is indented."""
    if not isinstance(event.value, str) or not event.value:
        return []
    text = event.value[:FULL_TEXT]
    try:
        parsed = json.loads(text)
        if isinstance(parsed, dict | list):
            text = json.dumps(parsed, indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):  # not JSON, or nested too deeply to be indented
        pass
    return [Text(printable(line), "green") for line in text.split("\n")]


class MessagePane(Container):
    """Fields, and below or beside them the bytes."""

    DEFAULT_CSS = """
    MessagePane { layout: vertical; height: 3fr; border-top: solid $surface-lighten-2; }
    MessagePane > #fields { height: 2fr; }
    MessagePane > #bytes { height: 1fr; display: none; border-top: solid $surface-lighten-2; }
    MessagePane > #bytes.-filled { display: block; }
    """
    BESIDE: ClassVar[str] = """
    .-wide MessagePane, .-wider MessagePane { layout: horizontal; }
    .-wide #fields, .-wider #fields { height: 1fr; width: 1fr; }
    .-wide #bytes, .-wider #bytes {
      display: block; height: 1fr; width: 46;
      border-top: none; border-left: solid $surface-lighten-2;
    }
    .-wider #bytes { width: 78; }
    """
    """CSS of screens with room beside the fields; not in the scope of this widget."""
    BYTES: ClassVar[tuple[tuple[int, int], ...]] = ((76, 16), (42, 8), (0, 4))
    """Bytes per line by the least width."""

    content: MessageContent | None = None

    def compose(self) -> ComposeResult:
        yield FieldView(id="fields")
        with VerticalScroll(id="bytes", can_focus=True):
            yield Static(id="details")

    def show(self, content: MessageContent | None, lines: Sequence[TreeLine]) -> None:
        """Show the tree of an exchange; without `content`, only lines."""
        fields = self.query_one("#fields", FieldView)
        cursor = 0
        if content is not None:
            place = self.content.place_of(fields.selected) if self.content else None
            cursor = content.line_of(place)
        self.content = content
        fields.show(lines, cursor=cursor)

    def on_cursor_view_moved(self, event: CursorView.Moved) -> None:
        event.stop()
        self._show_details()

    def on_resize(self) -> None:
        self._show_details()

    def _show_details(self) -> None:
        line = self.query_one("#fields", FieldView).selected
        pane = self.query_one("#bytes", VerticalScroll)
        # A pane without bytes is hidden, and has no size; nor has one in a tab that is hidden.
        width = pane.content_size.width or max(self.content_size.width - SCROLLBAR, 0)
        columns = next(number for least, number in self.BYTES if width >= least)
        known = self.content is not None and line < len(self.content.lines)
        details = self.content.details(line, columns) if known and self.content else []
        self.query_one("#details", Static).update(Text("\n").join(details))
        pane.set_class(bool(details), "-filled")
        pane.scroll_home(animate=False)
