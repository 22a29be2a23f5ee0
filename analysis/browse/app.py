"""The screen of a capture: exchanges, connections, findings and answers."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Thread
from typing import Any, ClassVar

from analysis.browse.capture_source import CaptureSource
from analysis.browse.exchange_screen import ExchangeScreen
from analysis.browse.keys import CAPTURE_KEYS, Section
from analysis.browse.rows import Rows
from analysis.live.session import ended_by_signals
from analysis.startup import Terminated


class Browser(ExchangeScreen):
    """Shows a capture; the result is the error that ended it, if any."""

    KEYS: ClassVar[Sequence[Section]] = CAPTURE_KEYS

    source: CaptureSource
    _signals: Sequence[int] = ()
    """Received while the screen is shown."""

    def show(self) -> None:
        """Show the capture until the user leaves the screen. Raises the error that ended it.

        Raises Terminated after a signal. If a signal raised an error in the event loop, the loop
        could wait forever.
        """
        with ended_by_signals(lambda: None) as self._signals:
            error = self.run()
        if self._signals:
            raise Terminated(self._signals[0])
        if error is not None:
            raise error

    def exit(self, *given: Any, **options: Any) -> None:
        """Leave the screen. Textual waits for the jobs, so end them."""
        Thread(target=self.source.close, daemon=True).start()
        super().exit(*given, **options)

    def _leave_after_signal(self) -> None:
        if self._signals:
            self.exit()

    def on_mount(self) -> None:
        self.set_interval(0.2, self._leave_after_signal)
        self.start("read", "reading exchanges", self.source.rows, self._opened, is_fatal=True)

    def _opened(self, rows: Rows) -> None:
        self.rows = rows
        self.action_filter_by(self.first_filter)

    def head(self) -> list[str]:
        count = self.source.clusters
        warning = f"{count} clusters: topics, groups and brokers with the same name are mixed"
        return [*super().head(), *([warning] if count > 1 else [])]

    def filtered(self) -> None:
        self.update_tab(self.active_tab)

    def update_tab(self, active: str) -> None:
        if len(self.rows):
            self.analyse(active, self.source)
