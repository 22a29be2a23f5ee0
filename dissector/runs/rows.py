"""The file with the rows of a run: batches of all tables, in the order of their blocks."""

from __future__ import annotations

import mmap
import os
from collections import defaultdict
from functools import partial
from typing import IO, Any, Protocol

import pyarrow as pa

from dissector.arrays import value
from dissector.tables.builder import TableRows


@value
class StoredRows:
    """A batch in the file of a run."""

    table: str
    begin: int
    size: int


class Content(Protocol):
    """The content of a file: a buffer of Arrow, or a file that is read when it is needed."""

    def slice(self, offset: int, length: int, /) -> pa.Buffer:
        """A part of the content."""


class RowFile:
    """Writes batches to an open file."""

    def __init__(self, file: IO[bytes], compression: str | None = None) -> None:
        """`compression`: ``lz4``, for a file on shared storage. That of `records` is always lz4:
        to write their values takes longer than to compress them."""
        self.file = file
        options = partial(pa.ipc.IpcWriteOptions, use_threads=False)
        self._options = defaultdict(
            lambda: options(compression=compression), records=options(compression="lz4")
        )
        self._sink: Any = pa.PythonFile(file, "w")
        self._end = 0

    def write(self, rows: TableRows) -> StoredRows:
        """Append a batch."""
        begin = self._end
        with pa.ipc.new_stream(
            self._sink, rows.batch.schema, options=self._options[rows.table]
        ) as writer:
            writer.write_batch(rows.batch)
        self._end = self.file.seek(0, os.SEEK_CUR)
        return StoredRows(rows.table, begin, self._end - begin)


def batch_of(rows: StoredRows, stored: Content) -> pa.RecordBatch:
    """A batch in the file of a run."""
    return pa.ipc.open_stream(stored.slice(rows.begin, rows.size)).read_next_batch()


def mapped(file: IO[bytes]) -> pa.Buffer:
    """The content of a local file, which is not copied."""
    size = file.seek(0, 2)
    return pa.py_buffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b"")
