"""Reads the fields of magic 2 records, for all batches at once (KIP-98).

    record    length varint, attributes int8, timestamp delta varlong, offset delta varint,
              key length varint, key, value length varint, value, header count varint, headers
    header    key length varint, key, value length varint, value

A length of -1 is null; the key of a header is never null. The fields from the length to the key's
length usually take at most eight bytes. These are read as one number, and decoded with the table of
short varints. Records that do not fit are read field by field.

Before a read, every position is clipped to the byte after its record, and it never decreases: a
record whose fields do not end exactly at its end is damaged.

If loops are compiled (`kernel`), one of them reads record by record instead.
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
"""With fewer records that have further headers, reading header by header is faster."""


@dataclass(frozen=True, slots=True)
class RecordFields:
    """Fields of n records: arrays of shape (n,); undefined where `good` is False."""

    timestamp_delta: Int64
    offset_delta: Int64
    key: Spans
    value: Spans
    headers: Headers
    good: NDArray[np.bool_]
    """Whether the fields fill the record exactly."""


def read_fields(data: Bytes, start: Int64) -> RecordFields:
    """Read the records that begin at `start`, with the length; each must end inside `data`."""
    return _compiled(data, start) if kernel.COMPILED else _gathered(data, start)


def _compiled(data: Bytes, start: Int64) -> RecordFields:
    columns = [np.empty_like(start) for _ in range(7)]
    good = np.empty(len(start), np.bool_)
    headers_found = kernel.loops.read_fields(data, start, good, *columns)
    timestamp_delta, offset_delta, key_at, key_length, value_at, value_length, count = columns
    headers = Headers(count)
    if headers_found:
        spans = [np.empty(headers_found, np.int64) for _ in range(4)]
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
    with_headers = np.flatnonzero(count)
    if len(with_headers):
        number, at = read(data, at[with_headers])
        stop = end[with_headers]
        count, key, value, behind[with_headers] = _read_headers(data, number, at, stop)
        headers = Headers(np.zeros_like(end), key, value)
        headers.count[with_headers] = count
    good = (key_length >= -1) & (value_length >= -1) & (behind == end)
    return RecordFields(
        timestamp_delta, offset_delta, (key_at, key_length), (value_at, value_length), headers, good
    )


def _behind(at: Int64, length: Int64, over: Int64) -> Int64:
    """The position after `length` bytes at `at`, at most `over`."""
    behind = at + np.maximum(length, 0)
    # A sum that overflows becomes a large unsigned number.
    return np.minimum(behind.view(np.uint64), over.view(np.uint64)).view(np.int64)


def _read_front(data: Bytes, start: Int64) -> tuple[Int64, Int64, Int64, Int64, Int64]:
    """End of the record, both deltas, length of the key, and position of the key."""
    bits: NDArray[np.uint64] = words(data, 8)[start].astype(np.uint64, copy=False)
    length, width = _shift(bits)
    short = width > 0
    end = start + width + length
    bits >>= np.uint64(8)  # attributes: Kafka uses none of their bits
    taken = width + 1
    timestamp_delta, width = _shift(bits)
    short &= width > 0
    taken += width
    offset_delta, width = _shift(bits)
    short &= width > 0
    taken += width
    key_length, width = _shift(bits)
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


def _shift(bits: NDArray[np.uint64]) -> tuple[Int64, Int64]:
    """Value and width of the short varint in the low bits of each number; shifts it out."""
    short = SHORT[(bits & np.uint64(0xFFFF)).view(np.int64)]
    width = width_of(short)
    bits >>= (width << 3).view(np.uint64)
    return value_of(short), width


def _read_headers(
    data: Bytes, number: Int64, at: Int64, end: Int64
) -> tuple[Int64, Spans, Spans, Int64]:
    """Read the headers of n records whose header counts are `number`.

    Returns the number of headers, their keys and values record by record, and the position after
    them, which is after `end` if they are damaged.
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
        continues = good & (left > 0)
        if not continues.all():
            going, at, end, left = going[continues], at[continues], end[continues], left[continues]
    memory = data.data
    for index, begin, stop, wanted in zip(
        going.tolist(), at.tolist(), end.tolist(), left.tolist(), strict=True
    ):
        headers_found, behind[index] = _read_headers_alone(memory, begin, stop, wanted)
        spans = np.array(headers_found, np.int64).reshape(-1, 4).T
        steps.append((np.full(len(headers_found), index), *spans))
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
    """`_read_headers` for one record: position and length of each key and value, and the end."""
    headers_found: list[tuple[int, int, int, int]] = []
    for _ in range(number):
        key_length, key_at = read_one(memory, at, end)
        at = key_at + key_length
        if key_at < 0 or key_length < 0 or at > end:
            return headers_found, end + 1
        value_length, value_at = read_one(memory, at, end)
        at = value_at + max(value_length, 0)
        if value_at < 0 or value_length < -1 or at > end:
            return headers_found, end + 1
        headers_found.append((key_at, key_length, value_at, value_length))
    return headers_found, at
