"""A session: a live capture and the watchers of its rows.

The capture is read in small blocks (`dissector.packets.live`). After each block, every watcher gets
the new rows of its tables, and then a `tick`. Without packets, a `tick` comes about once per
second. All this happens in one thread, which must not block, because the kernel's buffer fills
meanwhile. A watcher with a slow output therefore writes in its own thread.

Ctrl-C, SIGTERM and SIGHUP (the terminal was closed) end the session like the end of a file: pending
rows are emitted, and files are completed. A second Ctrl-C ends it immediately.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Final

import pyarrow as pa

from analysis.live.terminal import replace_closed_terminal
from dissector.packets.live import LiveSource
from dissector.pipeline import Pipeline
from dissector.tables import TABLES

LAST_TABLE: Final = "problems"
"""The last table of each block; it is passed even if it is empty."""


class Watcher:
    """Receives rows. The methods of this class do nothing."""

    tables: frozenset[str] = frozenset()
    """Names of the tables that it receives."""

    def read(self, name: str, rows: pa.RecordBatch) -> None:
        """Receive at least one row of one of its tables."""

    def tick(self) -> None:
        """Called after each block."""

    def close(self) -> None:
        """Called at the end of the session."""


class Session:
    """Reads `source` and passes rows to `watchers`."""

    def __init__(
        self, source: LiveSource, capture: Pipeline, watchers: Sequence[Watcher],
        with_messages: Sequence[Watcher] = (),
    ) -> None:  # fmt: skip
        """`with_messages`: further watchers, which receive `exchanges` with the columns
        `dissector.tables.exchanges.MESSAGES`."""
        self._source = source
        self._capture = capture
        self._watchers = watchers
        self._with_messages = with_messages
        self.is_stopped = False
        """`stop` was called."""

    def run(self) -> None:
        """Run until the source ends or `stop` is called. Watchers are always closed."""
        watchers = [*self._watchers, *self._with_messages]
        tables = {LAST_TABLE}.union(*(watcher.tables for watcher in watchers))
        with ExitStack() as stack:
            for watcher in watchers:
                stack.callback(watcher.close)
            for name, rows in self._capture.stream(tables, with_messages=bool(self._with_messages)):
                if len(rows):
                    plain = rows.select(TABLES[name].schema.names)
                    _pass_on(name, plain, self._watchers)
                    _pass_on(name, rows, self._with_messages)
                if name == LAST_TABLE:
                    for watcher in watchers:
                        watcher.tick()

    def stop(self) -> None:
        """End soon; may be called from any thread or signal handler."""
        self.is_stopped = True
        self._source.stop()


def _pass_on(name: str, rows: pa.RecordBatch, watchers: Sequence[Watcher]) -> None:
    for watcher in watchers:
        if name in watcher.tables:
            watcher.read(name, rows)


@contextmanager
def ended_by_signals(stop: Callable[[], None]) -> Iterator[list[int]]:
    """Ctrl-C, SIGTERM and SIGHUP call `stop`; a second Ctrl-C interrupts the program.

    An ignored SIGHUP, as under `nohup`, stays ignored. Returns the numbers of received signals.
    """
    received: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if number == signal.SIGHUP:
            replace_closed_terminal()
        stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    stopping = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        stopping.append(signal.SIGHUP)
    handlers = {number: signal.signal(number, receive) for number in stopping}
    try:
        yield received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
