"""Writes text to a reader that may be slow, without blocking.

A terminal, a pager or a pipe over a network must not delay the capture. So a thread writes from a
bounded queue. Text that does not fit is dropped; when the reader catches up, the number of dropped
lines is reported.
"""

from __future__ import annotations

import os
import queue
from collections.abc import Callable
from contextlib import suppress
from errno import EAGAIN
from io import RawIOBase
from threading import Thread
from typing import Final

QUEUE: Final = 256
"""Maximum number of pieces of text in the queue."""


class NonblockingWriter:
    """Writes pieces of text, each of whole lines, to `stream`, which has no buffer.

    A buffer has a lock, which the thread would hold while a reader is slow: the main thread would
    wait for it when it flushes standard output.
    """

    def __init__(self, stream: RawIOBase, report: Callable[[int], None]) -> None:
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
                remaining = memoryview(text)
                while remaining:
                    written = self._stream.write(remaining)
                    if written is None:  # standard output is in non-blocking mode, and full
                        raise BlockingIOError(EAGAIN, os.strerror(EAGAIN))
                    remaining = remaining[written:]
        except OSError as error:
            self.error = error
