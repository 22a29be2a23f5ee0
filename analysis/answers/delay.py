"""Delay: how long from a record's produce request to the first fetch that brings it to a reader.

What is produced and what is fetched travels on different connections, of different clients, often
to different hosts of one cluster; a record is the same by its topic, partition and offset. The
delay is from the first byte of the produce request to the first byte of the response with which a
reader gets the last record of the request; in it are the acknowledgement by the replicas, without
which nothing is given out, and the reader's own pace. Of a read_committed reader, the transaction
counts too.

A reader is a client; what it fetches a second time does not count, nor what replicas fetch. What
was produced with acks=0 has no offset, and is in no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from analysis.sql.expressions import checked_names, counted, ms, quantiles, shaped
from analysis.sql.query import Tables, asking
from dissector.tables import TIME, TableColumn

if TYPE_CHECKING:
    import pandas as pd

_MS: Final = pa.float64()

COLUMNS: Final = (
    TableColumn("produced", pa.int64(), "produce requests that were acknowledged with an offset"),
    TableColumn("fetched", pa.int64(), "of these, how many a reader then got"),
    TableColumn("p50_ms", _MS, "median of the delay", "ms"),
    TableColumn("p95_ms", _MS, "its 0.95 quantile", "ms"),
    TableColumn("p99_ms", _MS, "its 0.99 quantile", "ms"),
    TableColumn("max_ms", _MS, "longest delay", "ms"),
    TableColumn("slowest_offset", pa.int64(), "offset of the record that took longest"),
    TableColumn("first_time", TIME, "first of the produce requests"),
    TableColumn("last_time", TIME, "last of them"),
)

BY: Final = ("topic", "partition", "producer", "reader")
"""What to group by; `producer` and `reader` are client ids. With `reader` every reader of a
partition counts, without it the first that gets the record."""


def delay(tables: Tables, *, by: str | Sequence[str] = ("topic", "partition")) -> pd.DataFrame:
    """The delay, in groups, the longest median first. Needs partitions.

    `by`: columns to group by, of `BY`, which come first in the result. Then `COLUMNS`.
    Raises DissectorError for another column.
    """
    by = checked_names(by, BY)
    query = counted(
        _PAIRS if "reader" in by else _FIRSTS,
        by,
        "p50_ms desc, min(nth)",
        produced="count(*)",
        fetched="count(delay_ms)",
        **quantiles("delay_ms"),
        max_ms="max(delay_ms)",
        slowest_offset="arg_min(last_offset, (coalesce(-delay_ms, 1), nth))",
        first_time="min(time)",
        last_time="max(time)",
    )
    with asking(tables, ("partitions",)) as ask:
        return shaped(ask(query), COLUMNS, by)


_PAIRS: Final = f"""(
  with good as (from partitions where error_code = 0 and topic is not null),
  fetches as (
    select topic, partition, coalesce(client_id, '') as reader, response_time as fetch_time,
      last_offset, coalesce("offset", last_offset - record_count + 1, 0) as first_offset
    from good
    where api in ('Fetch', 'ShareFetch') and replica_id is null and last_offset is not null
      and response_time is not null
    -- What readers got going forward: not what they fetched again.
    qualify last_offset > coalesce(max(last_offset) over (
      partition by topic, partition, reader order by response_time, nth
      rows between unbounded preceding and 1 preceding), -1)),
  produced as (
    select good.* replace (coalesce(last_offset, "offset") as last_offset), reader
    from good
      left join (select distinct topic, partition, reader from fetches) using (topic, partition)
    where api = 'Produce' and "offset" is not null)
  select produced.nth, produced.topic, produced.partition, produced.client_id as producer,
    produced.reader, time, produced.last_offset,
    case when first_offset <= produced.last_offset and fetch_time > time
      then {ms("time", "fetch_time")} end as delay_ms
  from produced asof left join fetches
    on produced.topic = fetches.topic and produced.partition = fetches.partition
      and produced.reader = fetches.reader and produced.last_offset <= fetches.last_offset)"""
"""SQL: the produce requests, one for each reader of the partition, with the delay until it got the
last of their records; null where it did not, or had it before."""

_FIRSTS: Final = f"""(
  select nth, topic, partition, producer, time, last_offset, min(delay_ms) as delay_ms
  from {_PAIRS} group by all)"""
"""SQL: the same, but with the first reader that got the record."""
