"""Pending names: rows of a stream that name a topic by an id whose name is unknown so far.

One process keeps such rows until the end of the capture. A stream keeps them until the name is
known, the capture has advanced by the watermark, or the stream ends. Then the id is emitted.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissector.packets.block import Int64
from dissector.tables.finalizer import TOPIC_COLUMNS
from dissector.tables.schema import TIMES


def divided(
    rows: pa.RecordBatch, missing: Collection[str], since: int
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The rows that need not wait, and the others.

    `missing`: ids without a name. `since`: only rows from this time on wait; ns.
    """
    if not missing:
        return rows, rows.slice(0, 0)
    waits = _has_pending_name(rows, pa.array(sorted(missing), pa.string()))
    waits &= _times(rows) >= since
    return rows.filter(pa.array(~waits)), rows.filter(pa.array(waits))


def _has_pending_name(rows: pa.RecordBatch, ids: pa.Array) -> NDArray[np.bool_]:
    """Whether each row names a topic by one of these ids."""
    lacks = np.zeros(len(rows), np.bool_)
    for name in TOPIC_COLUMNS:
        if name not in rows.schema.names:
            continue
        column, owner = rows.column(name), np.arange(len(rows))
        if pa.types.is_list(column.type):
            column, owner = pc.list_flatten(column), pc.list_parent_indices(column).to_numpy()
        lacks[owner[np.asarray(pc.is_in(column, ids))]] = True
    return lacks


def _times(rows: pa.RecordBatch) -> Int64:
    """The time of each row, ns."""
    columns = [rows.column(name).cast(pa.int64()) for name in TIMES if name in rows.schema.names]
    times: Int64 = np.asarray(reduce(pc.coalesce, columns).fill_null(0))
    return times
