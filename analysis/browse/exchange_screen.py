"""The screen of exchanges: filter bar, list, fields and bytes, and tabs that need a whole capture.

`Browser` shows a capture, and `LiveBrowser` a session. Reading and queries run in threads; the
event loop only draws. A newer job of the same kind replaces an older one, whose result is dropped.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, TabbedContent

from analysis.browse.answers_pane import AnswersPane
from analysis.browse.capture_source import CaptureSource
from analysis.browse.commands import Command, Titled, condition, exchange_texts, list_texts
from analysis.browse.connection_pane import ConnectionPane
from analysis.browse.cursor_view import CursorView
from analysis.browse.dialogs import CopyDialog, Prompt
from analysis.browse.field_view import TreeLine
from analysis.browse.findings_pane import FindingsPane
from analysis.browse.frame import Frame, job_is_cancelled
from analysis.browse.message_pane import MessageContent, MessagePane
from analysis.browse.row_view import RowView
from analysis.browse.rows import TIME, Numbers, Order, Rows
from analysis.browse.source import Source
from analysis.display import presentation
from analysis.display.row_table import cells
from analysis.display.terminal import counted
from analysis.input.filters import Filter
from analysis.input.times import time_ns
from dissector.embedded.records import Decode
from dissector.errors import DissectorError
from dissector.exchanges.exchange import Exchange

PAUSE: Final = 0.05
"""Seconds that the cursor stays on an exchange before its fields are decoded."""


class ExchangeScreen(Frame):
    """Shows the rows of a source. Subclasses set `rows`, and choose the capture that the tabs of
    packets, findings and answers rest on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter"),
        Binding("f", "filter_cell", "filter by cell", show=False),
        Binding("x", "filter_by('')", "no filter", show=False),
        Binding("t", "jump", "time"),
        Binding("y", "copy", "copy"),
        Binding("c", "connection", "connection"),
    ]
    ANALYSES: ClassVar[dict[str, str]] = {
        "connection": "#packets", "findings": "#findings-list", "answers": "#names",
    }  # fmt: skip
    TABS: ClassVar[dict[str, str]] = {"exchanges": "#list", **ANALYSES}

    def __init__(
        self, source: Source, name: str, command: Command | None, *,
        chosen: Filter | None = None, secrets: bool = False, decode: Decode | None = None,
    ) -> None:  # fmt: skip
        """`name`: of the source, for the head. `command`: None if no capture can be read
        again. `chosen`: the first filter. `secrets`: show them. `decode`: decodes keys and values
        of records by a schema."""
        super().__init__(source, chosen)
        self._source_name = name
        self.command = command
        self._secrets = secrets
        self._decode = decode
        self.filter = Filter()
        self.rows = Rows([], [])
        self._matching: Numbers = np.zeros(0, np.int64)
        """The selected rows in the order of the capture."""
        self._delay: Timer | None = None
        self._explained: int | None = None
        """The row whose fields are shown."""

    def tabs(self) -> dict[str, tuple[str, Widget]]:
        return {
            "exchanges": ("Exchanges", Vertical(RowView(id="list"), MessagePane())),
            "connection": ("Connection", ConnectionPane()),
            "findings": ("Findings", FindingsPane()),
            "answers": ("Answers", AnswersPane()),
        }

    def analyse(self, active: str, capture: CaptureSource) -> None:
        """Compute what one of `ANALYSES` shows, unless it shows that already."""
        if active == "findings":
            self.query_one(FindingsPane).request(capture, self.filter, self.command)
        elif active == "answers":
            self.query_one(AnswersPane).request(capture, self.filter)
        elif active == "connection" and self.selected is not None:
            self.query_one(ConnectionPane).request(capture, self.rows, self.selected)

    def filtered(self) -> None:
        """Called when the list has other rows."""

    @property
    def anchor(self) -> int | None:
        """The row on which the cursor stays when the list has other rows; None: the first one."""
        return self.selected

    def _tab_copies(self, active: str) -> Iterator[Titled]:
        """Texts of a tab that can be copied."""
        if self.command is None:
            return
        if active == "answers":
            answer = self.query_one(AnswersPane).name_of_answer
            yield "this answer", self.command(answer, self.filter)
        elif active == "findings":
            if line := self.query_one(FindingsPane).command:
                yield "the rows behind this finding", line
            yield "these findings", self.command("diagnose", self.filter)

    def head(self) -> list[str]:
        """The parts of the first line."""
        view = self.query_one("#list", RowView)
        if not len(self.rows):
            return [self._source_name]
        part = f"{len(self._matching):,} of " if self.filter else ""
        row = view.cursor + 1 if view.count else 0
        return [self._source_name, f"{part}{counted(len(self.rows), 'exchange')}", f"row {row:,}"]

    # Exchanges ----------------------------------------------------------------------------------

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "filter":
            self.action_filter_by(event.value)

    def action_filter_by(self, text: str) -> None:
        """Show the exchanges that a text selects: see `Filter.parse`."""
        self.select(text, "filtering", focuses=True)

    def select(self, text: str, name: str, *, focuses: bool = False) -> None:
        """Show the exchanges that a text selects. `name`: of the job."""
        if focuses:
            self.query_one("#filter", Input).value = text
        view, rows = self.query_one("#list", RowView), self.rows
        order = replace(view.order, column=view.order.column or TIME)

        def select() -> tuple[Filter, Numbers, Numbers]:
            chosen = Filter.parse(text, names=presentation.names(), zone=presentation.zone())
            chosen = chosen.starting(self.source.start)
            matching = rows.matching(chosen, job_is_cancelled())
            return chosen, matching, rows.ordered(matching, order)

        def show(result: tuple[Filter, Numbers, Numbers]) -> None:
            number = self.anchor
            self.filter, self._matching, numbers = result
            if focuses:
                self.message = Text()
            self._show_rows(rows, numbers, order, number)
            if focuses:
                self._focus_tab()

        self.start("list", name, select, show)

    @property
    def selected(self) -> int | None:
        """The number of the row of the cursor."""
        view = self.query_one("#list", RowView)
        return int(view.numbers[view.cursor]) if view.count else None

    def _show_rows(self, rows: Rows, numbers: Numbers, order: Order, number: int | None) -> None:
        """Show rows; the cursor stays on the row with this number."""
        is_known = number is not None and len(numbers)
        at = int(np.argmax(numbers == number)) if is_known else 0
        view = self.query_one("#list", RowView)
        view.show(rows, numbers, order, cursor=at)
        if not len(numbers):
            self._explained = None
            self.query_one(MessagePane).show(None, [])
            if len(self.rows):
                self.report("no exchange meets the filter")
        self.filtered()

    def on_row_view_sorted(self, event: RowView.Sorted) -> None:
        view, rows, order = event.view, event.view.rows, event.order
        numbers = self._matching if view.id == "list" else rows.numbers
        number = self.selected if view.id == "list" else None

        def show(ordered: Numbers) -> None:
            if view.id == "list":
                self._show_rows(rows, ordered, order, number)
            else:
                view.show(rows, ordered, order)

        self.start(f"sort {view.id}", "sorting", lambda: rows.ordered(numbers, order), show)

    def on_cursor_view_moved(self, event: CursorView.Moved) -> None:
        if event.view.id != "list":
            return
        if self._delay:
            self._delay.stop()
        self._delay = self.set_timer(PAUSE, self._explain)

    def _explain(self) -> None:
        """Show the fields of the selected exchange."""
        if not self.is_running:
            return  # the timer may fire while the widgets are removed at the end
        number = self.selected
        if number is None or number == self._explained:
            return
        self._explained = number
        row = self.query_one("#list", RowView).rows.row(number)

        def explain() -> tuple[MessageContent | None, list[TreeLine], str]:
            exchange = self.source.exchange(row)
            if exchange is None:
                names = zip(row.schema.names, row.columns, strict=True)
                texts = (
                    Text.assemble((f"{name:<20}", "dim"), *cells(name, value, digits=9))
                    for name, value in names
                )
                return None, [TreeLine(text) for text in texts], ""
            content, problem = self._content(exchange)
            return content, content.tree(), problem

        def show(result: tuple[MessageContent | None, list[TreeLine], str]) -> None:
            content, tree, problem = result
            self.query_one(MessagePane).show(content, tree)
            if problem:
                self.report(problem, "bold red")

        self.start("fields", "", explain, show)

    def _content(self, exchange: Exchange) -> tuple[MessageContent, str]:
        """The fields of an exchange, and why records are not decoded by their schema, if so."""
        try:
            content = MessageContent.of(exchange, secrets=self._secrets, decode=self._decode)
        except DissectorError as error:  # of the schema registry
            return MessageContent.of(exchange, secrets=self._secrets), str(error)
        return content, ""

    def on_cursor_view_opened(self, event: CursorView.Opened) -> None:
        if event.view.id == "list":
            self.query_one("#fields").focus()
        elif event.view.id == "packets":
            self.show_tab("exchanges")

    # Keys ---------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys without effect on a tab are not shown there."""
        is_shown = bool(self.query(TabbedContent)) and self.active_tab == "connection"
        return not (action == "connection" and is_shown)

    def action_connection(self) -> None:
        self.show_tab("connection")

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

    def action_jump(self) -> None:
        title = "Go to a time: 04:17:40.5, 2026-11-21T04:17:40, or 90 (seconds after the start)"
        self.push_screen(Prompt(title, "04:17:40"), self._jump)

    def _jump(self, text: str | None) -> None:
        """Move the cursor to the first exchange from a time on, in the order of time."""
        if text is None:
            return
        rows, matching, by_time = self.rows, self._matching, Order(TIME)

        def search() -> tuple[Numbers, int]:
            time = time_ns(text, self.source.start, presentation.zone())
            numbers = rows.ordered(matching, by_time)
            times = rows.take(TIME, numbers).cast(pa.int64()).to_numpy()
            return numbers, int(np.searchsorted(times, time or 0))

        def show(result: tuple[Numbers, int]) -> None:
            numbers, at = result
            self.query_one("#list", RowView).show(rows, numbers, by_time, cursor=at)
            self.show_tab("exchanges")

        self.start("list", "searching", search, show)

    def action_copy(self) -> None:
        texts = self._copies()
        if not texts:
            self.report("nothing to copy")
            return

        def copy(text: str | None) -> None:
            if text is not None:
                self.copy_to_clipboard(text)
                self.report(f"copied: {text}")

        self.push_screen(CopyDialog(texts), copy)

    def _copies(self) -> list[Titled]:
        """Texts that can be copied."""
        texts = [*self._tab_copies(self.active_tab)]
        view = self.query_one("#list", RowView)
        if self.selected is not None:
            exchange = self.source.exchange(view.rows.row(self.selected))
            texts += exchange_texts(exchange, self.command) if exchange else ()
        return [*texts, *list_texts(self.filter, self.command)]
