"""Audit: which offsets of which partition were written and read, by whom, without their contents.

Only offsets and counts are looked at, never a key or a value. Offsets that follow each other, or
overlap, are one range; what was fetched twice counts twice among the records. A produced range is
what the broker answered, so that a Produce with acks=0, or without an answer, has no offsets; one
that was refused is not there. Of compressed message sets of Kafka 0.x no header tells how many
messages are in them, so that a produced range may end too early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from analysis.sql.expressions import columns_of, counted, shaped
from analysis.sql.query import Tables, asking
from analysis.sql.record_flow import MOVERS
from dissector.tables import PARTITIONS, TIME, TableColumn

if TYPE_CHECKING:
    import pandas as pd

COLUMNS: Final = (
    *columns_of(PARTITIONS, "topic", "partition"),
    TableColumn("action", pa.string(), "produces, consumes or replicates"),
    TableColumn("first_offset", pa.int64(), "first offset of the range; null where not told"),
    TableColumn("last_offset", pa.int64(), "last offset of the range"),
    TableColumn("records", pa.int64(), "records that moved; null where no header tells"),
    TableColumn("bytes", pa.int64(), "bytes of their batches", "bytes"),
    TableColumn("requests", pa.int64(), "requests that moved them"),
    *columns_of(PARTITIONS, "client_id"),
    TableColumn("groups", pa.string(), "groups that the client consumes in, by comma"),
    TableColumn("client", pa.string(), "address of the client"),
    TableColumn("software", pa.string(), "name and version of its software, if it tells"),
    TableColumn("first_time", TIME, "first of the requests"),
    TableColumn("last_time", TIME, "last of the requests"),
)

_KEY: Final = ("topic", "partition", "action", "client_id", "groups", "client", "software")

_RANGES: Final = f"""(
  with offsets as (
    select *, coalesce(last_offset, "offset") as ends,
      -- A ShareFetch names no offset: it gets what the group has not seen.
      coalesce("offset", ends - record_count + 1) as begins
    from {MOVERS} where bytes > 0 and coalesce(error_code, 0) = 0),
  reached as (
    select *, begins <= 1 + max(ends) over (
      partition by {", ".join(_KEY)} order by begins, nth
      rows between unbounded preceding and 1 preceding) as follows
    from offsets)
  -- Offsets that nobody told are one range of their own.
  select *, case when begins is null then -1 else sum((not coalesce(follows, false))::int) over (
    partition by {", ".join(_KEY)} order by begins, nth rows unbounded preceding) end as range
  from reached)"""
"""SQL: what was moved, with the range of offsets that it is part of: its number, within `_KEY`."""


def audit(tables: Tables) -> pd.DataFrame:
    """A row for each range of offsets that one client wrote, or read, in order of partition.

    The columns are `COLUMNS`.
    """
    query = counted(
        _RANGES,
        (*_KEY, "range"),
        ", ".join((*_KEY, "first_offset")),
        first_offset="min(begins)",
        last_offset="max(ends)",
        records="sum(record_count)",
        bytes="sum(bytes)",
        requests="count(*)",
        first_time="min(time)",
        last_time="max(time)",
    )
    with asking(tables, ("partitions", "exchanges", "connections")) as ask:
        return shaped(ask(query), COLUMNS)
