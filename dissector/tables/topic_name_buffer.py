"""The spool: rows that wait for the names of topics.

A message may name its topic by an id whose name the capture tells later. From the first such row
on, the rows of its table go into a temporary file, in order, and come back at the end with the
names that are known by then. So memory does not grow with the wait.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO, Any

import pyarrow as pa

from dissector.exchanges.topic_names import TopicNames

TOPIC_COLUMNS = ("topic", "topics")


class Spool:
    """Rows of one table, on their way out."""

    def __init__(self, names: TopicNames) -> None:
        self._names = names
        self._file: IO[bytes] | None = None
        self._writer: Any = None

    def put(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows; give those that need not wait."""
        if self._writer is None:
            if not any(self._names.lacks(column) for column in _topics(rows).values()):
                yield rows
                return
            self._file = tempfile.TemporaryFile(prefix="kafka-dissector-")  # noqa: SIM115
            self._writer = pa.ipc.new_stream(self._file, rows.schema)
        self._writer.write_batch(rows)

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Give the rows that waited, with all names that are known now."""
        if self._writer is None or self._file is None:
            return
        self._writer.close()
        self._file.seek(0)
        with self._file, pa.ipc.open_stream(self._file) as waiting:
            for rows in waiting:
                for name, column in _topics(rows).items():
                    index = rows.schema.get_field_index(name)
                    rows = rows.set_column(index, name, self._names.complete(column))
                yield rows
        self._writer = self._file = None


def _topics(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    return {name: rows.column(name) for name in TOPIC_COLUMNS if name in rows.schema.names}
