"""Requests, latencies and errors of the last seconds, by client, API, broker or topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import pyarrow as pa
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Static

from analysis.browse.cursor_view import CursorView
from analysis.browse.row_view import RowView
from analysis.browse.rows import Order, Rows, columns_of
from analysis.live.recent_exchanges import DIMENSIONS, SECONDS
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

    def show(self, groups: pa.Table) -> None:
        """Show groups in the order that the user has chosen; the cursor stays on its group."""
        view = self.query_one("#groups", RowView)
        known = self.dimension in view.rows.columns and view.count
        name = view.value(self.dimension) if known else None
        styles = dict.fromkeys(_PROBLEMS, lambda count: "red" if count else "")
        batches = groups.combine_chunks().to_batches()
        rows = Rows(batches, columns_of(groups.schema, styles))
        self.query_one("#no-groups").display = not len(rows)
        column = view.order.column if view.order.column in rows.columns else REQUESTS
        order = Order(column, view.order.descending or not view.order.column)
        if not len(rows):
            view.show(Rows([], []), rows.numbers, order)
            return
        numbers = rows.ordered(rows.numbers, order)
        names = rows.take(self.dimension, numbers).to_pylist()
        at = names.index(name) if name in names else min(view.cursor, len(names) - 1)
        view.show(rows, numbers, order, cursor=at)

    def action_group(self) -> None:
        """Group by the next dimension."""
        index = DIMENSIONS.index(self.dimension)
        self.dimension = DIMENSIONS[(index + 1) % len(DIMENSIONS)]
        self.post_message(self.Regrouped())

    def on_cursor_view_opened(self, event: CursorView.Opened) -> None:
        event.stop()
        view = self.query_one("#groups", RowView)
        self.post_message(self.Opened(_condition(self.dimension, view.value(self.dimension))))


def _condition(dimension: str, name: str) -> str:
    """SQL: an exchange belongs to a group."""
    if dimension == "topic":
        return f"list_contains(topics, {literal(name)})"
    column = {"client": "client_id", "API": "api", "broker": "broker"}[dimension]
    return f"{column} is null" if name == "-" else f"{column} = {literal(name)}"
