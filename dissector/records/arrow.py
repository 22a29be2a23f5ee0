"""Records as Arrow columns.

Keys and values are `binary_view`: they stay in the block, or in the decompressed data, and are not
copied. Headers are short, and are copied into ordinary columns.

A broker or a KRaft controller writes control records into the log itself, in batches with the
control bit. The key is a version and a type, both int16 (KIP-98, KIP-595, KIP-630, KIP-853).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dissector.byteview import offsets_of
from dissector.packets.block import Int64, UInt64
from dissector.records.batch_headers import Batches
from dissector.records.record_columns import LENGTH, NULL, RecordColumns, Records

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

CONTROL_KINDS = (
    "abort", "commit", "leader_change", "snapshot_header", "snapshot_footer", "kraft_version",
    "kraft_voters",
)  # fmt: skip
"""Name of each type of control record."""
NOT_CONTROL = -1
_KEY_LENGTH = 4
_NO_HEADERS = pa.array([], SCHEMA.field("headers").type.value_type)


def records_table(records: Records, batches: Batches) -> pa.RecordBatch:
    """`records` with the columns of `SCHEMA`. `batches`: the batches of the records."""
    columns = records.columns
    buffers = [pa.py_buffer(buffer) for buffer in records.buffers]
    return pa.record_batch(
        [
            pa.array(columns.batch),
            pa.array(columns.offset),
            pa.array(columns.timestamp),
            _view_array(columns.key, buffers),
            _view_array(columns.value, buffers),
            _headers(columns, buffers),
            _kinds(columns, batches),
        ],
        schema=SCHEMA,
    )


def _headers(columns: RecordColumns, buffers: list[pa.Buffer]) -> pa.Array:
    """The headers, copied, as lists of structs of key and value."""
    offsets = offsets_of(columns.header_count).astype(np.int32)
    if not len(columns.header_key):
        return pa.ListArray.from_arrays(offsets, _NO_HEADERS)
    key = _text(_view_array(columns.header_key, buffers))
    value = _view_array(columns.header_value, buffers).cast(pa.binary())
    structs = pa.StructArray.from_arrays([key, value], fields=list(_NO_HEADERS.type))
    return pa.ListArray.from_arrays(offsets, structs)


def _view_array(views: UInt64, buffers: list[pa.Buffer]) -> pa.Array:
    null = views.view(np.uint32)[:, 0] == NULL
    validity = None
    if null.any():
        validity = pa.py_buffer(np.packbits(~null, bitorder="little"))
        views = np.where(null[:, None], np.uint64(0), views)
    parts = [validity, pa.py_buffer(views), *buffers]
    return pa.Array.from_buffers(pa.binary_view(), len(views), parts)


def _text(views: pa.Array) -> pa.Array:
    """The views as strings. Bytes that are not UTF-8 are shown as in other names: ``\\xff``."""
    try:
        return views.cast(pa.string())
    except pa.ArrowInvalid:
        keys = [key.decode(errors="backslashreplace") for key in views.to_pylist()]
        return pa.array(keys, pa.string())


def _kinds(columns: RecordColumns, batches: Batches) -> pa.Array:
    if not batches.is_control.any():
        return pa.nulls(len(columns.batch), pa.string())
    types = control_types(columns, batches)
    numbers, index = np.unique(np.append(types, NOT_CONTROL), return_inverse=True)
    return pa.array(map(kind_of, numbers.tolist()), pa.string()).take(pa.array(index[:-1]))


def control_types(columns: RecordColumns, batches: Batches) -> Int64:
    """Type of each record, shape (n,); NOT_CONTROL for ordinary records."""
    front = columns.key[:, 0]
    length = front & LENGTH
    is_control = batches.is_control[columns.batch] & (length >= _KEY_LENGTH) & (length != NULL)
    types = (front >> 48 & 0xFF) << 8 | front >> 56  # the third and the fourth byte of the key
    return np.where(is_control, types.astype(np.int64), NOT_CONTROL)


def kind_of(control_type: int) -> str | None:
    """Name of a type in the `records` table; an unknown type is named by its number."""
    if control_type == NOT_CONTROL:
        return None
    if control_type < len(CONTROL_KINDS):
        return CONTROL_KINDS[control_type]
    return f"control_{control_type}"
