"""An outlet: text to a reader who may be slow.

A terminal that scrolls, a pager, a pipe over a network: none of them may hold up the capture. So a
thread writes, from a queue that is bounded; what finds it full is left out, and when the reader
catches up, it is said how many lines that were.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import BinaryIO, Final

QUEUE: Final = 256
"""Pieces of text that may wait."""


class Outlet:
    """Writes pieces of text, each some whole lines, to `stream`."""

    def __init__(self, stream: BinaryIO, note: Callable[[int], None]) -> None:
        """`note` is called with the number of lines that were left out."""
        self._stream = stream
        self._note = note
        self._queue: queue.Queue[bytes | None] = queue.Queue(QUEUE)
        self._skipped = 0
        self.error: OSError | None = None
        """Why the stream cannot be written to any more."""
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, text: bytes) -> None:
        """Write, or leave out. Nothing is written once the stream has an error."""
        if self.error:
            return
        if self._skipped and not self._queue.full():
            self._note(self._skipped)
            self._skipped = 0
        try:
            self._queue.put_nowait(text)
        except queue.Full:
            self._skipped += text.count(b"\n")

    def close(self, patience: float = 5.0) -> None:
        """Write what waits, for `patience` seconds at most."""
        with suppress(queue.Full):
            self._queue.put(None, timeout=patience)
        self._thread.join(patience)
        if self._skipped:
            self._note(self._skipped)

    def _run(self) -> None:
        try:
            while (text := self._queue.get()) is not None:
                self._stream.write(text)
                if self._queue.empty():
                    self._stream.flush()
            self._stream.flush()
        except OSError as error:
            self.error = error
