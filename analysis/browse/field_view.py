"""A tree of lines with a cursor. A line folds the deeper lines that follow it.

Large arrays are folded at first. What the user folds and unfolds is kept by the key of the line, so
that the next tree with such a line looks the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual.binding import Binding, BindingType

from analysis.browse.cursor_view import CursorView
from dissector.arrays import value

LARGE: Final = 10
"""Maximum number of elements of an array that is not folded at first."""
MARKS: Final = {None: "  ", False: "▾ ", True: "▸ "}
"""By whether a line is folded; None: it has no deeper lines."""


@value
class TreeLine:
    """A line of a tree."""

    text: Text
    depth: int = 0
    key: Hashable = None
    """Identifies the line in the next tree, too."""
    mark_at: int | None = None
    """Column of the mark; None: the line has none."""
    is_element: bool = False
    """Of an array."""


class FieldView(CursorView):
    """A tree; Enter folds and unfolds."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "fold"),
        Binding("plus", "fold_all(False)", "all"),
        Binding("minus", "fold_all(True)", "none"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: Sequence[TreeLine] = ()
        self._folded: list[bool | None] = []
        """By line: see `MARKS`."""
        self._visible: list[int] = []
        self._chosen: dict[Hashable, bool] = {}
        """Keys of lines that the user has folded or unfolded."""
        self._all: bool | None = None
        """Whether the user has folded or unfolded all lines."""

    def show(self, lines: Sequence[TreeLine], *, cursor: int = 0) -> None:
        """Show a tree. `cursor`: the line to go to, or if it is folded away, the line around it."""
        self._lines = lines
        self._folded = [None] * len(lines)
        for index, elements in _elements(lines).items():
            # The headings stay unfolded.
            first = elements > LARGE if self._all is None else self._all and lines[index].depth > 0
            self._folded[index] = self._chosen.get(lines[index].key, first)
        self._fold(cursor)

    @property
    def selected(self) -> int:
        """The index of the line of the cursor in the whole tree."""
        return self._visible[self.cursor] if self._visible else 0

    @property
    def count(self) -> int:
        return len(self._visible)

    @property
    def line_width(self) -> int:
        widest = max((self._lines[index].text.cell_len for index in self._visible), default=0)
        return widest + len(MARKS[None])

    def text(self, line: int) -> Text:
        index = self._visible[line]
        shown, folded = self._lines[index], self._folded[index]
        if shown.mark_at is None:
            return shown.text
        text = (
            shown.text[: shown.mark_at] + Text(MARKS[folded], "bold") + shown.text[shown.mark_at :]
        )
        return text.append(" …", "dim") if folded else text

    def action_open(self) -> None:
        """Fold or unfold the line of the cursor."""
        index = self.selected
        if self._lines and self._folded[index] is not None:
            self._folded[index] = self._chosen[self._lines[index].key] = not self._folded[index]
            self._fold(index)

    def action_fold_all(self, folded: bool) -> None:
        """Fold or unfold all fields."""
        self._all = folded
        self._chosen.clear()
        self.show(self._lines, cursor=self.selected)

    def _fold(self, cursor: int) -> None:
        """Hide the lines in folded ones."""
        self._visible, hidden = [], None
        for index, line in enumerate(self._lines):
            if hidden is not None and line.depth > hidden:
                continue
            self._visible.append(index)
            hidden = line.depth if self._folded[index] else None
        self.changed(cursor=bisect_right(self._visible, cursor) - 1)


def _elements(lines: Sequence[TreeLine]) -> dict[int, int]:
    """The number of elements directly inside each line that deeper lines follow."""
    counts: dict[int, int] = {}
    around: list[int] = []
    for index, line in enumerate(lines):
        while around and lines[around[-1]].depth >= line.depth:
            around.pop()
        if around:
            counts[around[-1]] = counts.get(around[-1], 0) + line.is_element
        around.append(index)
    return counts
