"""Requests, latencies and errors of the last seconds, by client, API, broker or topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Static

from analysis.browse.cursor_view import CursorView
from analysis.browse.row_view import RowView
from analysis.browse.rows import Rows, columns_of
from analysis.live.recent_exchanges import DIMENSIONS, SECONDS, GroupStats
from analysis.sql.expressions import literal

REQUESTS: Final = "requests/s"
_PROBLEMS: Final = ("errors", "throttled", "unanswered")


class RatesPane(Vertical):
    """A row for each group; Enter opens its exchanges."""

    DEFAULT_CSS = """
    RatesPane #no-groups { height: 1; padding: 0 1; display: none; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("tab", "group", "group by")]

    @dataclass
    class Opened(Message):
        """The user requests the exchanges of a group."""

        condition: str

    class Regrouped(Message):
        """The user has chosen another dimension."""

    dimension = DIMENSIONS[0]

    def compose(self) -> ComposeResult:
        yield Static(f"No data in the last {SECONDS:.0f} s.", id="no-groups")
        yield RowView(id="groups")

    def show(self, groups: Sequence[GroupStats]) -> None:
        """Show groups in the order that the user has chosen; the cursor stays on its group."""
        view = self.query_one("#groups", RowView)
        known = self.dimension in view.rows.columns and view.count
        name = view.value(self.dimension) if known else None
        rows = _rows(self.dimension, groups)
        self.query_one("#no-groups").display = not groups
        column = view.sorted_by if view.sorted_by in rows.columns else REQUESTS
        descending = view.descending or not view.sorted_by
        if not groups:
            view.show(Rows([], []), rows.numbers, column, descending)
            return
        numbers = rows.ordered(rows.numbers, column, descending=descending)
        names = rows.take(self.dimension, numbers).to_pylist()
        at = names.index(name) if name in names else min(view.cursor, len(names) - 1)
        view.show(rows, numbers, column, descending, cursor=at)

    def action_group(self) -> None:
        """Group by the next dimension."""
        index = DIMENSIONS.index(self.dimension)
        self.dimension = DIMENSIONS[(index + 1) % len(DIMENSIONS)]
        self.post_message(self.Regrouped())

    def on_cursor_view_opened(self, event: CursorView.Opened) -> None:
        event.stop()
        view = self.query_one("#groups", RowView)
        self.post_message(self.Opened(_condition(self.dimension, view.value(self.dimension))))


def _rows(dimension: str, groups: Sequence[GroupStats]) -> Rows:
    batch = pa.record_batch(
        {
            dimension: pa.array([group.name for group in groups], pa.string()),
            REQUESTS: pa.array([group.requests_s for group in groups], pa.float64()),
            "p50 ms": pa.array([group.p50_ms for group in groups], pa.float64()),
            "p99 ms": pa.array([group.p99_ms for group in groups], pa.float64()),
            "errors": pa.array([group.errors for group in groups], pa.int64()),
            "throttled": pa.array([group.throttled for group in groups], pa.int64()),
            "unanswered": pa.array([group.unanswered for group in groups], pa.int64()),
            "bytes/s": pa.array(np.rint([group.bytes_s for group in groups]), pa.int64()),
        }
    )
    styles = dict.fromkeys(_PROBLEMS, lambda count: "red" if count else "")
    return Rows([batch], columns_of(batch.schema, styles))


def _condition(dimension: str, name: str) -> str:
    """SQL: an exchange belongs to a group."""
    if dimension == "topic":
        return f"list_contains(topics, {literal(name)})"
    column = {"client": "client_id", "API": "api", "broker": "broker"}[dimension]
    return f"{column} is null" if name == "-" else f"{column} = {literal(name)}"
