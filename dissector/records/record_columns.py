"""Records as columns of positions.

A key, a value or a header is a position and a length in a row of bytes: the block itself, or what
its batches decompressed to. Nothing is copied until someone asks for the bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Bytes, Int64
from dissector.problems import Problem

Spans: TypeAlias = tuple[Int64, Int64]
"""Positions and lengths of n byte strings; length -1 for null."""

Problems: TypeAlias = list[tuple[int, Problem]]
"""Index of a batch, and what of it could not be read, with the offset in the batch."""

NO_SPANS: Spans = (np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class BatchBytes:
    """The records of n batches in one row of bytes; arrays of shape (n,)."""

    data: Bytes
    """Ends with PAD bytes of padding."""
    batch: Int64
    """Index of each batch, ascending."""
    begin: Int64
    """Where its records begin, and end; for a message that is not compressed, the message."""
    end: Int64

    def some(self, which: NDArray[np.bool_]) -> BatchBytes:
        """Some of the batches."""
        return BatchBytes(self.data, self.batch[which], self.begin[which], self.end[which])


@dataclass(frozen=True, slots=True)
class Headers:
    """Headers of n records, as arrays of shape (headers,), record by record."""

    count: Int64
    """How many each record has; shape (n,)."""
    key: Spans = NO_SPANS
    value: Spans = NO_SPANS


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """n records whose bytes lie in one row, as arrays of shape (n,), batch by batch."""

    row: Bytes
    batch: Int64
    """Index of the record's batch."""
    offset: Int64
    timestamp: Int64
    """ms since 1970; -1 for none."""
    key: Spans
    value: Spans
    headers: Headers


@dataclass(frozen=True, slots=True)
class Records:
    """Records of some batches, in the order of the batches."""

    parts: tuple[RecordColumns, ...]
    """By format, and by where the bytes lie; mostly one."""
    order: Int64 | None
    """Index into the parts, one behind the other, of each record; None where they are in order."""
    problems: Problems = field(default_factory=list)

    def __len__(self) -> int:
        return sum(len(part.offset) for part in self.parts)


def chosen(columns: RecordColumns, which: NDArray[np.bool_]) -> RecordColumns:
    """Some of the records."""

    def spans(pair: Spans, some: NDArray[np.bool_]) -> Spans:
        return pair[0][some], pair[1][some]

    headers = columns.headers
    theirs = np.repeat(which, headers.count)
    return RecordColumns(
        row=columns.row,
        batch=columns.batch[which],
        offset=columns.offset[which],
        timestamp=columns.timestamp[which],
        key=spans(columns.key, which),
        value=spans(columns.value, which),
        headers=Headers(
            headers.count[which], spans(headers.key, theirs), spans(headers.value, theirs)
        ),
    )
