"""Records as Arrow columns.

Keys and values are `binary_view`: 16 bytes each, of which the first four are the length. A string
of up to 12 bytes is inside the view, padded with zeros. A longer string has its first four bytes in
the view, then the number of a buffer and a position in it (Arrow columnar format, "Variable-size
Binary View Layout"). So keys and values stay in the block, or in the decompressed data, and are not
copied. Headers are short, and are copied into ordinary columns.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dissector import _native
from dissector.packets.block import Bytes, Int64, UInt64
from dissector.records.batch_headers import Batches
from dissector.records.control import NOT_CONTROL, control_types, kind_of
from dissector.records.record_columns import Records, Spans
from dissector.streams.byteview import ranges

SCHEMA = pa.schema(
    [
        ("batch", pa.int64()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary_view()),
        ("value", pa.binary_view()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("record_kind", pa.string()),
    ]
)
"""batch: index of the batch; timestamp: ms since 1970, -1 if absent; record_kind: for control
records."""

_NO_HEADERS = pa.array([], SCHEMA.field("headers").type.value_type)


def records_table(records: Records, batches: Batches) -> pa.RecordBatch:
    """`records` with the columns of `SCHEMA`. `batches`: the batches of the records."""
    parts, order = records.parts, records.order
    count = _joined([part.headers.count for part in parts])
    header_order = None
    if order is not None:
        header_order, _ = ranges((np.cumsum(count) - count)[order], count[order])
        count = count[order]
    rows = [part.row for part in parts]

    def column(arrays: list[Int64]) -> pa.Array:
        joined = _joined(arrays)
        return pa.array(joined if order is None else joined[order])

    kinds = _joined([control_types(part, batches) for part in parts])
    return pa.record_batch(
        [
            column([part.batch for part in parts]),
            column([part.offset for part in parts]),
            column([part.timestamp for part in parts]),
            _views(rows, [part.key for part in parts], order),
            _views(rows, [part.value for part in parts], order),
            pa.ListArray.from_arrays(
                np.append(0, np.cumsum(count)).astype(np.int32), _headers(records, header_order)
            ),
            _kinds(kinds if order is None else kinds[order]),
        ],
        schema=SCHEMA,
    )


def _headers(records: Records, order: Int64 | None) -> pa.Array:
    """All headers, copied, as structs of key and value."""
    parts = [part for part in records.parts if len(part.headers.key[0])]
    if not parts:
        return _NO_HEADERS
    rows = [part.row for part in parts]
    key = _text(_views(rows, [part.headers.key for part in parts], order))
    value = _views(rows, [part.headers.value for part in parts], order).cast(pa.binary())
    return pa.StructArray.from_arrays([key, value], fields=list(_NO_HEADERS.type))


def _joined(arrays: list[Int64]) -> Int64:
    return arrays[0] if len(arrays) == 1 else np.concatenate([np.zeros(0, np.int64), *arrays])


def _views(rows: list[Bytes], spans: list[Spans], order: Int64 | None) -> pa.Array:
    """A binary_view of the spans of all rows of bytes, row after row, in `order`."""
    length = _joined([length for _, length in spans])
    empty = np.zeros((0, 2), np.uint64)
    parts = [
        _view(row, number, *span)
        for number, (row, span) in enumerate(zip(rows, spans, strict=True))
    ]
    views = parts[0] if len(parts) == 1 else np.concatenate([empty, *parts])
    if order is not None:
        length, views = length[order], views[order]
    null = length < 0
    validity = None
    if null.any():
        validity = pa.py_buffer(np.packbits(~null, bitorder="little"))
    buffers = [validity, pa.py_buffer(views), *map(pa.py_buffer, rows)]
    return pa.Array.from_buffers(pa.binary_view(), len(length), buffers)


def _view(row: Bytes, number: int, at: Int64, length: Int64) -> UInt64:
    """The views of byte strings in buffer `number`; shape (n, 2)."""
    views = np.empty((len(at), 2), np.uint64)
    _native.make_views(row, number, at, length, views.reshape(-1))
    return views


def _text(views: pa.Array) -> pa.Array:
    """The views as strings; invalid UTF-8 becomes U+FFFD."""
    try:
        return views.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in views.to_pylist()], pa.string())


def _kinds(types: Int64) -> pa.Array:
    names = [kind_of(NOT_CONTROL), *map(kind_of, np.unique(types[types != NOT_CONTROL]).tolist())]
    if len(names) == 1:
        return pa.nulls(len(types), pa.string())
    numbers = np.unique(np.append(types, NOT_CONTROL))
    return pa.array(names, pa.string()).take(pa.array(np.searchsorted(numbers, types)))
