"""Audit: which offsets of which partition were written and read, by whom, without their contents.

Only offsets and counts are looked at, never a key or a value. Offsets that follow each other, or
overlap, are one range; what was fetched twice counts twice among the records. A produced range is
what the broker answered, so that a Produce with acks=0, or without an answer, has no offsets; one
that was refused is not there. Of compressed message sets of Kafka 0.x no header tells how many
messages are in them, so that a produced range may end too early.
"""

from __future__ import annotations

from typing import Final

import pandas as pd
import pyarrow as pa

from analysis.answers.common import Tables, columns_of, grouped, shaped
from analysis.answers.who import movers
from dissector.tables import PARTITIONS, TIME, TableColumn

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


def audit(tables: Tables) -> pd.DataFrame:
    """A row for each range of offsets that one client wrote, or read, in order of partition.

    The columns are `COLUMNS`.
    """
    rows = movers(tables).rename(columns={"client_ip": "client"})
    rows = rows[(rows["bytes"].fillna(0) > 0) & (rows["error_code"].fillna(0) == 0)]
    last = rows["last_offset"].fillna(rows["offset"])
    # A ShareFetch names no offset: it gets what the group has not seen.
    first = rows["offset"].fillna(last - rows["record_count"] + 1)
    rows = rows.assign(first=first, last=last).sort_values([*_KEY, "first"], kind="stable")
    reached = grouped(rows, _KEY)["last"].cummax()
    before = reached.groupby([rows[name] for name in _KEY], sort=False, dropna=False).shift()
    begins = (before.isna() | (rows["first"] > before + 1)).fillna(True)
    # Offsets that nobody told sort last, and are one range of their own.
    begins = begins.mask(rows["first"].isna(), before.notna()).astype("bool")
    rows = rows.assign(range=begins.cumsum())
    ranges = grouped(rows, [*_KEY, "range"])
    found = ranges.agg(
        first_offset=("first", "min"),
        last_offset=("last", "max"),
        bytes=("bytes", "sum"),
        requests=("time", "size"),
        first_time=("time", "min"),
        last_time=("time", "max"),
    )
    found["records"] = ranges["record_count"].sum(min_count=1)
    return shaped(found.reset_index(), COLUMNS)
