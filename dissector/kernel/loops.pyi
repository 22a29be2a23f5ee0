"""The compiled loops. Arrays are contiguous; those that are written come last.

ValueError for arrays that are too short, or for positions outside of the data.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.uint8]
Int64: TypeAlias = NDArray[np.int64]

def walk_records(
    data: Bytes, begin: Int64, end: Int64, count: Int64, start: Int64, right: NDArray[np.bool_]
) -> None:
    """Follow each batch's chain of lengths for `count` records: where they begin, batch by batch.

    `start`: shape (sum of count,), zeros before; `right`: whether the chain ends where the batch
    does.
    """

def read_fields(
    data: Bytes,
    record: Int64,
    good: NDArray[np.bool_],
    timestamp_delta: Int64,
    offset_delta: Int64,
    key_at: Int64,
    key_length: Int64,
    value_at: Int64,
    value_length: Int64,
    header_count: Int64,
) -> int:
    """The fields of each record, and whether they fill it; how many headers all good ones have.

    `record`: where they begin. A damaged one has no key, no value and no headers.
    """

def read_headers(
    data: Bytes,
    at: Int64,
    count: Int64,
    key_at: Int64,
    key_length: Int64,
    value_at: Int64,
    value_length: Int64,
) -> None:
    """The headers of records that have `count` of them, record by record.

    `at`: where the count stands, behind each record's value.
    """

def make_views(
    data: Bytes, number: int, at: Int64, length: Int64, views: NDArray[np.uint64]
) -> None:
    """Arrow's views, shape (n, 2), of the strings in that buffer; -1 counts as a length of 0."""
