"""The records of batches of one kind, from a row of bytes to columns.

There are three kinds: records of magic 2 batches, messages that are not compressed, and messages
that came out of a wrapper. Each reader adds to `problems` what is damaged, and gives the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import Int64
from dissector.problems import Problem
from dissector.records.batch_headers import Batches, follow_sizes
from dissector.records.message_fields import MessageFields, read_messages
from dissector.records.record_columns import BatchBytes, Headers, Problems, RecordColumns, chosen
from dissector.records.record_fields import read_fields
from dissector.records.record_offsets import walk_records
from dissector.streams.byteview import ContiguousBytes

_SLICE = 16_000
"""Records whose fields are read at a time. Columns of 8 bytes each then stay in the cache, and
under 128 KB, above which the C library may take fresh pages from the kernel for every array."""
_LOG_APPEND = 1


def add_problem(problems: Problems, batches: Batches, index: int, kind: str, detail: str) -> None:
    """Say what is wrong with the records of one batch."""
    offset = max(int(batches.base_offset[index]), int(batches.last_offset[index]))
    detail = f"batch of offset {offset}: {detail}"
    size = int(batches.size[index])
    problems.append((index, Problem("records", kind, detail, offset=0, bytes=size)))


def read_batch_records(
    row: BatchBytes, batches: Batches, problems: Problems
) -> Iterator[RecordColumns]:
    """Records of magic 2: all that stands behind each batch's header."""
    claimed = batches.record_count[row.batch].astype(np.int64)
    chain = walk_records(row.data, row.begin, row.end, claimed)
    count, astray = chain.count.copy(), chain.reached != row.end
    for index in np.flatnonzero(astray | (count != claimed)).tolist():
        detail = f"{count[index]} records, where the header says {claimed[index]}"
        if astray[index]:
            detail = f"the chain of lengths breaks after {detail}"
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
        if not fields.good.all() or astray.any():
            owner = np.repeat(np.arange(len(share)), share)
            columns = chosen(columns, _believed(row, batches, fields.good, owner, astray, problems))
        yield columns


def _believed(
    row: BatchBytes,
    batches: Batches,
    good: NDArray[np.bool_],
    owner: Int64,
    astray: NDArray[np.bool_],
    problems: Problems,
) -> NDArray[np.bool_]:
    """Which records to keep: good ones, and where the chain broke none behind a damaged one."""
    keep = good.copy()
    for index in np.unique(owner[~good]).tolist():
        first, behind = np.searchsorted(owner, [index, index + 1]).tolist()
        number = first + int(np.argmin(good[first:behind]))
        damaged = int(np.count_nonzero(~good[first:behind]))
        detail = f"the fields of {damaged} records do not fill them"
        add_problem(problems, batches, int(row.batch[index]), "record_fields", detail)
        if astray[index]:
            keep[number:behind] = False
    return keep


def read_message_records(
    row: BatchBytes, batches: Batches, problems: Problems
) -> Iterator[RecordColumns]:
    """Messages that are not compressed."""
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
        detail = f"its messages end at byte {reached[index] - row.begin[index]}"
        detail += f" of {row.end[index] - row.begin[index]}"
        add_problem(problems, batches, int(row.batch[index]), "record_count", detail)
    whole = (chain.address + chain.size <= row.end[chain.field]) & (chain.magic < 2)
    field, magic = chain.field[whole], chain.magic[whole]
    messages = read_messages(row.data, chain.address[whole], chain.size[whole], magic)
    owner = row.batch[field]
    last = np.zeros(len(row.batch), np.int64)
    last[field] = messages.offset  # of each set's messages the last one is what stays
    base = batches.last_offset[row.batch] - last
    # On the way to the broker a wrapper's offset is not set; then the relative ones stand.
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
        detail = "a compressed message inside a compressed one"
        add_problem(problems, batches, index, "nested_compression", detail)
    for index in np.unique(owner[plain & ~messages.good]).tolist():
        detail = "key and value do not fill a message"
        add_problem(problems, batches, index, "record_fields", detail)
    return chosen(columns, keep)
