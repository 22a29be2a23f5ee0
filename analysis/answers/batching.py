"""Batching: how well producers fill their batches, how they compress, and what they ask of brokers.

A request costs a broker nearly the same whatever is in it, so small batches are what a busy cluster
suffers from first: linger.ms and batch.size are the producer's ends to pull. How long a batch took
to fill is not on the wire, but its first record's timestamp is: its age when the request left is
linger.ms and the time in the producer's queue, by the producer's clock, where records have the time
of their creation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from analysis.sql.expressions import counted, first_of, floored, ms, rows_by, shaped
from analysis.sql.query import Tables, asking
from dissector.tables import DECOMPRESSED_BATCHES, TableColumn

if TYPE_CHECKING:
    import pandas as pd

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


def batching(tables: Tables, *, by: str | Sequence[str] = ("client_id", "topic")) -> pd.DataFrame:
    """Batches in Produce requests, in groups; those with the most batches first.

    `by`: columns of `decompressed_batches` to group by, or broker, client, software, which come
    first in the result. Then `COLUMNS`.
    Raises DissectorError for a column that does not exist.
    """
    query = counted(
        rows_by(_PRODUCED, (*DECOMPRESSED_BATCHES.schema.names, *_ENDS, "acks"), by),
        by,
        "count(*) desc, min(nth)",
        batches="count(*)",
        requests="count(distinct (connection_id, correlation_id))",
        records="sum(record_count)",
        records_p50="median(record_count)",
        bytes="sum(bytes)",
        bytes_p50="median(bytes)",
        bytes_max="max(bytes)",
        codecs=_by_frequency("codec"),
        ratio="sum(uncompressed_bytes) / "
        "nullif(sum(bytes) filter (uncompressed_bytes is not null), 0)",
        acks=_by_frequency("acks"),
        age_p50_ms="median(age_ms)",
        age_max_ms="max(age_ms)",
    )
    with asking(tables, ("decompressed_batches", "exchanges", "connections")) as ask:
        return shaped(ask(query), COLUMNS, by)


_ENDS: Final = ("client_ip", "client_port", "broker_ip", "broker_port")

_PRODUCED: Final = f"""(
  with produced as (from decompressed_batches where api = 'Produce')
  select produced.*, {", ".join(_ENDS)}, acks,
    case when coalesce(timestamp_type, 'create_time') = 'create_time'
      then {floored(ms("base_timestamp", "produced.time"))} end as age_ms
  from produced left join connections using (connection_id)
    left join {first_of("acks", "produced")} using (connection_id, correlation_id))"""
"""SQL: the batches produced, with the ends of their connections and the acks of their requests, and
how old the first record was when it left."""


def _by_frequency(column: str) -> str:
    """SQL for the values of a column, by comma, the most frequent first."""
    counts = (
        f"[(-each.value::bigint, each.key::varchar) for each in map_entries(histogram({column}))]"
    )
    return f"array_to_string([each[2] for each in list_sort({counts})], ', ')"
