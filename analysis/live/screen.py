"""The full screen: rates and latencies of the last seconds, sorted, and the exchanges behind them.

    Tab, 1-4   by client, API, broker, topic        Enter     the last exchanges of a line
    s, S       sort by the next column, turn round  Escape    back
    Space      hold the picture                     q         end

The session runs in a thread of its own: the screen only asks the board, once a second.
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
from analysis.live.board import DIMENSIONS, SECONDS, Board, Line
from analysis.live.session import Session

LINES: Final = 500
"""Lines that are shown; of more, the first ones of the order."""

COLUMNS: Final[tuple[tuple[str, Callable[[Line], Any]], ...]] = (
    ("name", lambda line: line.name),
    ("requests/s", lambda line: line.requests_s),
    ("p50 ms", lambda line: -1.0 if line.p50_ms is None else line.p50_ms),
    ("p99 ms", lambda line: -1.0 if line.p99_ms is None else line.p99_ms),
    ("errors", lambda line: line.errors),
    ("throttled", lambda line: line.throttled),
    ("unanswered", lambda line: line.unanswered),
    ("bytes/s", lambda line: line.bytes_s),
)
"""Title, and what lines are sorted by."""
_OF_EXCHANGES: Final = (
    *("time", "client", "API", "version", "topics", "latency ms", "error", "throttled ms"),
    "status",
)


class LiveScreen(App[None]):
    """Shows what `board` has, while `session` runs."""

    TITLE = "kafka-dissector"
    ENABLE_COMMAND_PALETTE = False
    CSS = "#head { height: 1; padding: 0 1; } DataTable { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "turn", "by", priority=True),
        *(Binding(str(n + 1), f"by({n})", name, show=False) for n, name in enumerate(DIMENSIONS)),
        Binding("s", "sort", "sort"),
        Binding("S", "reverse", "turn round"),
        Binding("space", "hold", "hold", priority=True),
        Binding("q,ctrl+c", "end", "end", priority=True),
    ]

    def __init__(self, board: Board, session: Session, status: Callable[[], str]) -> None:
        """`status`: what to tell beside the counts: packets, drops."""
        super().__init__()
        self._board = board
        self._session = session
        self._status = status
        self._dimension = 0
        self._sorted_by, self._descending = 1, True
        self._is_held = False
        self._worker = ThreadPoolExecutor(1)
        self._ended: Future[None] = Future()

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield DataTable(id="lines", cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        self.set_interval(1.0, self.refresh_lines)
        self._ended = self._worker.submit(self._session.run)
        self.refresh_lines()

    def finish(self) -> None:
        """Wait for the session's end; raises what ended it, where that was an error."""
        self._session.stop()
        self._worker.shutdown()
        self._ended.result()

    def refresh_lines(self) -> None:
        """Show what is, unless the picture is held."""
        if self._session.is_stopped or (self._ended.done() and self._ended.exception()):
            self.exit()
        if self._is_held or self.screen is not self.screen_stack[0]:
            return
        dimension = DIMENSIONS[self._dimension]
        title, key = COLUMNS[self._sorted_by]
        lines = sorted(self._board.lines(dimension), key=key, reverse=self._descending)[:LINES]
        table = self.query_one("#lines", DataTable)
        at = table.cursor_row
        held = self._name_at(at)
        table.clear(columns=True)
        for name, _ in COLUMNS:
            mark = " ▼" if self._descending else " ▲"
            text = dimension if name == "name" else name
            table.add_column(text + (mark if name == title else ""), key=name)
        for line in lines:
            table.add_row(*_cells(line), key=line.name)
        names = [line.name for line in lines]
        if names:
            table.move_cursor(row=names.index(held) if held in names else min(at, len(names) - 1))
        self._show_head()

    def _show_head(self) -> None:
        state = "held" if self._is_held else "over" if self._ended.done() else ""
        words = [
            f"by {DIMENSIONS[self._dimension]}, the last {SECONDS:.0f} s",
            f"{self._board.exchanges:,} exchanges",
            self._status(),
            state,
        ]
        self.query_one("#head", Static).update(Text("  ".join(word for word in words if word)))

    def _name_at(self, row: int) -> str | None:
        table = self.query_one("#lines", DataTable)
        if not 0 <= row < table.row_count:
            return None
        return table.coordinate_to_cell_key((row, 0)).row_key.value  # type: ignore[arg-type]

    def action_turn(self) -> None:
        self.action_by((self._dimension + 1) % len(DIMENSIONS))

    def action_by(self, dimension: int) -> None:
        self._dimension = dimension
        self.refresh_lines()

    def action_sort(self) -> None:
        self._sorted_by = (self._sorted_by + 1) % len(COLUMNS)
        self.refresh_lines()

    def action_reverse(self) -> None:
        self._descending = not self._descending
        self.refresh_lines()

    def action_hold(self) -> None:
        self._is_held = not self._is_held
        self.refresh_lines()
        self._show_head()

    def action_end(self) -> None:
        self.exit()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        name = event.row_key.value
        if name is not None and self.screen is self.screen_stack[0]:
            dimension = DIMENSIONS[self._dimension]
            self.push_screen(LastExchanges(dimension, name, self._board.last(dimension, name)))


class LastExchanges(Screen[None]):
    """The last exchanges of one line, as they were when it was chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.pop_screen", "back")]

    def __init__(self, dimension: str, name: str, rows: list[dict[str, Any]]) -> None:
        super().__init__()
        self._title = f"{dimension} {printable(name)}, the last {len(rows)} exchanges"
        self._rows = rows

    def compose(self) -> ComposeResult:
        yield Static(Text(self._title), id="head")
        yield DataTable(id="exchanges", cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        table = self.query_one("#exchanges", DataTable)
        table.add_columns(*_OF_EXCHANGES)
        for row in self._rows:
            table.add_row(*_exchange(row))


def _cells(line: Line) -> list[Text]:
    bad = (line.errors, line.throttled, line.unanswered)
    return [
        Text(excerpt(line.name)),
        _right(f"{line.requests_s:,.1f}"),
        *(_right("-" if each is None else f"{each:,.3f}") for each in (line.p50_ms, line.p99_ms)),
        *(_right(f"{each:,}", "red" if each else "") for each in bad),
        _right(size_text(round(line.bytes_s))),
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
