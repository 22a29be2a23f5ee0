"""Reads the records of magic 2 batches (KIP-98).

    record    length varint, attributes int8, timestamp delta varlong, offset delta varint,
              key length varint, key, value length varint, value, header count varint, headers
    header    key length varint, key, value length varint, value

A length of -1 is null; the key of a header is never null. A record whose fields do not end exactly
at its end is damaged.

A record begins with its length, so the position of a record depends on the record before it. If
the records of all batches are those that the headers announce, one pass reads them. Otherwise the
lengths of all batches are followed first: this shows how many records there are, and whether a
chain is broken.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dissector import _native
from dissector.packets.block import Int64
from dissector.records.batch_headers import LOG_APPEND, Batches
from dissector.records.record_columns import (
    BatchBytes,
    Problems,
    RecordColumns,
    add_problem,
)

_SLICE = 16_000
"""Records whose fields are read at a time. Their columns fit into the cache."""
_SMALLEST = 7
"""Bytes of the smallest record."""


def read_batch_records(
    row: BatchBytes, batches: Batches, problems: Problems
) -> Iterator[RecordColumns]:
    """The intact records in all bytes after the header of each batch. Damage is in `problems`."""
    columns = _announced_records(row, batches)
    if columns is not None:
        yield columns
    else:
        yield from _followed_records(row, batches, problems)


def _announced_records(row: BatchBytes, batches: Batches) -> RecordColumns | None:
    """The records of batches that have exactly the announced ones, all intact; None for others, or
    if they are too many for one slice."""
    count = batches.record_count[row.batch].astype(np.int64)
    is_possible = (count >= 0) & (count <= (row.end - row.begin) // _SMALLEST)
    if not is_possible.all() or count.sum() > _SLICE:
        return None
    at = row.begin.copy()
    columns, is_good = _read_fields(row, at, count, batches)
    return columns if (at == row.end).all() and is_good.all() else None


def _followed_records(
    row: BatchBytes, batches: Batches, problems: Problems
) -> Iterator[RecordColumns]:
    """The records that are reached by their lengths."""
    count, reached = np.empty((2, len(row.batch)), np.int64)
    _native.walk_records(row.data, row.begin, row.end, count, reached)
    claimed = batches.record_count[row.batch]
    is_broken = reached != row.end
    for index in np.flatnonzero(is_broken | (count != claimed)).tolist():
        detail = f"{count[index]} records, but the header announces {claimed[index]}"
        if is_broken[index]:
            detail = f"an invalid record length after {detail}"
        add_problem(problems, batches, int(row.batch[index]), "record_count", detail)
    count -= reached > row.end
    at = row.begin.copy()
    behind = np.cumsum(count)
    total = int(behind[-1])
    for low in range(0, total, _SLICE):
        high = min(low + _SLICE, total)
        share = np.clip(behind, low, high) - np.clip(behind - count, low, high)
        columns, is_good = _read_fields(row, at, share, batches)
        if not is_good.all():
            owner = np.repeat(np.arange(len(share)), share)
            keep = _records_to_keep(row, batches, is_good, owner, is_broken, problems)
            columns = columns[np.flatnonzero(keep)]
        yield columns


def _read_fields(
    row: BatchBytes, at: Int64, share: Int64, batches: Batches
) -> tuple[RecordColumns, NDArray[np.bool_]]:
    """The first `share` records of each batch from position `at` on, and whether each is intact.

    Sets `at` to the position after them. Records that are missing in a batch are not intact; their
    columns are undefined.
    """
    n = int(share.sum())
    batch, offset, timestamp, header_at, header_count = (np.empty(n, np.int64) for _ in range(5))
    key, value = np.empty((n, 2), np.uint64), np.empty((n, 2), np.uint64)
    is_good = np.empty(n, np.bool_)
    log_append = batches.timestamp_type[row.batch] == LOG_APPEND
    base = np.where(log_append, batches.max_timestamp[row.batch], batches.base_timestamp[row.batch])
    headers = _native.read_records(
        row.data, row.buffer, at, row.end, share, row.batch, batches.base_offset[row.batch], base,
        log_append - 1, batch, offset, timestamp, key.reshape(-1), value.reshape(-1), header_at,
        header_count, is_good,
    )  # fmt: skip
    header_key, header_value = np.empty((2, headers, 2), np.uint64)
    if headers:
        _native.read_record_headers(
            row.data, row.buffer, header_at, header_count, header_key.reshape(-1),
            header_value.reshape(-1),
        )  # fmt: skip
    columns = RecordColumns(
        batch, offset, timestamp, key, value, header_count, header_key, header_value
    )
    return columns, is_good


def _records_to_keep(
    row: BatchBytes,
    batches: Batches,
    is_good: NDArray[np.bool_],
    owner: Int64,
    is_broken: NDArray[np.bool_],
    problems: Problems,
) -> NDArray[np.bool_]:
    """Mask of the records to keep: good ones; in a broken chain, none after a damaged one."""
    keep = is_good.copy()
    for index in np.unique(owner[~is_good]).tolist():
        first, behind = np.searchsorted(owner, [index, index + 1]).tolist()
        number = first + int(np.argmin(is_good[first:behind]))
        damaged = int(np.count_nonzero(~is_good[first:behind]))
        detail = f"{damaged} records have fields that do not match their length"
        add_problem(problems, batches, int(row.batch[index]), "record_fields", detail)
        if is_broken[index]:
            keep[number:behind] = False
    return keep
