"""Watchers of every session: the summary at its end, and messages on standard error."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from typing import Final

import click
import pyarrow as pa

from analysis.display.terminal import printable
from analysis.live.bounded_summary import BoundedSummary
from analysis.live.session import Watcher
from analysis.summary.counts import Summary
from dissector.problems import DROPPED, FILE_KINDS

_SECONDS: Final = 1.0
_ROWS: Final = 1 << 14
"""Seconds and rows after which pending rows are counted. Counting a few rows takes as long as
counting thousands."""


class SummaryWatcher(Watcher):
    """Collects all rows for the summary."""

    tables = frozenset(Summary.TABLES)

    def __init__(self) -> None:
        self.summary = BoundedSummary()
        self._pending: list[tuple[str, pa.RecordBatch]] = []
        self._rows = 0
        self._count_time = time.monotonic()

    def read(self, name: str, rows: pa.RecordBatch) -> None:
        self._pending.append((name, rows))
        self._rows += len(rows)

    def tick(self) -> None:
        if self._rows >= _ROWS or time.monotonic() - self._count_time >= _SECONDS:
            self._count()

    def close(self) -> None:
        self._count()

    def _count(self) -> None:
        by_name: dict[str, list[pa.RecordBatch]] = {}
        for name, rows in self._pending:
            by_name.setdefault(name, []).append(rows)
        for name in self.summary.TABLES:  # exchanges and problems before their connections
            self.summary.read((name, batch) for batch in _joined(by_name.get(name, [])))
        self._pending, self._rows, self._count_time = [], 0, time.monotonic()


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if not batches:
        return []
    joined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


class Notices(Watcher):
    """Prints drops, interface changes and damage of the input to standard error immediately."""

    tables = frozenset({"problems"})
    KINDS: Final = (DROPPED, "interface_down", "interface_up", *FILE_KINDS)

    def __init__(self, *, is_paused: bool = False) -> None:
        """`is_paused`: keep messages until `release`, because a full screen uses the terminal."""
        self.is_paused = is_paused
        self.messages: deque[str] = deque(maxlen=100)

    def read(self, name: str, rows: pa.RecordBatch) -> None:
        for row in rows.select(["kind", "detail"]).to_pylist():
            if row["kind"] in self.KINDS:
                self.show(row["detail"])

    def show(self, message: str) -> None:
        """Print the message now, or on `release`."""
        self.messages.append(printable(message))
        if not self.is_paused:
            _print(self.messages[-1])

    def release(self) -> None:
        """Print the last of the kept messages, and stop keeping them."""
        self.is_paused = False
        for message in self.messages:
            _print(message)


def _print(message: str) -> None:
    """A closed terminal must not end a recording."""
    with suppress(OSError):
        click.echo(message, err=True)
