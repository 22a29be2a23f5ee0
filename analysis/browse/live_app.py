"""The screen of a session: rates of the last seconds, and the latest exchanges.

The session runs in its own thread. The screen requests rates and rows once per second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ClassVar

import pyarrow as pa
from textual.binding import Binding, BindingType
from textual.widget import Widget

from analysis.browse.exchange_screen import ExchangeScreen
from analysis.browse.kept_exchanges import KeptExchanges
from analysis.browse.keys import LIVE_KEYS, Section
from analysis.browse.rates_pane import RatesPane
from analysis.browse.row_view import RowView
from analysis.browse.source import Reading
from analysis.input.filters import Filter
from analysis.live.lines import RowFilter
from analysis.live.recent_exchanges import SECONDS, GroupStats, RecentExchanges
from analysis.live.session import Session, Watcher
from dissector.exchanges.exchange import Exchange, as_exchanges


class SessionSource:
    """The source of a session: a row has its messages."""

    def __init__(self) -> None:
        self.reading = Reading()
        self.start: int | None = time.time_ns()
        """Times of filters may be relative to the start of the screen."""

    def exchange(self, row: pa.RecordBatch) -> Exchange | None:
        """The exchange of a row."""
        return next(as_exchanges(row))

    def started(self, chosen: Filter) -> Filter:
        """The filter with the start of the screen."""
        return chosen if self.start is None else chosen.starting(self.start)


class LiveBrowser(ExchangeScreen):
    """Shows `recent` and `kept`, which are watchers of `session`."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "pause", "pause")]
    TABS: ClassVar[dict[str, str]] = {"rates": "#groups", "exchanges": "#list"}
    KEYS: ClassVar[Sequence[Section]] = LIVE_KEYS

    def __init__(
        self, recent: RecentExchanges, kept: KeptExchanges, session: Session,
        status: Callable[[], str], name: str,
    ) -> None:  # fmt: skip
        """`status` returns further text for the head: packets, drops."""
        super().__init__(SessionSource(), name, None)
        self._recent = recent
        self._kept = kept
        self._session = session
        self._status = status
        self._is_paused = False
        self._worker = ThreadPoolExecutor(1)
        self._ended: Future[None] = Future()

    def tabs(self) -> dict[str, tuple[str, Widget]]:
        return {"rates": ("Rates", RatesPane()), "exchanges": ("Exchanges", self.exchange_tab())}

    def on_mount(self) -> None:
        view = self.query_one("#list", RowView)
        view.sorted_by, view.descending = "time", True
        self.set_interval(1.0, self.update)
        self._ended = self._worker.submit(self._session.run)

    def finish(self) -> None:
        """Stop the session and wait for its end. Raises the error that ended it, if any."""
        self._session.stop()
        self._worker.shutdown()
        self._ended.result()

    def update(self) -> None:
        """Show the current rates and rows, unless the screen is paused."""
        if self._session.is_stopped or (self._ended.done() and self._ended.exception()):
            self.exit()
        elif not self._is_paused:
            self.update_tab(self.active_tab)

    def update_tab(self, active: str) -> None:
        if self._is_paused and len(self.rows):
            return
        if active == "rates":
            self._show_rates()
        elif "list" not in self.jobs:
            self.rows = self._kept.rows()
            self.select(self.filter.text, "")

    def _show_rates(self) -> None:
        pane = self.query_one(RatesPane)
        dimension = pane.dimension

        def show(groups: list[GroupStats]) -> None:
            if dimension == pane.dimension:
                pane.show(groups)

        self.start("rates", "", lambda: self._recent.groups(dimension), show)

    @property
    def anchor(self) -> int | None:
        """The cursor in the first line stays there, on the newest exchange."""
        return self.selected if self.query_one("#list", RowView).cursor else None

    def head(self) -> list[str]:
        state = "paused" if self._is_paused else "ended" if self._ended.done() else ""
        dimension = self.query_one(RatesPane).dimension
        grouped = f"by {dimension}, last {SECONDS:.0f} s" if self.active_tab == "rates" else ""
        count = f"{self._recent.exchanges:,} exchanges"
        return [grouped, count, self._status(), state]

    def on_rates_pane_regrouped(self) -> None:
        self._show_rates()

    def on_rates_pane_opened(self, event: RatesPane.Opened) -> None:
        self.rows = self._kept.rows()
        self.show_tab("exchanges")
        self.action_filter_by(event.condition)

    def action_pause(self) -> None:
        self._is_paused = not self._is_paused
        self.show_status()
        self.update()


class LiveScreen:
    """The screen with its watchers, which a session needs before it runs."""

    def __init__(self, select: RowFilter) -> None:
        """`select` returns the rows to show."""
        self._recent, self._kept = RecentExchanges(select), KeptExchanges(select)

    @property
    def watchers(self) -> Sequence[Watcher]:
        """Watchers that receive exchanges with their messages."""
        return self._recent, self._kept

    def run(self, session: Session, status: Callable[[], str], name: str) -> None:
        """Show the session until the user leaves the screen. Raises the error that ended it."""
        browser = LiveBrowser(self._recent, self._kept, session, status, name)
        browser.run()
        browser.finish()
