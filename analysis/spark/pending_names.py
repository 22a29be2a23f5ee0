"""Pending names: rows of a stream that name a topic by an id whose name is unknown so far.

One process keeps such rows until the end of the capture. A stream stores them, not finalized, and
adds them to the following batches, until the name is known, the capture has advanced by the
watermark, or the stream ends. Then the id is emitted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import reduce
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession

from analysis.spark.dissection import ENCODED_ROWS, decode_rows, encode_rows
from analysis.spark.plan import mapped
from analysis.spark.session import local
from dissector.packets.block import Int64
from dissector.tables.finalizer import TOPIC_COLUMNS

FOLDER: Final = "pending_names"
_TIMES: Final = ("time", "request_time", "response_time")
"""The time of a row is the first of these that is not null."""


def resolve(
    spark: SparkSession, encoded: DataFrame, missing: Collection[str], since: int,
    before: Path, after: Path,
) -> DataFrame:  # fmt: skip
    """The rows, also of `before`, that need not wait. The others are stored in `after`.

    `missing`: ids without a name. `since`: only rows from this time on wait; ns.
    """
    stored = before / FOLDER
    if stored.exists():
        encoded = encoded.unionAll(spark.read.schema(ENCODED_ROWS).parquet(local(stored)))
    if not missing:
        return encoded
    ids = pa.array(sorted(missing), pa.string())

    def part(batches: Iterator[pa.RecordBatch], *, is_pending: bool) -> Iterator[pa.RecordBatch]:
        for value in (row for batch in batches for row in batch.to_pylist()):
            for rows in decode_rows(value["content"]).to_batches():
                waits = _has_pending_name(rows, ids) & (_times(rows) >= since)
                selected = rows.filter(pa.array(waits if is_pending else ~waits))
                if len(selected):
                    yield encode_rows(value["kind"], selected)

    pending = mapped(encoded, lambda batches: part(batches, is_pending=True), ENCODED_ROWS)
    pending.write.parquet(local(after / FOLDER))
    return mapped(encoded, lambda batches: part(batches, is_pending=False), ENCODED_ROWS)


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
    columns = [rows.column(name).cast(pa.int64()) for name in _TIMES if name in rows.schema.names]
    times: Int64 = np.asarray(reduce(pc.coalesce, columns).fill_null(0))
    return times
