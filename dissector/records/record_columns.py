"""Classes of record columns: positions of keys, values and headers.

A key, value or header is a position and a length in a row of bytes: the block itself, or
decompressed data. Bytes are copied only when a caller asks for them.
"""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dissector.arrays import arrays
from dissector.packets.block import Bytes, Int64
from dissector.problems import Problem

Spans: TypeAlias = tuple[Int64, Int64]
"""Positions and lengths of n byte strings; length -1 for null."""

Problems: TypeAlias = list[tuple[int, Problem]]
"""Index of a batch, and a problem in it, with the offset in the batch."""

NO_SPANS: Spans = (np.zeros(0, np.int64), np.zeros(0, np.int64))


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

    def select(self, mask: NDArray[np.bool_]) -> BatchBytes:
        """The batches that `mask` selects."""
        return BatchBytes(self.data, self.batch[mask], self.begin[mask], self.end[mask])


@arrays
class Headers:
    """Headers of n records: arrays of shape (headers,), record by record."""

    count: Int64
    """Number of headers of each record; shape (n,)."""
    key: Spans = NO_SPANS
    value: Spans = NO_SPANS


@arrays
class RecordColumns:
    """n records with bytes in one array: arrays of shape (n,), batch by batch."""

    row: Bytes
    batch: Int64
    """Index of the record's batch."""
    offset: Int64
    timestamp: Int64
    """ms since 1970; -1 if absent."""
    key: Spans
    value: Spans
    headers: Headers


@arrays
class Records:
    """Records of several batches, in the order of the batches."""

    parts: tuple[RecordColumns, ...]
    """One part per format and per array of bytes; usually one."""
    order: Int64 | None
    """Index of each record into the concatenated parts; None if they are in order."""
    problems: Problems = field(default_factory=list)

    def __len__(self) -> int:
        return sum(len(part.offset) for part in self.parts)


def select_records(columns: RecordColumns, mask: NDArray[np.bool_]) -> RecordColumns:
    """The records that `mask` selects."""

    def spans(pair: Spans, mask: NDArray[np.bool_]) -> Spans:
        return pair[0][mask], pair[1][mask]

    headers = columns.headers
    header_mask = np.repeat(mask, headers.count)
    return RecordColumns(
        row=columns.row,
        batch=columns.batch[mask],
        offset=columns.offset[mask],
        timestamp=columns.timestamp[mask],
        key=spans(columns.key, mask),
        value=spans(columns.value, mask),
        headers=Headers(
            headers.count[mask], spans(headers.key, header_mask), spans(headers.value, header_mask)
        ),
    )
