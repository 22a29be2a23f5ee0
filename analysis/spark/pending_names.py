"""Pending names: rows of a stream that name a topic by an id whose name is unknown so far.

One process keeps such rows until the end of the capture. A stream keeps them until the name is
known, the capture has advanced by the watermark, or the stream ends. Then the id is emitted.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissector.tables.finalizer import names_topic
from dissector.tables.schema import TIMES


def divided(
    rows: pa.RecordBatch, missing: Collection[str], since: int
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The rows that need not wait, and the others.

    `missing`: ids without a name. `since`: only rows from this time on wait; ns.
    """
    if not missing:
        return rows, rows.slice(0, 0)
    times = [rows.column(name).cast(pa.int64()) for name in TIMES if name in rows.schema.names]
    waits = names_topic(rows, missing) & (np.asarray(pc.coalesce(*times).fill_null(0)) >= since)
    return rows.filter(pa.array(~waits)), rows.filter(pa.array(waits))
