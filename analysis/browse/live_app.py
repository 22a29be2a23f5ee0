"""The screen of a session: rates of the last seconds, the latest exchanges, and analyses.

The session runs in its own thread. The screen requests rates and rows once per second. Connection,
findings and answers are based on a `Snapshot` of the latest packets, which the user refreshes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import TabbedContent

from analysis.browse.exchange_screen import ExchangeScreen
from analysis.browse.kept_exchanges import KeptExchanges
from analysis.browse.keys import LIVE_KEYS, Section
from analysis.browse.rates_pane import RatesPane
from analysis.browse.row_view import RowView
from analysis.browse.rows import TIME, Order
from analysis.browse.snapshot import Snapshot
from analysis.browse.source import Reading
from analysis.input.filters import Filter
from analysis.live.kept_packets import KeptPackets
from analysis.live.lines import RowFilter
from analysis.live.recent_exchanges import SECONDS, RecentExchanges
from analysis.live.session import Session, Watcher
from dissector.embedded.records import Decode
from dissector.exchanges.exchange import Exchange, as_exchanges
from dissector.packets.live import Tap


class SessionSource:
    """The source of a session: a row has its messages."""

    def __init__(self) -> None:
        self.reading = Reading()
        self.start: int | None = time.time_ns()
        """Times of filters may be relative to the start of the screen."""

    def exchange(self, row: pa.RecordBatch) -> Exchange | None:
        """The exchange of a row."""
        return next(as_exchanges(row))


class LiveBrowser(ExchangeScreen):
    """Shows what its watchers have got from a session, to which it is attached before it runs."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", "pause"),
        Binding("r", "refresh", "refresh"),
    ]
    TABS: ClassVar[dict[str, str]] = {"rates": "#groups", **ExchangeScreen.TABS}
    KEYS: ClassVar[Sequence[Section]] = LIVE_KEYS

    def __init__(
        self, select: RowFilter, chosen: Filter, options: dict[str, Any], decode: Decode | None
    ) -> None:
        """`select` returns the rows to show, which `chosen` selects. `options`: of
        `open_capture`, for the kept packets. `decode`: as in `ExchangeScreen`."""
        super().__init__(SessionSource(), "", None, decode=decode)
        self._recent, self._kept = RecentExchanges(select), KeptExchanges(select)
        self._packets = KeptPackets()
        self._new_snapshot = partial(Snapshot, self._packets, chosen, options)
        self._session: Session
        self._status: Callable[[], str]
        self._snapshot: Snapshot | None = None
        self._is_paused = False
        self._worker = ThreadPoolExecutor(1)
        self._ended: Future[None] = Future()

    @property
    def watchers(self) -> Sequence[Watcher]:
        """Watchers that receive exchanges with their messages."""
        return self._recent, self._kept

    @property
    def tap(self) -> Tap:
        """Receives all packets of the session."""
        return self._packets.record

    def attach(self, session: Session, status: Callable[[], str], name: str) -> None:
        """Show a session with the `watchers`. `status` returns further text for the head: packets,
        drops. `name`: of its source."""
        self._session, self._status, self._source_name = session, status, name

    def tabs(self) -> dict[str, tuple[str, Widget]]:
        return {"rates": ("Rates", RatesPane()), **super().tabs()}

    def on_mount(self) -> None:
        self.query_one("#list", RowView).order = Order(TIME, descending=True)
        self.set_interval(1.0, self.update)
        self._ended = self._worker.submit(self._session.run)

    def show(self) -> None:
        """Show the session until the user leaves the screen. Raises the error that ended it."""
        self.run()
        self.finish()

    def finish(self) -> None:
        """Stop the session and wait for its end. Raises the error that ended it, if any."""
        self._session.stop()
        self._worker.shutdown()
        if self._snapshot is not None:
            self._snapshot.close()
        self._ended.result()

    def update(self) -> None:
        """Show the current rates and rows, unless the screen is paused."""
        if not self.is_running:
            return  # the timer may fire while the widgets are removed at the end
        if self._session.is_stopped or (self._ended.done() and self._ended.exception()):
            self.exit()
        elif not self._is_paused:
            self.update_tab(self.active_tab)

    def update_tab(self, active: str) -> None:
        if active in self.ANALYSES:
            self._analyse(active)
        elif active == "rates":
            if not (self._is_paused and len(self.rows)):
                self._show_rates()
        elif not (self._is_paused and len(self.rows)):
            self._show_exchanges()

    def _show_exchanges(self) -> None:
        if "list" not in self.jobs:
            self.rows = self._kept.rows()
            self.select(self.filter.text, "")

    def _analyse(self, active: str) -> None:
        """Show an analysis of the snapshot; take one if there is none with the exchange."""
        is_of_exchange = active == "connection"
        if is_of_exchange and self.selected is None:
            self._show_exchanges()
        elif self._snapshot is None or (is_of_exchange and self._is_newer(self._snapshot)):
            self.action_refresh()
        else:
            self.analyse(active, self._snapshot)

    def _is_newer(self, snapshot: Snapshot) -> bool:
        """Whether the selected exchange ended after the snapshot."""
        row = self.rows.row(self.selected or 0)
        end = pc.coalesce(row.column("response_end_time"), row.column("request_end_time"))
        return bool(end.cast(pa.int64())[0].as_py() > snapshot.span.last_time)

    def action_refresh(self) -> None:
        """Base the analyses on the packets up to now."""
        if self.active_tab not in self.ANALYSES or "snapshot" in self.jobs:
            return
        old = self._snapshot

        def take() -> Snapshot:
            new = self._new_snapshot()
            if old is not None:
                old.close()
            return new

        def show(snapshot: Snapshot) -> None:
            self._snapshot = snapshot
            self.update_tab(self.active_tab)

        self.start("snapshot", "writing packets", take, show)

    def _show_rates(self) -> None:
        pane = self.query_one(RatesPane)
        dimension = pane.dimension

        def show(groups: pa.Table) -> None:
            if dimension == pane.dimension:
                pane.show(groups)

        self.start("rates", "", lambda: self._recent.groups(dimension), show)

    @property
    def anchor(self) -> int | None:
        """The cursor in the first line stays there, on the newest exchange."""
        return self.selected if self.query_one("#list", RowView).cursor else None

    def head(self) -> list[str]:
        state = "paused" if self._is_paused else "ended" if self._ended.done() else ""
        if self.active_tab in self.ANALYSES:
            basis = f"{self._snapshot}; r: refresh" if self._snapshot else ""
            return [self._source_name, basis, state]
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

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if not self.query(TabbedContent):  # the program begins or ends
            return True
        if action == "refresh":
            return self.active_tab in self.ANALYSES
        if self.active_tab == "rates" and action in ("connection", "copy", "jump"):
            return False
        return super().check_action(action, parameters)

    async def action_quit(self) -> None:
        if self._snapshot is not None:
            self._snapshot.reading.cancel()
        await super().action_quit()

    def action_pause(self) -> None:
        self._is_paused = not self._is_paused
        self.show_status()
        self.update()
