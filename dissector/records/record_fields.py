"""Reads the fields of magic 2 records, for all batches at once (KIP-98).

    record    length varint, attributes int8, timestamp delta varlong, offset delta varint,
              key length varint, key, value length varint, value, header count varint, headers
    header    key length varint, key, value length varint, value

A length of -1 is null; the key of a header is never null. A record whose fields do not end exactly
at its end is damaged.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dissector import _native
from dissector.arrays import arrays
from dissector.packets.block import Bytes, Int64
from dissector.records.record_columns import Headers, Spans


@arrays
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
    columns = [np.empty_like(start) for _ in range(7)]
    good = np.empty(len(start), np.bool_)
    header_count = _native.read_records(data, start, good, *columns)
    timestamp_delta, offset_delta, key_at, key_length, value_at, value_length, count = columns
    headers = Headers(count)
    if header_count:
        spans = [np.empty(header_count, np.int64) for _ in range(4)]
        behind = value_at + np.maximum(value_length, 0)
        _native.read_record_headers(data, behind, count, *spans)
        headers = Headers(count, (spans[0], spans[1]), (spans[2], spans[3]))
    return RecordFields(
        timestamp_delta, offset_delta, (key_at, key_length), (value_at, value_length), headers, good
    )
