"""The frame of a screen: first line, filter bar, tabs, last line, help, and jobs.

Jobs work in threads, so that the event loop only draws. A filter may contain names from the wire,
with any characters.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, TypeVar

import duckdb
from rich.segment import Segment
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Footer, Input, Static, TabbedContent, TabPane
from textual.worker import get_current_worker

from analysis.browse.dialogs import Help
from analysis.browse.keys import Section
from analysis.browse.message_pane import MessagePane
from analysis.browse.source import Source
from analysis.display.terminal import printable
from analysis.input.filters import Filter
from dissector.errors import DissectorError

T = TypeVar("T")

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


def job_is_cancelled() -> Callable[[], bool]:
    """Whether the job of this thread is cancelled: its group has a newer one, or the user left."""
    worker = get_current_worker()
    return lambda: worker.is_cancelled


class Frame(App[Exception]):
    """Tabs with a filter bar above; subclasses declare the tabs. The result is the error that ended
    the program, if any."""

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
        self.jobs: dict[str, str] = {}
        """Names of running jobs by their group; an empty name is not shown."""
        self.message = Text()
        """The latest message to the user."""

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
        """Show the first line, the jobs and the message."""
        if len(self.query("#head, #list, #status")) < 3:  # the program ends
            return
        head = "  ".join(filter(None, self.head()))
        self.query_one("#head", Static).update(Text(printable(head)), layout=False)
        status = self.message
        if jobs := [name for name in self.jobs.values() if name]:
            status = Text(f"{jobs[-1]} …{self.source.reading}", "bold")
        self.query_one("#status", Static).update(status, layout=False)

    def start(
        self,
        group: str,
        name: str,
        compute: Callable[[], T],
        show: Callable[[T], None],
        *,
        is_fatal: bool = False,
    ) -> None:
        """Compute in a thread, then show the result; drop it if the group has a newer job.

        `is_fatal`: an error ends the program.
        """

        def run() -> None:
            worker = get_current_worker()
            try:
                result = compute()
            except (DissectorError, OSError, duckdb.Error) as error:
                if not worker.is_cancelled:
                    self.call_from_thread(self._failed, group, error, is_fatal)
                return
            if not worker.is_cancelled:
                self.call_from_thread(self._finished, group, show, result)

        self.jobs[group] = name
        self.show_status()
        self.run_worker(run, group=group, thread=True, exclusive=True)

    def _finished(self, group: str, show: Callable[[T], None], result: T) -> None:
        if not self.is_running:
            return  # the widgets are removed
        self.jobs.pop(group, None)
        show(result)
        self.show_status()

    def _failed(self, group: str, error: Exception, is_fatal: bool) -> None:
        if not self.is_running:
            return
        self.jobs.pop(group, None)
        if is_fatal:
            self.exit(error)
        self.report(str(error).splitlines()[0], "bold red")

    def report(self, text: str, style: str = "") -> None:
        """Show a message in the last line."""
        self.message = Text(printable(text), style)
        self.show_status()

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
