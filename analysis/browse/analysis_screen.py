"""The tabs of a screen that need a whole capture: packets of a connection, findings, answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import TabbedContent

from analysis.browse.answers_pane import AnswersPane
from analysis.browse.capture_source import CaptureSource
from analysis.browse.commands import Titled
from analysis.browse.connection_pane import ConnectionPane
from analysis.browse.cursor_view import CursorView
from analysis.browse.exchange_screen import ExchangeScreen
from analysis.browse.findings_pane import FindingsPane


class AnalysisScreen(ExchangeScreen):
    """Shows the rows of a source; subclasses choose the capture that the further tabs rest on."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("c", "connection", "connection")]
    ANALYSES: ClassVar[dict[str, str]] = {
        "connection": "#packets", "findings": "#findings-list", "answers": "#names",
    }  # fmt: skip
    """A part of `TABS`."""

    def analysis_tabs(self) -> dict[str, tuple[str, Widget]]:
        """The title and the content of each of `ANALYSES`."""
        return {
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

    def more_copies(self, active: str) -> Iterator[Titled]:
        if self.command is None:
            return
        if active == "answers":
            answer = self.query_one(AnswersPane).name_of_answer
            yield "this answer", self.command(answer, self.filter)
        elif active == "findings":
            if line := self.query_one(FindingsPane).command:
                yield "the rows behind this finding", line
            yield "these findings", self.command("diagnose", self.filter)

    def on_cursor_view_opened(self, event: CursorView.Opened) -> None:
        if event.view.id == "packets":
            self.show_tab("exchanges")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys without effect on a tab are not shown there."""
        is_shown = bool(self.query(TabbedContent)) and self.active_tab == "connection"
        return not (action == "connection" and is_shown)

    def action_connection(self) -> None:
        self.show_tab("connection")
