"""Dialogs: a line of text, a list of texts to copy, and the keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

_BOX: Final = """
{name} {{ align: center middle; }}
{name} > * {{
  width: 90%; max-width: 110; height: auto; max-height: 90%; padding: 0 1;
  border: round $primary; background: $surface;
}}
{name} OptionList, {name} Input, {name} OptionList:focus, {name} Input:focus {{
  border: none; padding: 0; height: auto;
}}
"""


class _Dialog(ModalScreen[str | None]):
    """A dialog; Escape closes it without a result."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss(None)", "close")]


class Prompt(_Dialog):
    """Asks for a line of text."""

    DEFAULT_CSS = _BOX.format(name="Prompt")

    def __init__(self, title: str, placeholder: str) -> None:
        super().__init__()
        self._title = title
        self._placeholder = placeholder

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Text(self._title, "bold"))
            yield Input(placeholder=self._placeholder)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)


class CopyDialog(_Dialog):
    """Lets the user choose a text; Enter returns it."""

    DEFAULT_CSS = _BOX.format(name="CopyDialog")

    def __init__(self, texts: Sequence[tuple[str, str]]) -> None:
        """`texts`: titles and texts."""
        super().__init__()
        self._texts = texts

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Text.assemble(("Copy", "bold"), "  Enter copies, Escape closes"))
            yield OptionList(
                *(
                    Option(Group(Text(title, "dim"), Text(f"  {text}", "cyan", overflow="fold")))
                    for title, text in self._texts
                )
            )

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._texts[event.option_index][1])


class Help(_Dialog):
    """The keys and what they do."""

    DEFAULT_CSS = _BOX.format(name="Help")

    def __init__(self, sections: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> None:
        """`sections`: titles, each with keys and their effects."""
        super().__init__()
        self._sections = sections

    def compose(self) -> ComposeResult:
        parts: list[Text | Table] = []
        for title, keys in self._sections:
            table = Table.grid(padding=(0, 2, 0, 0))
            table.add_column(style="bold cyan", no_wrap=True, width=14)
            table.add_column()
            for key, effect in keys:
                table.add_row(key, effect)
            parts += [Text(title, "bold"), table]
        with VerticalScroll():
            yield Static(Group(*parts))
