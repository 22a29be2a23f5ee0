"""Batching: how well producers fill their batches, how they compress, and what they ask of brokers.

A request costs a broker nearly the same whatever is in it, so small batches are what a busy cluster
suffers from first: linger.ms and batch.size are the producer's ends to pull. How long a batch took
to fill is not on the wire, but its first record's timestamp is: its age when the request left is
linger.ms and the time in the producer's queue, by the producer's clock, where records have the time
of their creation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from analysis.answers.common import Tables, counted, milliseconds, rows_by, shaped
from dissector.tables import TableColumn

COLUMNS: Final = (
    TableColumn("batches", pa.int64(), "batches produced"),
    TableColumn("requests", pa.int64(), "requests that carried them"),
    TableColumn("records", pa.int64(), "records in them; null where no header tells"),
    TableColumn("records_p50", pa.float64(), "median of the records in a batch"),
    TableColumn("bytes", pa.int64(), "bytes of the batches", "bytes"),
    TableColumn("bytes_p50", pa.float64(), "median of the bytes of a batch", "bytes"),
    TableColumn("bytes_max", pa.int64(), "largest batch", "bytes"),
    TableColumn("codecs", pa.string(), "codecs, by comma, the most frequent first"),
    TableColumn(
        "ratio", pa.float64(),
        "bytes before compression to bytes after",
    ),
    TableColumn("acks", pa.string(), "acks that were asked for, by comma; -1 is all"),
    TableColumn("age_p50_ms", pa.float64(), "median age of the first record when it left", "ms"),
    TableColumn("age_max_ms", pa.float64(), "oldest first record", "ms"),
)  # fmt: skip


def batching(tables: Tables, *, by: Sequence[str] = ("client_id", "topic")) -> pd.DataFrame:
    """Batches in Produce requests, in groups; those with the most batches first.

    `by`: columns of `decompressed_batches` to group by, or broker, client, software, which come
    first in the result. Then `COLUMNS`.
    Raises DissectorError for a column that does not exist.
    """
    rows = tables["decompressed_batches"]
    rows = _with_ends(rows[rows["api"] == "Produce"], tables)
    rows = rows_by(rows, tables, by)
    created = rows["timestamp_type"].fillna("create_time") == "create_time"
    rows = rows.assign(
        request=rows["connection_id"].astype("str") + "/" + rows["correlation_id"].astype("str"),
        after=rows["bytes"].where(rows["uncompressed_bytes"].notna()),
        age_ms=milliseconds(rows["time"] - rows["base_timestamp"]).where(created).clip(lower=0),
    )
    found = counted(
        rows,
        by,
        batches=("time", "size"),
        requests=("request", "nunique"),
        records=("record_count", _known_sum),
        records_p50=("record_count", "median"),
        bytes=("bytes", "sum"),
        bytes_p50=("bytes", "median"),
        bytes_max=("bytes", "max"),
        codecs=("codec", _words),
        before=("uncompressed_bytes", "sum"),
        after=("after", "sum"),
        acks=("acks", _words),
        age_p50_ms=("age_ms", "median"),
        age_max_ms=("age_ms", "max"),
    )
    after = found["after"].astype("float64")
    found = found.assign(ratio=found["before"] / after.where(after > 0))
    return shaped(found.sort_values("batches", ascending=False, kind="stable"), COLUMNS, by)


def _with_ends(rows: pd.DataFrame, tables: Tables) -> pd.DataFrame:
    """The rows, with the ends of their connections, and the acks of their requests."""
    ends = tables["connections"].set_index("connection_id")
    names = ["client_ip", "client_port", "broker_ip", "broker_port"]
    found = ends[names].reindex(rows["connection_id"]).set_axis(rows.index)
    key = ["connection_id", "correlation_id"]
    asked = tables["exchanges"].drop_duplicates(key)[[*key, "acks"]]
    acks = rows[key].merge(asked, how="left", on=key)["acks"].set_axis(rows.index)
    return rows.join(found).assign(acks=acks)


def _known_sum(column: pd.Series[Any]) -> Any:
    """The sum of what is known; null where nothing is."""
    return column.sum(min_count=1)


def _words(column: pd.Series[Any]) -> str:
    return ", ".join(map(str, column.value_counts().index))
