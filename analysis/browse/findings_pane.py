"""The findings of `diagnose` about the selected exchanges."""

from __future__ import annotations

from typing import cast

from rich.console import Group
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from analysis.browse.capture_source import CaptureSource
from analysis.browse.commands import Command
from analysis.browse.frame import Frame, job_is_cancelled
from analysis.diagnosis.run import Diagnosis
from analysis.display.diagnosis_screen import block, first_of_rules, verdict
from analysis.input.filters import Filter
from analysis.sql.query import Row


class FindingsPane(Vertical):
    """A block for each finding, the worst first."""

    DEFAULT_CSS = """
    FindingsPane > Static { height: auto; padding: 0 1; }
    FindingsPane > OptionList { height: 1fr; border: none; background: $background;
      scrollbar-gutter: stable; }
    FindingsPane > OptionList:focus { border: none; }
    FindingsPane > OptionList > .option-list--option-highlighted,
    FindingsPane > OptionList:focus > .option-list--option-highlighted {
      background: $surface-lighten-2; color: $text; text-style: none;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown: tuple[CaptureSource, list[str]] | None = None
        self._findings: list[Row] = []
        self._commands: list[str] = []

    def compose(self) -> ComposeResult:
        yield Static()
        yield OptionList(id="findings-list")

    @property
    def command(self) -> str | None:
        """The command line that shows more about the selected finding; empty if there is none."""
        index = self.query_one(OptionList).highlighted
        return None if index is None or not self._commands else self._commands[index]

    def request(self, source: CaptureSource, chosen: Filter, command: Command | None) -> None:
        """Show the findings about the selected exchanges. `command`: None if no capture can be
        read again."""
        if self._shown == (source, chosen.options):
            return
        self._shown = source, chosen.options

        def line(text: str) -> str:
            return command(text, chosen) if command else ""

        def show(diagnosis: Diagnosis) -> None:
            self._findings, others = first_of_rules(diagnosis.findings)
            self._commands = [line(finding["command"]) for finding in self._findings]
            # A block and the verdict begin with an empty line.
            head = verdict(diagnosis.findings, diagnosis.rules)[1:]
            self.query_one(Static).update(head + f"\nHidden: {others}" if others else head)
            options = self.query_one(OptionList)
            options.clear_options()
            for finding in self._findings:
                title, *parts = block(finding, diagnosis.last_time, line)
                options.add_option(Option(Group(cast(Text, title)[1:], *parts, "")))
            options.highlighted = 0 if self._findings else None

        app = cast(Frame, self.app)
        app.start(
            "findings", "diagnosing", lambda: source.diagnosis(chosen, job_is_cancelled()), show
        )
