"""The frame of a screen: first line, filter bar, tabs, last line, help.

A filter may contain names from the wire, with any characters.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final

from rich.segment import Segment
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Footer, Input, Static, TabbedContent, TabPane

from analysis.browse.dialogs import Help
from analysis.browse.jobs import JobApp
from analysis.browse.keys import Section
from analysis.browse.message_pane import MessagePane
from analysis.browse.source import Source
from analysis.display.terminal import printable
from analysis.input.filters import Filter

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


class Frame(JobApp):
    """Tabs with a filter bar above; subclasses declare the tabs."""

    TITLE = "kafka-dissector"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012  # textual declares an attribute of instances
        (0, "-narrow"), (110, "-wide"), (160, "-wider")
    ]  # fmt: skip
    CSS = (
        """
    #head { height: 1; padding: 0 1; background: $primary-darken-2; color: $text; }
    #filter { height: 1; border: none; padding: 0 1; background: $surface; }
    #filter:focus { background: $surface-lighten-1; border: none; }
    #status { height: 1; padding: 0 1; color: $text-muted; }
    TabbedContent { height: 1fr; }
    TabPane { padding: 0; }
    #list { height: 2fr; }
    """
        + MessagePane.BESIDE
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n + 1), f"tab({n})", show=False) for n in range(5)),
        Binding("escape", "back", show=False),
        Binding("question_mark", "help", "help"),
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
    ]
    TABS: ClassVar[dict[str, str]] = {}
    """Tabs, and the widget of each that gets the focus."""
    KEYS: ClassVar[Sequence[Section]] = ()
    """The help."""

    def __init__(self, source: Source, chosen: Filter | None) -> None:
        """`chosen`: the first filter."""
        super().__init__()
        self.source = source
        self.first_filter = chosen.text if chosen else ""

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield FilterBar(
            self.first_filter, id="filter", compact=True,
            placeholder="filter: latency_ms > 100 and api = 'Produce'  or  --client app --topic t",
        )  # fmt: skip
        with TabbedContent():
            for number, (name, (title, widget)) in enumerate(self.tabs().items(), 1):
                with TabPane(f"{number} {title}", id=name):
                    yield widget
        yield Static(id="status")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("Tabs").can_focus = False
        self.set_interval(0.2, self.show_status)

    @abstractmethod
    def tabs(self) -> dict[str, tuple[str, Widget]]:
        """The title and the content of each of `TABS`."""

    @abstractmethod
    def head(self) -> list[str]:
        """The parts of the first line."""

    def update_tab(self, active: str) -> None:
        """Compute what a tab shows."""

    @property
    def active_tab(self) -> str:
        """The name of the tab on the screen."""
        return self.query_one(TabbedContent).active

    def show_status(self) -> None:
        if len(self.query("#head, #list, #status")) < 3:  # the program ends
            return
        head = "  ".join(filter(None, self.head()))
        self.query_one("#head", Static).update(Text(printable(head)), layout=False)
        status = self.message
        if jobs := [name for name in self.jobs.values() if name]:
            status = Text(f"{jobs[-1]} …{self.source.reading}", "bold")
        self.query_one("#status", Static).update(status, layout=False)

    async def action_back(self) -> None:
        self._focus_tab()

    def action_tab(self, number: int) -> None:
        if number < len(self.TABS):
            self.show_tab(list(self.TABS)[number])

    def show_tab(self, name: str) -> None:
        """Go to a tab."""
        self.query_one(TabbedContent).active = name
        self._focus_tab()

    def on_tabbed_content_tab_activated(self) -> None:
        self._focus_tab()
        self.refresh_bindings()
        self.update_tab(self.active_tab)

    def _focus_tab(self) -> None:
        if len(self.screen_stack) > 1:
            return
        self.query_one(self.TABS[self.active_tab]).focus()

    def action_help(self) -> None:
        self.push_screen(Help(self.KEYS))

    async def action_quit(self) -> None:
        self.source.reading.cancel()
        self.exit()
