"""The filter bar: a filter may contain names from the wire, with any characters."""

from __future__ import annotations

from typing import Final

from rich.segment import Segment
from textual.strip import Strip
from textual.widgets import Input

HIDDEN: Final = "\N{REPLACEMENT CHARACTER}"
"""Shown instead of a character that could control the terminal, or is invisible."""


class FilterBar(Input):
    """A line of text that contains no control character on the screen."""

    def render_line(self, y: int) -> Strip:
        line = super().render_line(y)
        segments = [Segment(_visible(text), style) for text, style, _ in line]
        return Strip(segments).crop(0, line.cell_length)


def _visible(text: str) -> str:
    return "".join(each if each.isprintable() else HIDDEN for each in text)
