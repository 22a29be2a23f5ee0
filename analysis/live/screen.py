"""The full screen: rates and latencies of the last seconds, and the exchanges of a group.

    Tab, 1-4   group by client, API, broker, topic  Enter     show the last exchanges of a group
    s, S       sort by the next column, reverse     Escape    back
    Space      pause                                q         quit

The session runs in its own thread. The screen queries `RecentExchanges` once per second.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static

from analysis.display.terminal import excerpt, printable, size_text, time_text
from analysis.live.recent_exchanges import DIMENSIONS, SECONDS, GroupStats, RecentExchanges
from analysis.live.session import Session

MOST_GROUPS: Final = 500
"""Most groups that are shown; the first ones of the sort order."""

COLUMNS: Final[tuple[tuple[str, Callable[[GroupStats], Any]], ...]] = (
    ("name", lambda group: group.name),
    ("requests/s", lambda group: group.requests_s),
    ("p50 ms", lambda group: -1.0 if group.p50_ms is None else group.p50_ms),
    ("p99 ms", lambda group: -1.0 if group.p99_ms is None else group.p99_ms),
    ("errors", lambda group: group.errors),
    ("throttled", lambda group: group.throttled),
    ("unanswered", lambda group: group.unanswered),
    ("bytes/s", lambda group: group.bytes_s),
)
"""Titles and sort keys."""
_EXCHANGE_COLUMNS: Final = (
    *("time", "client", "API", "version", "topics", "latency ms", "error", "throttled ms"),
    "status",
)


class LiveScreen(App[None]):
    """Shows the groups of `recent` while `session` runs."""

    TITLE = "kafka-dissector"
    ENABLE_COMMAND_PALETTE = False
    CSS = "#head { height: 1; padding: 0 1; } DataTable { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "group", "group by", priority=True),
        *(
            Binding(str(n + 1), f"group_by({n})", name, show=False)
            for n, name in enumerate(DIMENSIONS)
        ),
        Binding("s", "sort", "sort"),
        Binding("S", "reverse", "reverse"),
        Binding("space", "pause", "pause", priority=True),
        Binding("q,ctrl+c", "end", "quit", priority=True),
    ]

    def __init__(
        self, recent: RecentExchanges, session: Session, status: Callable[[], str]
    ) -> None:
        """`status` returns further text for the head: packets, drops."""
        super().__init__()
        self._recent = recent
        self._session = session
        self._status = status
        self._dimension = 0
        self._sorted_by, self._descending = 1, True
        self._is_paused = False
        self._worker = ThreadPoolExecutor(1)
        self._ended: Future[None] = Future()

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield DataTable(id="groups", cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        self.set_interval(1.0, self.refresh_groups)
        self._ended = self._worker.submit(self._session.run)
        self.refresh_groups()

    def finish(self) -> None:
        """Stop the session and wait for its end. Raises the error that ended it, if any."""
        self._session.stop()
        self._worker.shutdown()
        self._ended.result()

    def refresh_groups(self) -> None:
        """Show the current groups, unless the screen is paused."""
        if self._session.is_stopped or (self._ended.done() and self._ended.exception()):
            self.exit()
        if self._is_paused or self.screen is not self.screen_stack[0]:
            return
        dimension = DIMENSIONS[self._dimension]
        title, key = COLUMNS[self._sorted_by]
        groups = sorted(self._recent.groups(dimension), key=key, reverse=self._descending)
        groups = groups[:MOST_GROUPS]
        table = self.query_one("#groups", DataTable)
        at = table.cursor_row
        selected = self._name_at(at)
        table.clear(columns=True)
        for name, _ in COLUMNS:
            mark = " ▼" if self._descending else " ▲"
            text = dimension if name == "name" else name
            table.add_column(text + (mark if name == title else ""), key=name)
        for group in groups:
            table.add_row(*_cells(group), key=group.name)
        names = [group.name for group in groups]
        if names:
            row = names.index(selected) if selected in names else min(at, len(names) - 1)
            table.move_cursor(row=row)
        self._show_head()

    def _show_head(self) -> None:
        state = "paused" if self._is_paused else "ended" if self._ended.done() else ""
        words = [
            f"by {DIMENSIONS[self._dimension]}, last {SECONDS:.0f} s",
            f"{self._recent.exchanges:,} exchanges",
            self._status(),
            state,
        ]
        self.query_one("#head", Static).update(Text("  ".join(word for word in words if word)))

    def _name_at(self, row: int) -> str | None:
        table = self.query_one("#groups", DataTable)
        if not 0 <= row < table.row_count:
            return None
        return table.coordinate_to_cell_key((row, 0)).row_key.value  # type: ignore[arg-type]

    def action_group(self) -> None:
        self.action_group_by((self._dimension + 1) % len(DIMENSIONS))

    def action_group_by(self, dimension: int) -> None:
        self._dimension = dimension
        self.refresh_groups()

    def action_sort(self) -> None:
        self._sorted_by = (self._sorted_by + 1) % len(COLUMNS)
        self.refresh_groups()

    def action_reverse(self) -> None:
        self._descending = not self._descending
        self.refresh_groups()

    def action_pause(self) -> None:
        self._is_paused = not self._is_paused
        self.refresh_groups()
        self._show_head()

    def action_end(self) -> None:
        self.exit()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        name = event.row_key.value
        if name is not None and self.screen is self.screen_stack[0]:
            dimension = DIMENSIONS[self._dimension]
            self.push_screen(ExchangeList(dimension, name, self._recent.last(dimension, name)))


class ExchangeList(Screen[None]):
    """The last exchanges of one group, as they were when it was selected."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.pop_screen", "back")]

    def __init__(self, dimension: str, name: str, rows: list[dict[str, Any]]) -> None:
        super().__init__()
        self._title = f"{dimension} {printable(name)}, last {len(rows)} exchanges"
        self._rows = rows

    def compose(self) -> ComposeResult:
        yield Static(Text(self._title), id="head")
        yield DataTable(id="exchanges", cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        table = self.query_one("#exchanges", DataTable)
        table.add_columns(*_EXCHANGE_COLUMNS)
        for row in self._rows:
            table.add_row(*_exchange(row))


def _cells(group: GroupStats) -> list[Text]:
    counts = (group.errors, group.throttled, group.unanswered)
    return [
        Text(excerpt(group.name)),
        _right(f"{group.requests_s:,.1f}"),
        *(_right("-" if ms is None else f"{ms:,.3f}") for ms in (group.p50_ms, group.p99_ms)),
        *(_right(f"{count:,}", "red" if count else "") for count in counts),
        _right(size_text(round(group.bytes_s))),
    ]


def _exchange(row: dict[str, Any]) -> list[Text]:
    time_ns = row["request_time"] or row["response_time"]
    latency = row["latency_ms"]
    return [
        Text(time_text(time_ns, 6)[11:]),
        Text(excerpt(row["client_id"] or "-")),
        Text(row["api"] or "-"),
        _right("-" if row["api_version"] is None else str(row["api_version"])),
        Text(printable(", ".join(row["topics"] or []))),
        _right("-" if latency is None else f"{latency:,.3f}"),
        Text(row["error"] if row["error_count"] else "", "red"),
        _right(f"{row['throttle_time_ms']:,}" if row["throttle_time_ms"] else "", "red"),
        Text(row["status"]),
    ]


def _right(text: str, style: str = "") -> Text:
    return Text(text, style, justify="right")
