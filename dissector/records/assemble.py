"""Builds the record columns of batches of one kind.

There are three kinds: records of magic 2 batches, uncompressed messages, and messages from a
wrapper. Each reader appends damaged parts to `problems`, and yields the intact records.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Int64
from dissector.problems import Problem
from dissector.records.batch_headers import Batches, follow_sizes
from dissector.records.message_fields import MessageFields, read_messages
from dissector.records.record_columns import (
    BatchBytes,
    Headers,
    Problems,
    RecordColumns,
    select_records,
)
from dissector.records.record_fields import read_fields
from dissector.records.record_offsets import walk_records
from dissector.streams.byteview import ContiguousBytes

_SLICE = 16_000
"""Records whose fields are read at a time. Columns of 8 bytes per value then fit into the cache
and stay below 128 KB, above which the C library may allocate fresh pages for every array."""
_LOG_APPEND = 1


def add_problem(problems: Problems, batches: Batches, index: int, kind: str, detail: str) -> None:
    """Append a problem with the records of one batch."""
    offset = max(int(batches.base_offset[index]), int(batches.last_offset[index]))
    detail = f"batch at offset {offset}: {detail}"
    size = int(batches.size[index])
    problems.append((index, Problem("records", kind, detail, offset=0, bytes=size)))


def read_batch_records(
    row: BatchBytes, batches: Batches, problems: Problems
) -> Iterator[RecordColumns]:
    """Records of magic 2: all bytes after the header of each batch."""
    claimed = batches.record_count[row.batch].astype(np.int64)
    chain = walk_records(row.data, row.begin, row.end, claimed)
    count, is_broken = chain.count.copy(), chain.reached != row.end
    for index in np.flatnonzero(is_broken | (count != claimed)).tolist():
        detail = f"{count[index]} records, but the header announces {claimed[index]}"
        if is_broken[index]:
            detail = f"an invalid record length after {detail}"
        add_problem(problems, batches, int(row.batch[index]), "record_count", detail)
    start = chain.start
    over = np.flatnonzero(chain.reached > row.end)
    if len(over):
        start = np.delete(start, (np.cumsum(count) - 1)[over])
        count[over] -= 1
    log_append = batches.timestamp_type[row.batch] == _LOG_APPEND
    base = np.where(log_append, batches.max_timestamp[row.batch], batches.base_timestamp[row.batch])
    offset = batches.base_offset[row.batch]
    behind = np.cumsum(count)
    for low in range(0, len(start), _SLICE):
        high = min(low + _SLICE, len(start))
        share = np.clip(behind, low, high) - np.clip(behind - count, low, high)
        fields = read_fields(row.data, start[low:high])
        delta = fields.timestamp_delta
        if log_append.any():
            delta = np.where(np.repeat(log_append, share), 0, delta)
        columns = RecordColumns(
            row=row.data,
            batch=np.repeat(row.batch, share),
            offset=np.repeat(offset, share) + fields.offset_delta,
            timestamp=np.repeat(base, share) + delta,
            key=fields.key,
            value=fields.value,
            headers=fields.headers,
        )
        if not fields.good.all() or is_broken.any():
            owner = np.repeat(np.arange(len(share)), share)
            columns = select_records(
                columns, _records_to_keep(row, batches, fields.good, owner, is_broken, problems)
            )
        yield columns


def _records_to_keep(
    row: BatchBytes,
    batches: Batches,
    good: NDArray[np.bool_],
    owner: Int64,
    is_broken: NDArray[np.bool_],
    problems: Problems,
) -> NDArray[np.bool_]:
    """Mask of the records to keep: good ones; in a broken chain, none after a damaged one."""
    keep = good.copy()
    for index in np.unique(owner[~good]).tolist():
        first, behind = np.searchsorted(owner, [index, index + 1]).tolist()
        number = first + int(np.argmin(good[first:behind]))
        damaged = int(np.count_nonzero(~good[first:behind]))
        detail = f"{damaged} records have fields that do not match their length"
        add_problem(problems, batches, int(row.batch[index]), "record_fields", detail)
        if is_broken[index]:
            keep[number:behind] = False
    return keep


def read_message_records(
    row: BatchBytes, batches: Batches, problems: Problems
) -> Iterator[RecordColumns]:
    """Uncompressed messages."""
    messages = read_messages(row.data, row.begin, row.end - row.begin, batches.magic[row.batch])
    yield _columns(row, row.batch, messages, messages.offset, messages.timestamp, batches, problems)


def read_wrapped_records(
    row: BatchBytes, batches: Batches, problems: Problems
) -> Iterator[RecordColumns]:
    """The messages of decompressed sets."""
    chain = follow_sizes(ContiguousBytes(row.data), row.begin, row.end)
    reached = row.begin.copy()
    np.maximum.at(reached, chain.field, chain.address + chain.size)
    for index in np.flatnonzero(reached != row.end).tolist():
        detail = f"messages end at byte {reached[index] - row.begin[index]}"
        detail += f" of {row.end[index] - row.begin[index]}"
        add_problem(problems, batches, int(row.batch[index]), "record_count", detail)
    is_complete = (chain.address + chain.size <= row.end[chain.field]) & (chain.magic < 2)
    field, magic = chain.field[is_complete], chain.magic[is_complete]
    messages = read_messages(row.data, chain.address[is_complete], chain.size[is_complete], magic)
    owner = row.batch[field]
    last = np.zeros(len(row.batch), np.int64)
    last[field] = messages.offset  # the last assignment wins: the last message of each set
    base = batches.last_offset[row.batch] - last
    # In a Produce request the offset of a wrapper is not set: offsets stay relative.
    base = np.where((batches.magic[row.batch] == 1) & (base > 0), base, 0)
    log_append = batches.timestamp_type[owner] == _LOG_APPEND
    timestamp = np.where(log_append, batches.max_timestamp[owner], messages.timestamp)
    yield _columns(
        row, owner, messages, messages.offset + base[field], timestamp, batches, problems
    )


def _columns(
    row: BatchBytes,
    owner: Int64,
    messages: MessageFields,
    offset: Int64,
    timestamp: Int64,
    batches: Batches,
    problems: Problems,
) -> RecordColumns:
    columns = RecordColumns(
        row=row.data,
        batch=owner,
        offset=offset,
        timestamp=timestamp,
        key=messages.key,
        value=messages.value,
        headers=Headers(np.zeros_like(owner)),
    )
    plain = messages.codec == 0
    keep = messages.good & plain
    if keep.all():
        return columns
    for index in np.unique(owner[~plain]).tolist():
        detail = "a compressed message inside a compressed message"
        add_problem(problems, batches, index, "nested_compression", detail)
    for index in np.unique(owner[plain & ~messages.good]).tolist():
        detail = "key and value do not match the message length"
        add_problem(problems, batches, index, "record_fields", detail)
    return select_records(columns, keep)
