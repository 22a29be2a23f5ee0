"""Classes of record columns: keys, values and headers as views of bytes.

A view is two numbers, as in Arrow's `binary_view` (Arrow columnar format, "Variable-size Binary
View Layout"). The low 32 bits of the first are the length. A string of up to 12 bytes follows,
padded with zeros. Of a longer string the first four bytes follow, then the number of a buffer and a
position in it. So keys and values stay in the block, or in the decompressed data, and are not
copied. Unlike in Arrow, null has a length, `NULL`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dissector import _native
from dissector.arrays import arrays
from dissector.byteview import ranges
from dissector.packets.block import Bytes, Int64, UInt64
from dissector.parallel_arrays import ParallelArrays
from dissector.problems import Problem
from dissector.records.batch_headers import Batches

Spans: TypeAlias = tuple[Int64, Int64]
"""Positions and lengths of n byte strings; length -1 for null."""

Problems: TypeAlias = list[tuple[int, Problem]]
"""Index of a batch, and a problem in it, with the offset in the batch."""

LENGTH = 0xFFFF_FFFF
"""Mask of the length in the first number of a view."""
NULL = 0xFFFF_FFFF
"""Length of null."""
_INLINE = 12
"""Bytes of the longest string inside a view."""


@arrays
class BatchBytes:
    """The record bytes of n batches in one array; arrays of shape (n,)."""

    data: Bytes
    """Ends with PAD bytes of padding."""
    batch: Int64
    """Index of each batch, ascending."""
    begin: Int64
    """Begin and end of its records; for an uncompressed message, of the message."""
    end: Int64
    buffer: int = 0
    """Number of the array among the buffers of views."""

    def select(self, mask: NDArray[np.bool_]) -> BatchBytes:
        """The batches that `mask` selects."""
        return BatchBytes(self.data, self.batch[mask], self.begin[mask], self.end[mask])


@arrays
class RecordColumns(ParallelArrays):
    """n records with m headers: arrays of shape (n,), and views of shape (n, 2) or (m, 2)."""

    batch: Int64
    """Index of the record's batch."""
    offset: Int64
    timestamp: Int64
    """ms since 1970; -1 if absent."""
    key: UInt64
    value: UInt64
    header_count: Int64
    """Number of headers of each record."""
    header_key: UInt64
    """Headers of all records, record by record."""
    header_value: UInt64

    def __getitem__(self, rows: Int64) -> RecordColumns:  # type: ignore[override]
        """The records with these indexes."""
        first = np.cumsum(self.header_count) - self.header_count
        headers, _ = ranges(first[rows], self.header_count[rows])
        of_records, of_headers = self.values[:-2], self.values[-2:]
        columns = [each[rows] for each in of_records] + [each[headers] for each in of_headers]
        return RecordColumns(*columns)


@arrays
class Records:
    """Records of several batches, in the order of the batches."""

    columns: RecordColumns
    buffers: tuple[Bytes, ...]
    """The buffers of views, by number."""
    problems: Problems

    def __len__(self) -> int:
        return len(self.columns)


def join_columns(parts: list[RecordColumns]) -> RecordColumns:
    """The records of one or more parts, in the order of their batches."""
    columns = RecordColumns.joined(parts)
    if len(parts) == 1 or (np.diff(columns.batch) >= 0).all():
        return columns
    return columns[np.argsort(columns.batch, kind="stable")]


def no_records() -> RecordColumns:
    """Columns of zero records."""
    numbers, views = np.zeros(0, np.int64), np.zeros((0, 2), np.uint64)
    return RecordColumns(numbers, numbers, numbers, views, views, numbers, views, views)


def make_views(data: Bytes, buffer: int, spans: Spans) -> UInt64:
    """Views of byte strings in `data`, which has this number among the buffers."""
    at, length = spans
    views = np.empty((len(at), 2), np.uint64)
    _native.make_views(data, buffer, at, length, views.reshape(-1))
    return views


def read_views(buffers: Sequence[Bytes], views: UInt64) -> Iterator[bytes | None]:
    """The byte strings of views, copied."""
    for front, back in views.tolist():
        length = front & LENGTH
        if length == NULL:
            yield None
        elif length <= _INLINE:
            yield (back << 32 | front >> 32).to_bytes(_INLINE, "little")[:length]
        else:
            at = back >> 32
            yield buffers[back & 0xFFFF_FFFF].data[at : at + length].tobytes()


def add_problem(problems: Problems, batches: Batches, index: int, kind: str, detail: str) -> None:
    """Append a problem with the records of one batch."""
    offset = max(int(batches.base_offset[index]), int(batches.last_offset[index]))
    detail = f"batch at offset {offset}: {detail}"
    size = int(batches.size[index])
    problems.append((index, Problem("records", kind, detail, offset=0, bytes=size)))
