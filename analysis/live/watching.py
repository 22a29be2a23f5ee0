"""Watchers that every session has: the summary at its end, and what must be said at once."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from typing import Final

import click
import pyarrow as pa

from analysis.display.terminal import printable
from analysis.live.bounded import BoundedSummary
from analysis.summary import Summary

_EVERY: Final = 1.0
_ROWS: Final = 1 << 14
"""Seconds and rows after which what came is counted: to count a few rows takes as long as to count
thousands."""


class Counted:
    """Counts everything for the summary."""

    tables = frozenset(Summary.TABLES)

    def __init__(self) -> None:
        self.summary = BoundedSummary()
        self._waiting: list[tuple[str, pa.RecordBatch]] = []
        self._rows = 0
        self._counted = time.monotonic()

    def read(self, name: str, rows: pa.RecordBatch) -> None:
        self._waiting.append((name, rows))
        self._rows += len(rows)

    def tick(self) -> None:
        if self._rows >= _ROWS or time.monotonic() - self._counted >= _EVERY:
            self._count()

    def close(self) -> None:
        self._count()

    def _count(self) -> None:
        by_name: dict[str, list[pa.RecordBatch]] = {}
        for name, rows in self._waiting:
            by_name.setdefault(name, []).append(rows)
        for name in self.summary.TABLES:  # exchanges before their connections
            self.summary.read((name, each) for each in _joined(by_name.get(name, [])))
        self._waiting, self._rows, self._counted = [], 0, time.monotonic()


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if not batches:
        return []
    joined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


class Notices:
    """Says at once, on standard error, what who watches has to know: drops, an interface gone."""

    tables = frozenset({"problems"})
    KINDS: Final = ("dropped_packets", "interface_down", "interface_up", "truncated_file")

    def __init__(self, *, is_held: bool = False) -> None:
        """`is_held`: keep it, since the terminal shows something else."""
        self.is_held = is_held
        self.said: deque[str] = deque(maxlen=100)

    def read(self, name: str, rows: pa.RecordBatch) -> None:
        for row in rows.select(["kind", "detail"]).to_pylist():
            if row["kind"] in self.KINDS:
                self.say(row["detail"])

    def say(self, sentence: str) -> None:
        """Say it now, or as soon as there is a place for it."""
        self.said.append(printable(sentence))
        if not self.is_held:
            _show(self.said[-1])

    def release(self) -> None:
        """Say what was held, the last of it."""
        self.is_held = False
        for sentence in self.said:
            _show(sentence)

    def tick(self) -> None:
        """Nothing is put off."""

    def close(self) -> None:
        """Nothing is kept."""


def _show(sentence: str) -> None:
    """A terminal that is gone does not end a recording."""
    with suppress(OSError):
        click.echo(sentence, err=True)
