"""A session: a capture that goes on until someone ends it, and those who watch it.

The capture is read in small blocks (`dissector.packets.live`). What each block completes is handed
to every watcher, table by table, and then each of them gets a `tick`: also where nothing came,
about once a second. All that happens in one thread, which must not be held up, since the kernel's
buffer fills meanwhile: whoever writes to something slow does so in a thread of their own.

Ctrl-C, SIGTERM and SIGHUP (the terminal is gone) end the session as the end of a file would: what
waits is given out, and files are completed. A second Ctrl-C ends it at once.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Final, Protocol

import pyarrow as pa

from analysis.live.terminal import leave_if_gone
from dissector.packets.live import LiveSource
from dissector.pipeline import Pipeline

LAST_OF_TURN: Final = "problems"
"""The table that comes last of each block; it comes also where it is empty."""


class Watcher(Protocol):
    """Takes rows as they come."""

    tables: frozenset[str]
    """Those it wants."""

    def read(self, name: str, rows: pa.RecordBatch) -> None:
        """Some rows, at least one, of one of its tables."""

    def tick(self) -> None:
        """A block is over."""

    def close(self) -> None:
        """The session is over."""


class Session:
    """Reads `source` for all `watchers`."""

    def __init__(self, source: LiveSource, capture: Pipeline, watchers: Sequence[Watcher]) -> None:
        self._source = source
        self._capture = capture
        self._watchers = watchers
        self.is_stopped = False
        """It was told to end."""

    def run(self) -> None:
        """Until the source ends, or is told to. Watchers are closed whatever happens."""
        wanted = {LAST_OF_TURN}.union(*(each.tables for each in self._watchers))
        with ExitStack() as closing:
            for watcher in self._watchers:
                closing.callback(watcher.close)
            for name, rows in self._capture.unsettled(wanted):
                if len(rows):
                    for watcher in self._watchers:
                        if name in watcher.tables:
                            watcher.read(name, rows)
                if name == LAST_OF_TURN:
                    for watcher in self._watchers:
                        watcher.tick()

    def stop(self) -> None:
        """End soon; to be called from anywhere."""
        self.is_stopped = True
        self._source.stop()


@contextmanager
def ended_by_signals(session: Session) -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP stop the session; another Ctrl-C interrupts.

    A SIGHUP that is ignored, as under `nohup`, stays ignored.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            leave_if_gone()
        session.stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    stopping = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        stopping.append(signal.SIGHUP)
    before = {each: signal.signal(each, stop) for each in stopping}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
