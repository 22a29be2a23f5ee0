"""Late names: rows of a stream that name a topic by an id whose name no batch has told yet.

On one machine such rows wait for the end of the capture. Here they wait as long as the watermark:
they are put by, unsettled as they are, and come again with the batches that follow, until the name
is told, the capture has gone on for so long, or the stream ends. Then the id is given out.
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

from analysis.spark.dissection import SPARK_PARCEL, parcel, unpack
from analysis.spark.plan import mapped
from analysis.spark.session import local
from dissector.packets.block import Int64
from dissector.tables.finalizer import TOPIC_COLUMNS

FOLDER: Final = "late"
_TIMES: Final = ("time", "request_time", "response_time")
"""When a row was; the first of them that it has."""


def due(
    spark: SparkSession, parcels: DataFrame, lacking: Collection[str], since: int,
    before: Path, after: Path,
) -> DataFrame:  # fmt: skip
    """Of these parcels, and of those put by in `before`, what need not wait; the rest is put by.

    `lacking`: ids without a name. `since`: ns; only rows from then on wait.
    """
    waiting = before / FOLDER
    if waiting.exists():
        parcels = parcels.unionAll(spark.read.schema(SPARK_PARCEL).parquet(local(waiting)))
    if not lacking:
        return parcels
    ids = pa.array(sorted(lacking), pa.string())

    def part(batches: Iterator[pa.RecordBatch], *, late: bool) -> Iterator[pa.RecordBatch]:
        for each in (row for batch in batches for row in batch.to_pylist()):
            for rows in unpack(each["content"]).to_batches():
                waits = _lacks(rows, ids) & (_times(rows) >= since)
                chosen = rows.filter(pa.array(waits if late else ~waits))
                if len(chosen):
                    yield parcel(each["kind"], chosen)

    late = mapped(parcels, lambda batches: part(batches, late=True), SPARK_PARCEL)
    late.write.parquet(local(after / FOLDER))
    return mapped(parcels, lambda batches: part(batches, late=False), SPARK_PARCEL)


def _lacks(rows: pa.RecordBatch, ids: pa.Array) -> NDArray[np.bool_]:
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
    """When each row was, ns."""
    found = [rows.column(name).cast(pa.int64()) for name in _TIMES if name in rows.schema.names]
    times: Int64 = np.asarray(reduce(pc.coalesce, found).fill_null(0))
    return times
