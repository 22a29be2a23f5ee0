"""Writes text to a reader that may be slow, without blocking.

A terminal, a pager or a pipe over a network must not delay the capture. So a thread writes from a
bounded queue. Text that does not fit is dropped; when the reader catches up, the number of dropped
lines is reported.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import BinaryIO, Final

QUEUE: Final = 256
"""Most pieces of text in the queue."""


class NonblockingWriter:
    """Writes pieces of text, each of whole lines, to `stream`."""

    def __init__(self, stream: BinaryIO, report: Callable[[int], None]) -> None:
        """`report` is called with the number of dropped lines."""
        self._stream = stream
        self._report = report
        self._queue: queue.Queue[bytes | None] = queue.Queue(QUEUE)
        self._dropped = 0
        self.error: OSError | None = None
        """The error of the stream, if it failed."""
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, text: bytes) -> None:
        """Write or drop. After an error of the stream, nothing is written."""
        if self.error:
            return
        if self._dropped and not self._queue.full():
            self._report(self._dropped)
            self._dropped = 0
        try:
            self._queue.put_nowait(text)
        except queue.Full:
            self._dropped += text.count(b"\n")

    def close(self, timeout: float = 5.0) -> None:
        """Write the queued text, for at most `timeout` seconds."""
        with suppress(queue.Full):
            self._queue.put(None, timeout=timeout)
        self._thread.join(timeout)
        if self._dropped:
            self._report(self._dropped)

    def _run(self) -> None:
        try:
            while (text := self._queue.get()) is not None:
                self._stream.write(text)
                if self._queue.empty():
                    self._stream.flush()
            self._stream.flush()
        except OSError as error:
            self.error = error
