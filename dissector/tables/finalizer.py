"""Completes rows with what only the whole capture knows.

- A row may contain the id of a topic whose name comes later in the capture. From the first such row
  on, the rows of its table are kept in a temporary file, in order, until the end. So memory does
  not grow while they wait.
- `topics` has a row only if a partition is new or has changed.
- Records of internal topics are decoded once the names of their topics are known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import IO, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissector.exchanges.columns import with_column
from dissector.exchanges.topic_names import TopicNames
from dissector.problems import Problem
from dissector.tables.problems import problem_rows
from dissector.tables.topics import TopicChanges

NamedBatch: TypeAlias = tuple[str, pa.RecordBatch]
"""Name of a table, and rows of it."""

_TOPIC_COLUMNS = ("topic", "topics")


class Finalizer:
    """Receives the rows of all tables of a capture, and returns them complete."""

    def __init__(self, names: TopicNames, *, hold: bool = True, show_secrets: bool = False) -> None:
        """`names`: topic names, which grow. `hold`: let rows wait for unknown names."""
        self._names = names
        self._hold = hold
        self._show_secrets = show_secrets
        self._topics = TopicChanges()
        self._buffers: dict[str, RowBuffer] = {}

    def add(self, table: str, rows: pa.RecordBatch) -> Iterator[NamedBatch]:
        """Add rows; return those of this table that are complete, and problems in them."""
        if table == "topics":
            rows = self._topics.changes(rows)
        buffer = self._buffers.get(table)
        if self._hold and buffer is None and names_topic(rows, self._names.missing).any():
            buffer = self._buffers[table] = RowBuffer(rows.schema)
        if buffer is None:
            yield from self._complete(table, rows)
        else:
            buffer.write(rows)

    def finish(self) -> Iterator[NamedBatch]:
        """Return the rows that waited, with the names that are known now."""
        for table, buffer in self._buffers.items():
            for rows in buffer.read():
                yield from self._complete(table, rows)
        self._buffers.clear()

    def _complete(self, table: str, rows: pa.RecordBatch) -> Iterator[NamedBatch]:
        rows, problems = finalize_rows(table, rows, self._names, show_secrets=self._show_secrets)
        yield table, rows
        if problems:
            yield "problems", problem_rows(problems)


def finalize_rows(
    table: str, rows: pa.RecordBatch, names: TopicNames, *, show_secrets: bool
) -> tuple[pa.RecordBatch, list[Problem]]:
    """The rows with topic names in place of ids, and with internal topics decoded."""
    rows = with_topic_names(rows, names)
    if table != "records":
        return rows, []
    from dissector.tables.internal_topics import decode_internal_records

    return decode_internal_records(rows, show_secrets=show_secrets)


def with_topic_names(rows: pa.RecordBatch, names: TopicNames) -> pa.RecordBatch:
    """The rows with the known names in place of topic ids."""
    for name, column in _topic_columns(rows).items():
        rows = with_column(rows, name, names.replace_ids(column))
    return rows


def names_topic(rows: pa.RecordBatch, ids: Collection[str]) -> NDArray[np.bool_]:
    """Whether each row names a topic by one of these ids."""
    has_id = np.zeros(len(rows), np.bool_)
    for column in _topic_columns(rows).values() if ids else ():
        owner = np.arange(len(rows))
        if pa.types.is_list(column.type):
            column, owner = pc.list_flatten(column), pc.list_parent_indices(column).to_numpy()
        has_id[owner[np.asarray(pc.is_in(column, pa.array(sorted(ids), pa.string())))]] = True
    return has_id


def _topic_columns(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    return {name: rows[name] for name in _TOPIC_COLUMNS if name in rows.schema.names}


class RowBuffer:
    """Rows of one table in a temporary file."""

    def __init__(self, schema: pa.Schema) -> None:
        import tempfile  # few captures need it

        self._file: IO[bytes] = tempfile.TemporaryFile(  # noqa: SIM115
            prefix="kafka-dissector-"
        )
        self._writer: Any = pa.ipc.new_stream(self._file, schema)

    def write(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(rows)

    def read(self) -> Iterator[pa.RecordBatch]:
        """All rows; the file is deleted afterwards."""
        self._writer.close()
        self._file.seek(0)
        with self._file, pa.ipc.open_stream(self._file) as rows:
            yield from rows
