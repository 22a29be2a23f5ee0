"""Prints the parts of a screen."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, RenderableType


def printed(parts: Iterable[RenderableType], width: int = 10_000) -> str:
    """What a terminal of this width shows, without colours."""
    console = Console(width=width, markup=False, highlight=False, emoji=False, color_system=None)
    with console.capture() as captured:
        for part in parts:
            console.print(part, soft_wrap=getattr(part, "no_wrap", False) is True)
    return captured.get()
