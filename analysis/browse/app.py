"""The full screen: exchanges, their fields, connections, findings and answers of a capture.

Reading and queries run in threads; the event loop only draws. A newer request of the same kind
replaces an older one, whose result is dropped.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.timer import Timer
from textual.widgets import Footer, Input, Static, TabbedContent, TabPane
from textual.worker import get_current_worker

from analysis.browse.answers_pane import AnswersPane
from analysis.browse.capture_source import CaptureSource
from analysis.browse.commands import (
    Command,
    Titled,
    condition,
    exchange_texts,
    list_texts,
)
from analysis.browse.connection_pane import ConnectionPane
from analysis.browse.cursor_view import CursorView
from analysis.browse.dialogs import CopyDialog, Help, Prompt
from analysis.browse.findings_pane import FindingsPane
from analysis.browse.jobs import JobApp
from analysis.browse.keys import KEYS
from analysis.browse.message_pane import MessageContent, MessagePane
from analysis.browse.row_view import RowView
from analysis.browse.rows import TIME, Numbers, Rows
from analysis.display import presentation
from analysis.display.row_table import cells
from analysis.display.terminal import counted
from analysis.filters import Filter
from analysis.times import time_ns

PAUSE: Final = 0.05
"""Seconds that the cursor stays on an exchange before its fields are decoded."""


class Browser(JobApp):
    """Shows a source; the result is the error that ended it, if any."""

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
        Binding("slash", "filter", "filter"),
        Binding("f", "filter_cell", "filter by cell", show=False),
        Binding("x", "filter_by('')", "no filter", show=False),
        Binding("t", "jump", "time"),
        Binding("c", "connection", "connection"),
        Binding("y", "copy", "copy"),
        *(Binding(str(n + 1), f"tab({n})", show=False) for n in range(4)),
        Binding("escape", "back", show=False),
        Binding("question_mark", "help", "help"),
        Binding("q,ctrl+c", "quit", "quit", priority=False),
    ]
    TABS: ClassVar[dict[str, str]] = {
        "exchanges": "#list", "connection": "#packets", "findings": "#findings-list",
        "answers": "#names",
    }  # fmt: skip
    """Tabs, and the widget of each that gets the focus."""

    def __init__(
        self, source: CaptureSource, name: str, command: Command, *,
        chosen: Filter | None = None, secrets: bool = False,
    ) -> None:  # fmt: skip
        """`name`: of the source, for the head. `chosen`: the first filter. `secrets`: show them."""
        super().__init__()
        self._source = source
        self._source_name = name
        self._command = command
        self._secrets = secrets
        self._first_filter = chosen.text if chosen else ""
        self.filter = Filter()
        self.rows = Rows([], [])
        self._matching: Numbers = np.zeros(0, np.int64)
        """The selected rows in the order of the capture."""
        self._delay: Timer | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Input(
            self._first_filter, id="filter", compact=True,
            placeholder="filter: latency_ms > 100 and api = 'Produce'  or  --client app --topic t",
        )  # fmt: skip
        with TabbedContent():
            with TabPane("1 Exchanges", id="exchanges"), Vertical():
                yield RowView(id="list")
                yield MessagePane()
            with TabPane("2 Connection", id="connection"):
                yield ConnectionPane()
            with TabPane("3 Findings", id="findings"):
                yield FindingsPane()
            with TabPane("4 Answers", id="answers"):
                yield AnswersPane()
        yield Static(id="status")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("Tabs").can_focus = False
        self.query_one("#list").focus()
        self.set_interval(0.2, self.show_status)
        self.start("read", "reading exchanges", self._source.rows, self._opened, is_fatal=True)

    def _opened(self, rows: Rows) -> None:
        self.rows = rows
        self.action_filter_by(self._first_filter)

    def show_status(self) -> None:
        if len(self.query("#head, #list, #status")) < 3:  # the program ends
            return
        shown = self.query_one("#list", RowView)
        head = [self._source_name]
        if len(self.rows):
            part = f"{len(self._matching):,} of " if self.filter else ""
            head.append(f"{part}{counted(len(self.rows), 'exchange')}")
            head.append(f"row {shown.cursor + 1 if shown.count else 0:,}")
        self.query_one("#head", Static).update(Text("  ".join(head)), layout=False)
        status = self.message
        if jobs := [name for name in self.jobs.values() if name]:
            status = Text(f"{jobs[-1]} …{self._source.reading}", "bold")
        self.query_one("#status", Static).update(status, layout=False)

    # Exchanges ----------------------------------------------------------------------------------

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "filter":
            self.action_filter_by(event.value)

    def action_filter_by(self, text: str) -> None:
        """Show the exchanges that a text selects: see `Filter.parse`."""
        self.query_one("#filter", Input).value = text
        view, rows = self.query_one("#list", RowView), self.rows
        column, descending = view.sorted_by or TIME, view.descending
        is_cancelled = self._is_replaced

        def select() -> tuple[Filter, Numbers, Numbers]:
            chosen = self._source.started(self._parsed(text))
            matching = rows.matching(chosen, is_cancelled())
            return chosen, matching, rows.ordered(matching, column, descending=descending)

        def show(result: tuple[Filter, Numbers, Numbers]) -> None:
            number = self._number
            self.filter, self._matching, numbers = result
            self.message = Text()
            self._show_rows(numbers, column, descending, number)
            self._focus_tab()

        self.start("list", "filtering", select, show)

    @staticmethod
    def _parsed(text: str) -> Filter:
        return Filter.parse(text, names=presentation.names(), zone=presentation.zone())

    @staticmethod
    def _is_replaced() -> Callable[[], bool]:
        worker = get_current_worker()
        return lambda: worker.is_cancelled

    @property
    def _number(self) -> int | None:
        """The number of the row of the cursor."""
        view = self.query_one("#list", RowView)
        return int(view.numbers[view.cursor]) if view.count else None

    def _show_rows(
        self, numbers: Numbers, column: str, descending: bool, number: int | None
    ) -> None:
        """Show rows; the cursor stays on the row with this number."""
        is_known = number is not None and len(numbers)
        at = int(np.argmax(numbers == number)) if is_known else 0
        view = self.query_one("#list", RowView)
        view.show(self.rows, numbers, column, descending, cursor=at)
        if not len(numbers):
            self.query_one(MessagePane).show(None, [])
            if len(self.rows):
                self.report("no exchange meets the filter")
        self._query_pane()

    def on_row_view_sorted(self, event: RowView.Sorted) -> None:
        view, rows, column, descending = event.view, event.view.rows, event.column, event.descending
        numbers = self._matching if view.id == "list" else rows.numbers
        number = self._number if view.id == "list" else None

        def show(ordered: Numbers) -> None:
            if view.id == "list":
                self._show_rows(ordered, column, descending, number)
            else:
                view.show(rows, ordered, column, descending)

        self.start(
            f"sort {view.id}", "sorting",
            lambda: rows.ordered(numbers, column, descending=descending), show,
        )  # fmt: skip

    def on_cursor_view_moved(self, event: CursorView.Moved) -> None:
        if event.view.id != "list":
            return
        if self._delay:
            self._delay.stop()
        self._delay = self.set_timer(PAUSE, self._explain)

    def _explain(self) -> None:
        """Show the fields of the selected exchange."""
        number = self._number
        if number is None:
            return
        row = self.rows.row(number)

        def explain() -> tuple[MessageContent | None, list[Text]]:
            exchange = self._source.exchange(row)
            if exchange is None:
                names = zip(row.schema.names, row.columns, strict=True)
                return None, [
                    Text.assemble((f"{name:<20}", "dim"), *cells(name, value, digits=9))
                    for name, value in names
                ]
            content = MessageContent.of(exchange, secrets=self._secrets)
            return content, [line.text for line in content.lines]

        self.start("fields", "", explain, lambda result: self.query_one(MessagePane).show(*result))

    def on_cursor_view_opened(self, event: CursorView.Opened) -> None:
        if event.view.id == "list":
            self.query_one("#fields").focus()
        elif event.view.id == "packets":
            self.action_tab(0)

    # Keys ---------------------------------------------------------------------------------------

    def action_filter(self) -> None:
        self.query_one("#filter").focus()

    def action_filter_cell(self) -> None:
        """Add a condition: the column of the cursor has the value of its cell."""
        view = self.query_one("#list", RowView)
        if self.focused is not view or not view.count:
            return
        name, value = view.column_name, view.value(view.column_name)
        added = condition(name, value)
        old = self.query_one("#filter", Input).value.strip()
        self.action_filter_by(f"{old} {shlex.join(['--where', added])}" if old else added)

    async def action_back(self) -> None:
        self._focus_tab()

    def action_tab(self, number: int) -> None:
        self.query_one(TabbedContent).active = list(self.TABS)[number]
        self._focus_tab()

    def on_tabbed_content_tab_activated(self) -> None:
        self._focus_tab()
        self._query_pane()

    def _focus_tab(self) -> None:
        if len(self.screen_stack) > 1:
            return
        active = self.query_one(TabbedContent).active
        self.query_one(self.TABS[active]).focus()

    def _query_pane(self) -> None:
        """Compute what the active tab shows."""
        if not len(self.rows):
            return
        active = self.query_one(TabbedContent).active
        if active == "findings":
            self.query_one(FindingsPane).request(self._source, self.filter, self._command)
        elif active == "answers":
            self.query_one(AnswersPane).request(self._source, self.filter)
        elif active == "connection" and self._number is not None:
            self.query_one(ConnectionPane).request(self._source, self.rows, self._number)

    def action_connection(self) -> None:
        self.action_tab(1)

    def action_jump(self) -> None:
        title = "Go to a time: 04:17:40.5, 2026-11-21T04:17:40, or 90 (seconds after the start)"
        self.push_screen(Prompt(title, "04:17:40"), self._jump)

    def _jump(self, text: str | None) -> None:
        """Move the cursor to the first exchange from a time on, in the order of time."""
        if text is None:
            return
        rows, matching = self.rows, self._matching

        def search() -> tuple[Numbers, int]:
            time = time_ns(text, self._source.start, presentation.zone())
            numbers = rows.ordered(matching, TIME)
            times = rows.take(TIME, numbers).cast(pa.int64()).to_numpy()
            return numbers, int(np.searchsorted(times, time or 0))

        def show(result: tuple[Numbers, int]) -> None:
            numbers, at = result
            self.query_one("#list", RowView).show(rows, numbers, TIME, False, cursor=at)
            self.action_tab(0)

        self.start("list", "searching", search, show)

    def action_copy(self) -> None:
        texts = self._copies()

        def copy(text: str | None) -> None:
            if text is not None:
                self.copy_to_clipboard(text)
                self.report(f"copied: {text}")

        self.push_screen(CopyDialog(texts), copy)

    def _copies(self) -> list[Titled]:
        """Texts that can be copied."""
        texts: list[Titled] = []
        active = self.query_one(TabbedContent).active
        if active == "answers":
            answer = self.query_one(AnswersPane).name_of_answer
            texts.append(("this answer", self._command(answer, self.filter)))
        elif active == "findings":
            if line := self.query_one(FindingsPane).command:
                texts.append(("the rows behind this finding", line))
            texts.append(("these findings", self._command("diagnose", self.filter)))
        number = self._number
        exchange = None if number is None else self._source.exchange(self.rows.row(number))
        if exchange is not None:
            texts += exchange_texts(exchange, self._command)
        return [*texts, *list_texts(self.filter, self._command)]

    def action_help(self) -> None:
        self.push_screen(Help(KEYS))

    async def action_quit(self) -> None:
        self._source.reading.cancel()
        self.exit()
