"""The latest exchanges of a session, with the bytes of their messages."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

import pyarrow as pa

from analysis.browse.rows import Rows, exchange_columns
from analysis.live.lines import RowFilter
from analysis.live.session import Watcher

ROWS: Final = 50_000
"""Maximum number of exchanges that are kept; the oldest are dropped first."""
BYTES: Final = 128 << 20
"""Maximum number of bytes of their rows and messages."""


class KeptExchanges(Watcher):
    """A watcher of a session. Reading and querying may happen in different threads."""

    tables = frozenset({"exchanges"})

    def __init__(self, row_filter: RowFilter = lambda rows: rows) -> None:
        self._row_filter = row_filter
        self._lock = threading.Lock()
        self._batches: deque[pa.RecordBatch] = deque()
        self._first = 0
        """The number of the first kept exchange."""
        self._rows = 0
        self._bytes = 0

    def read(self, name: str, rows: pa.RecordBatch) -> None:
        rows = self._row_filter(rows)
        if not len(rows):
            return
        with self._lock:
            self._batches.append(rows)
            self._rows += len(rows)
            self._bytes += rows.nbytes
            while len(self._batches) > 1 and (self._rows > ROWS or self._bytes > BYTES):
                oldest = self._batches.popleft()
                self._first += len(oldest)
                self._rows -= len(oldest)
                self._bytes -= oldest.nbytes

    def rows(self) -> Rows:
        """The kept exchanges; each keeps its number."""
        with self._lock:
            # Few large batches are faster to filter than many small ones.
            if len(self._batches) > 1:
                joined = pa.Table.from_batches(self._batches).combine_chunks()
                recent = deque(joined.to_batches(max_chunksize=ROWS // 10))
                self._batches = recent
            return Rows(list(self._batches), exchange_columns(), self._first)
