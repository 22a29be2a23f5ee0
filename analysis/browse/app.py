"""The screen of a capture: exchanges, connections, findings and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.widget import Widget

from analysis.browse.analysis_screen import AnalysisScreen
from analysis.browse.capture_source import CaptureSource
from analysis.browse.commands import Command
from analysis.browse.keys import CAPTURE_KEYS, Section
from analysis.browse.rows import Rows
from analysis.input.filters import Filter
from dissector.embedded.records import Decode


class Browser(AnalysisScreen):
    """Shows a capture; the result is the error that ended it, if any."""

    TABS: ClassVar[dict[str, str]] = {"exchanges": "#list", **AnalysisScreen.ANALYSES}
    KEYS: ClassVar[Sequence[Section]] = CAPTURE_KEYS

    def __init__(
        self, source: CaptureSource, name: str, command: Command, *,
        chosen: Filter | None = None, secrets: bool = False, decode: Decode | None = None,
    ) -> None:  # fmt: skip
        """As `ExchangeScreen`."""
        super().__init__(source, name, command, chosen=chosen, secrets=secrets, decode=decode)
        self._capture = source

    def tabs(self) -> dict[str, tuple[str, Widget]]:
        return {"exchanges": ("Exchanges", self.exchange_tab()), **self.analysis_tabs()}

    def on_mount(self) -> None:
        self.start("read", "reading exchanges", self._capture.rows, self._opened, is_fatal=True)

    def _opened(self, rows: Rows) -> None:
        self.rows = rows
        self.action_filter_by(self.first_filter)

    def filtered(self) -> None:
        self.update_tab(self.active_tab)

    def update_tab(self, active: str) -> None:
        if len(self.rows):
            self.analyse(active, self._capture)
