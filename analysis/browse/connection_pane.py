"""The packets of the connection of the selected exchange, in order of time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, cast

import numpy as np
import pyarrow as pa
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from analysis.browse.capture_source import CaptureSource
from analysis.browse.frame import Frame
from analysis.browse.row_view import RowView
from analysis.browse.rows import Order, Rows, Style, columns_of
from analysis.display.terminal import counted
from analysis.names.addresses import endpoint
from analysis.timeline.connection import MOST_PACKETS
from analysis.timeline.exchange import Event, span
from dissector.exchanges.exchange import Exchange
from dissector.tables import TIME

WAIT: Final = 10.0
"""ms without a packet that are marked."""


class ConnectionPane(Vertical):
    """A head, and a row for each packet."""

    DEFAULT_CSS = "ConnectionPane > #connection-head { height: auto; padding: 0 1; }"

    def __init__(self) -> None:
        super().__init__()
        self._shown: tuple[CaptureSource, int] | None = None

    def compose(self) -> ComposeResult:
        yield Static(Text("no exchange is selected"), id="connection-head")
        yield RowView(id="packets")

    def request(self, source: CaptureSource, rows: Rows, number: int) -> None:
        """Show the packets around a row of exchanges."""
        if self._shown == (source, number):
            return
        self._shown = source, number

        def show(result: tuple[list[Exchange], list[Event]]) -> None:
            exchanges, events = result
            chosen = source.exchange(rows.row(number))
            assert chosen is not None
            table = _table(events)
            first, _ = span(chosen)
            times = [event.packet.time for event in events]
            self.query_one("#connection-head", Static).update(_head(exchanges, events, chosen))
            self.query_one("#packets", RowView).show(
                table, table.numbers, Order("time"), cursor=int(np.searchsorted(times, first))
            )

        app = cast(Frame, self.app)
        read = partial(source.connection_timeline, rows, number)
        app.start("connection", "reading packets", read, show)


def _head(exchanges: Sequence[Exchange], events: Sequence[Event], chosen: Exchange) -> Text:
    problems = sum(event.is_problem for event in events)
    most = ", the first ones" if len(events) == MOST_PACKETS else ""
    return Text.assemble(
        (f"connection {chosen.connection_id}", "bold"),
        f": client {endpoint(chosen.client_ip, chosen.client_port)}, "
        f"broker {endpoint(chosen.broker_ip, chosen.broker_port)}; "
        f"{counted(len(exchanges), 'exchange')} around the selected one, "
        f"{counted(len(events), 'packet')}{most}, ",
        (counted(problems, "problem"), "red" if problems else ""),
    )


def _table(events: Sequence[Event]) -> Rows:
    """The packets as rows."""
    packets = [event.packet for event in events]
    times = np.array([packet.time for packet in packets], np.int64)
    batch = pa.record_batch(
        {
            "time": pa.array(times).cast(TIME),
            "after_ms": pa.array(np.diff(times, prepend=times[:1]) / 1e6),
            "packet": pa.array([packet.number for packet in packets], pa.int64()),
            "sender": pa.array(
                ["client →" if packet.is_from_client else "← broker" for packet in packets],
                pa.string(),
            ),
            "bytes": pa.array([packet.length for packet in packets], pa.int64()),
            "window": pa.array([packet.window for packet in packets], pa.int64()),
            "content": pa.array(
                [("! " if event.is_problem else "") + event.text for event in events], pa.string()
            ),
        }
    )
    styles: dict[str, Style] = {
        "content": lambda text: "red" if text.startswith("! ") else "",
        "after_ms": lambda ms: "yellow" if ms >= WAIT else "dim",
        "sender": lambda text: "cyan" if text.startswith("client") else "green",
    }
    return Rows([batch], columns_of(batch.schema, styles))
