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
from typing import Final

import pandas as pd
import pyarrow as pa

from analysis.answers.asof import as_of
from analysis.answers.common import QUANTILES, Tables, grouped, milliseconds, shaped
from dissector.errors import DissectorError
from dissector.tables import TIME, TableColumn

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

_WHERE: Final = ["topic", "partition"]


def delay(tables: Tables, *, by: Sequence[str] = ("topic", "partition")) -> pd.DataFrame:
    """The delay, in groups, the longest median first. Needs partitions.

    `by`: columns to group by, of `BY`, which come first in the result. Then `COLUMNS`.
    Raises DissectorError for another column.
    """
    for name in by:
        if name not in BY:
            known = ", ".join(BY)
            raise DissectorError(f"there is no column {name} to group by; there are: {known}")
    if not by or len(set(by)) < len(by):
        raise DissectorError("name at least one column to group by, and each of them once")
    pairs = _pairs(tables["partitions"], each="reader" in by)
    pairs["delay_ms"] = milliseconds(pairs["fetch_time"] - pairs["time"])
    slowest = pairs.sort_values("delay_ms", ascending=False, kind="stable")
    groups = grouped(pairs, by)
    found = groups.agg(
        produced=("time", "size"),
        fetched=("delay_ms", "count"),
        max_ms=("delay_ms", "max"),
        first_time=("time", "min"),
        last_time=("time", "max"),
    )
    for quantile in QUANTILES:
        found[f"p{quantile * 100:.0f}_ms"] = groups["delay_ms"].quantile(quantile)
    found["slowest_offset"] = grouped(slowest, by)["last_offset"].first()
    found = found.reset_index().sort_values("p50_ms", ascending=False, kind="stable")
    return shaped(found, COLUMNS, by)


def _pairs(rows: pd.DataFrame, *, each: bool) -> pd.DataFrame:
    """The produce requests, one for each reader where `each`, with fetch_time, missing if none."""
    rows = rows[(rows["error_code"] == 0) & rows["topic"].notna()]
    fetches = _fetches(rows)
    produced = rows[(rows["api"] == "Produce") & rows["offset"].notna()]
    produced = produced[["time", *_WHERE, "client_id", "offset", "last_offset"]]
    produced = produced.rename(columns={"client_id": "producer"}).reset_index(names="request")
    produced["last_offset"] = produced["last_offset"].fillna(produced["offset"]).astype("int64")
    readers = fetches[[*_WHERE, "reader"]].drop_duplicates()
    pairs = produced.merge(readers, on=_WHERE, how="left")
    key = [*_WHERE, "reader"]
    found = as_of(pairs, fetches, on="last_offset", by=key, direction="forward")
    there = (found["first_offset"] <= found["last_offset"]) & (found["fetch_time"] > found["time"])
    found["fetch_time"] = found["fetch_time"].where(there)
    if not each:
        found = found.sort_values("fetch_time", kind="stable").drop_duplicates("request")
    return found.sort_values("request", ignore_index=True)


def _fetches(rows: pd.DataFrame) -> pd.DataFrame:
    """What readers got, going forward: reader, topic, partition, from which offset to which."""
    rows = rows[rows["api"].isin(["Fetch", "ShareFetch"]) & rows["replica_id"].isna()]
    rows = rows[rows["last_offset"].notna() & rows["response_time"].notna()]
    rows = rows.sort_values("response_time", kind="stable")
    rows = rows.rename(columns={"client_id": "reader", "response_time": "fetch_time"})
    rows["reader"] = rows["reader"].fillna("")
    rows["last_offset"] = rows["last_offset"].astype("int64")
    key = [*_WHERE, "reader"]
    rows["seen"] = rows.groupby(key)["last_offset"].cummax()
    rows = rows[rows["last_offset"] > rows.groupby(key)["seen"].shift().fillna(-1)]
    counted = rows["last_offset"] - rows["record_count"] + 1
    rows["first_offset"] = rows["offset"].fillna(counted).fillna(0).astype("int64")
    return rows[["fetch_time", "reader", *_WHERE, "first_offset", "last_offset"]]
