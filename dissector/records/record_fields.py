"""The fields of magic 2 records, of all batches at once (KIP-98).

    record    length varint, attributes int8, timestamp delta varlong, offset delta varint,
              key length varint, key, value length varint, value, header count varint, headers
    header    key length varint, key, value length varint, value

A length of -1 is null; a header's key is never null. From the length to the key's length it is
mostly at most eight bytes: these are read as one number, and shifted through the table of short
varints. What does not fit is read field by field.

Every position is clipped to the byte behind the end of its record before it is read at, and no
clipped one comes back: a record whose fields do not end exactly where it does is damaged.

Where loops are compiled (`kernel`), one of them reads record by record instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dissector import kernel
from dissector.packets.block import Bytes, Int64
from dissector.records.record_columns import Headers, Spans
from dissector.records.varints import SHORT, read, read_one, value_of, width_of, words

_ALONE = 32
"""With fewer records than this still having headers, a step for each header is cheaper."""


@dataclass(frozen=True, slots=True)
class RecordFields:
    """Fields of n records, as arrays of shape (n,); without meaning where `good` is False."""

    timestamp_delta: Int64
    offset_delta: Int64
    key: Spans
    value: Spans
    headers: Headers
    good: NDArray[np.bool_]
    """Whether the fields fill the record exactly."""


def read_fields(data: Bytes, start: Int64) -> RecordFields:
    """Read the records that begin at `start`, with their lengths; each must end within `data`."""
    return _compiled(data, start) if kernel.COMPILED else _gathered(data, start)


def _compiled(data: Bytes, start: Int64) -> RecordFields:
    columns = [np.empty_like(start) for _ in range(7)]
    good = np.empty(len(start), np.bool_)
    found = kernel.loops.read_fields(data, start, good, *columns)
    timestamp_delta, offset_delta, key_at, key_length, value_at, value_length, count = columns
    headers = Headers(count)
    if found:
        spans = [np.empty(found, np.int64) for _ in range(4)]
        behind = value_at + np.maximum(value_length, 0)
        kernel.loops.read_headers(data, behind, count, *spans)
        headers = Headers(count, (spans[0], spans[1]), (spans[2], spans[3]))
    return RecordFields(
        timestamp_delta, offset_delta, (key_at, key_length), (value_at, value_length), headers, good
    )


def _gathered(data: Bytes, start: Int64) -> RecordFields:
    end, timestamp_delta, offset_delta, key_length, key_at = _read_front(data, start)
    over = end + 1
    value_length, value_at = read(data, _behind(key_at, key_length, over))
    at = _behind(value_at, value_length, over)
    count = data[at].astype(np.int64)
    behind = at + 1
    headers = Headers(count)
    some = np.flatnonzero(count)
    if len(some):
        number, at = read(data, at[some])
        count, key, value, behind[some] = _read_headers(data, number, at, end[some])
        headers = Headers(np.zeros_like(end), key, value)
        headers.count[some] = count
    good = (key_length >= -1) & (value_length >= -1) & (behind == end)
    return RecordFields(
        timestamp_delta, offset_delta, (key_at, key_length), (value_at, value_length), headers, good
    )


def _behind(at: Int64, length: Int64, over: Int64) -> Int64:
    """Where `length` bytes from `at` on end, which is at most `over`."""
    behind = at + np.maximum(length, 0)
    # A sum that overflows is a large unsigned number.
    return np.minimum(behind.view(np.uint64), over.view(np.uint64)).view(np.int64)


def _read_front(data: Bytes, start: Int64) -> tuple[Int64, Int64, Int64, Int64, Int64]:
    """End of the record, both deltas, length of the key, and where that begins."""
    rest: NDArray[np.uint64] = words(data, 8)[start].astype(np.uint64, copy=False)
    length, width = _shift(rest)
    short = width > 0
    end = start + width + length
    rest >>= np.uint64(8)  # attributes: no bit of them is in use
    taken = width + 1
    timestamp_delta, width = _shift(rest)
    short &= width > 0
    taken += width
    offset_delta, width = _shift(rest)
    short &= width > 0
    taken += width
    key_length, width = _shift(rest)
    taken += width
    short &= (width > 0) & (taken <= 8)
    key_at = start + taken
    if not short.all():
        odd = np.flatnonzero(~short)
        length, at = read(data, start[odd])
        stop = end[odd] = at + length
        timestamp_delta[odd], at = read(data, at + 1)
        offset_delta[odd], at = read(data, np.minimum(at, stop))
        key_length[odd], key_at[odd] = read(data, np.minimum(at, stop))
    return end, timestamp_delta, offset_delta, key_length, key_at


def _shift(rest: NDArray[np.uint64]) -> tuple[Int64, Int64]:
    """Value and width of the short varint at the low end of each number, which is shifted out."""
    short = SHORT[(rest & np.uint64(0xFFFF)).view(np.int64)]
    width = width_of(short)
    rest >>= (width << 3).view(np.uint64)
    return value_of(short), width


def _read_headers(
    data: Bytes, number: Int64, at: Int64, end: Int64
) -> tuple[Int64, Spans, Spans, Int64]:
    """The headers of n records that say to have `number` of them: how many there are, their keys
    and values record by record, and where they end, which is behind `end` where they are damaged.
    """
    behind = np.where(number == 0, at, end + 1)
    possible = (number > 0) & (number <= (end - at) // 2)
    going = np.flatnonzero(possible)
    at, end, left = at[going], end[going], number[going]
    steps = [(going[:0], at[:0], at[:0], at[:0], at[:0])]
    while len(going) >= _ALONE:
        key_length, key_at = read(data, at)
        value_length, value_at = read(data, _behind(key_at, key_length, end + 1))
        at = _behind(value_at, value_length, end + 1)
        left = left - 1
        good = (key_length >= 0) & (value_length >= -1) & (at <= end)
        steps.append((going, key_at, key_length, value_at, value_length))
        done = good & (left == 0)
        behind[going[done]] = at[done]
        more = good & (left > 0)
        if not more.all():
            going, at, end, left = going[more], at[more], end[more], left[more]
    memory = data.data
    for index, begin, stop, wanted in zip(
        going.tolist(), at.tolist(), end.tolist(), left.tolist(), strict=True
    ):
        found, behind[index] = _read_headers_alone(memory, begin, stop, wanted)
        spans = np.array(found, np.int64).reshape(-1, 4).T
        steps.append((np.full(len(found), index), *spans))
    record, key_at, key_length, value_at, value_length = (
        np.concatenate(column) for column in zip(*steps, strict=True)
    )
    order = np.argsort(record, kind="stable")
    return (
        np.bincount(record, minlength=len(number)),
        (key_at[order], key_length[order]),
        (value_at[order], value_length[order]),
        behind,
    )


def _read_headers_alone(
    memory: memoryview, at: int, end: int, number: int
) -> tuple[list[tuple[int, int, int, int]], int]:
    """`_read_headers` of one record: position and length of each key and value, and the end."""
    found: list[tuple[int, int, int, int]] = []
    for _ in range(number):
        key_length, key_at = read_one(memory, at, end)
        at = key_at + key_length
        if key_at < 0 or key_length < 0 or at > end:
            return found, end + 1
        value_length, value_at = read_one(memory, at, end)
        at = value_at + max(value_length, 0)
        if value_at < 0 or value_length < -1 or at > end:
            return found, end + 1
        found.append((key_at, key_length, value_at, value_length))
    return found, at
