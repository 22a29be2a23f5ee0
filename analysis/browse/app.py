"""The screen of a capture: exchanges, connections, findings and answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from analysis.browse.answers_pane import AnswersPane
from analysis.browse.capture_source import CaptureSource
from analysis.browse.commands import Command, Titled
from analysis.browse.connection_pane import ConnectionPane
from analysis.browse.cursor_view import CursorView
from analysis.browse.exchange_screen import ExchangeScreen
from analysis.browse.findings_pane import FindingsPane
from analysis.browse.keys import CAPTURE_KEYS, Section
from analysis.browse.rows import Rows
from analysis.input.filters import Filter
from dissector.embedded.records import Decode


class Browser(ExchangeScreen):
    """Shows a capture; the result is the error that ended it, if any."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("c", "connection", "connection")]
    TABS: ClassVar[dict[str, str]] = {
        "exchanges": "#list", "connection": "#packets", "findings": "#findings-list",
        "answers": "#names",
    }  # fmt: skip
    KEYS: ClassVar[Sequence[Section]] = CAPTURE_KEYS

    def __init__(
        self, source: CaptureSource, name: str, command: Command, *,
        chosen: Filter | None = None, secrets: bool = False, decode: Decode | None = None,
    ) -> None:  # fmt: skip
        """As `ExchangeScreen`."""
        super().__init__(source, name, command, chosen=chosen, secrets=secrets, decode=decode)
        self._capture = source
        self.again = command

    def tabs(self) -> dict[str, tuple[str, Widget]]:
        return {
            "exchanges": ("Exchanges", self.exchange_tab()),
            "connection": ("Connection", ConnectionPane()),
            "findings": ("Findings", FindingsPane()),
            "answers": ("Answers", AnswersPane()),
        }

    def on_mount(self) -> None:
        self.start("read", "reading exchanges", self._capture.rows, self._opened, is_fatal=True)

    def _opened(self, rows: Rows) -> None:
        self.rows = rows
        self.action_filter_by(self.first_filter)

    def filtered(self) -> None:
        self.update_tab(self.active_tab)

    def update_tab(self, active: str) -> None:
        if not len(self.rows):
            return
        if active == "findings":
            self.query_one(FindingsPane).request(self._capture, self.filter, self.again)
        elif active == "answers":
            self.query_one(AnswersPane).request(self._capture, self.filter)
        elif active == "connection" and self.selected is not None:
            self.query_one(ConnectionPane).request(self._capture, self.rows, self.selected)

    def more_copies(self, active: str) -> Iterator[Titled]:
        if active == "answers":
            answer = self.query_one(AnswersPane).name_of_answer
            yield "this answer", self.again(answer, self.filter)
        elif active == "findings":
            if line := self.query_one(FindingsPane).command:
                yield "the rows behind this finding", line
            yield "these findings", self.again("diagnose", self.filter)

    def on_cursor_view_opened(self, event: CursorView.Opened) -> None:
        if event.view.id == "packets":
            self.show_tab("exchanges")

    def action_connection(self) -> None:
        self.show_tab("connection")
