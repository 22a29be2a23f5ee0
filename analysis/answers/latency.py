"""Latency: how long answers take, how much of that is waiting by design, and which took longest.

Latency is what the capture's host saw, from the last byte of a request to the first of its
response. Quantiles are exact, over every answered request. Beside each stands the same net of wait:
without the time that a Fetch waited for data, and that a request waited for earlier ones of its
connection, which a broker serves one by one. JoinGroup and SyncGroup wait for other members, and
nothing is known of them net of that. `analysis.answers.waits` says how a wait is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

import pandas as pd
import pyarrow as pa

from analysis.answers.common import (
    QUANTILES,
    Tables,
    columns_of,
    endpoint,
    grouped,
    rows_by,
    shaped,
    text_lists,
)
from analysis.answers.waits import waits
from dissector.tables import EXCHANGES, TableColumn

_MS: Final = pa.float64()
_NET: Final = "the same, net of wait; null where that is not known of any"

COLUMNS: Final = (
    TableColumn("count", pa.int64(), "requests with an answer"),
    TableColumn("p50_ms", _MS, "median of the latency", "ms"),
    TableColumn("p95_ms", _MS, "its 0.95 quantile", "ms"),
    TableColumn("p99_ms", _MS, "its 0.99 quantile", "ms"),
    TableColumn("max_ms", _MS, "longest latency", "ms"),
    TableColumn("waited", pa.int64(), "requests that waited, by design or for earlier ones"),
    TableColumn("net_p50_ms", _MS, _NET, "ms"),
    TableColumn("net_p95_ms", _MS, _NET, "ms"),
    TableColumn("net_p99_ms", _MS, _NET, "ms"),
    TableColumn("net_max_ms", _MS, _NET, "ms"),
    TableColumn("slowest_packet", pa.int64(), "packet of the request slowest net of wait"),
)

SLOWEST_COLUMNS: Final = (
    *columns_of(EXCHANGES, "request_time", "client_id"),
    TableColumn("broker", pa.string(), "address and port of the broker"),
    *columns_of(EXCHANGES, "api", "api_version"),
    TableColumn("topics", pa.string(), "topics that it names"),
    TableColumn("net_ms", _MS, "latency net of wait", "ms"),
    *columns_of(EXCHANGES, "latency_ms"),
    TableColumn("poll_ms", _MS, "of that, waited for data, or for the rest of a group", "ms"),
    TableColumn("behind_ms", _MS, "of that, waited for earlier requests of the connection", "ms"),
    *columns_of(EXCHANGES, "in_flight", "connection_id", "correlation_id", "request_packet"),
)

OTHER_COLUMNS: Final = MappingProxyType({"--slowest N": SLOWEST_COLUMNS})


def latency(tables: Tables, *, by: Sequence[str] = ("api",), slowest: int = 0) -> pd.DataFrame:
    """Quantiles of the latency, in groups; those that took longest in total, net of wait, first.

    `by`: columns to group by (see `common`), which come first in the result. Then `COLUMNS`.
    `slowest`: if not 0, no groups but so many requests, the slowest net of wait first; the columns
    are `SLOWEST_COLUMNS`.
    Raises DissectorError for a column that does not exist.
    """
    rows = rows_by(tables["exchanges"].join(waits(tables)), tables, by)
    if slowest:
        return _slowest(rows, slowest)
    measured = ["latency_ms", "net_ms", "behind_ms", "poll_ms", "request_packet"]
    rows = rows[list(dict.fromkeys([*by, *measured]))]
    rows = rows[rows["latency_ms"].notna()]
    groups = grouped(rows.assign(waited=rows["behind_ms"] + rows["poll_ms"] > 0), by)
    found = groups.agg(
        count=("latency_ms", "size"),
        max_ms=("latency_ms", "max"),
        waited=("waited", "sum"),
        net_max_ms=("net_ms", "max"),
        total_ms=("net_ms", "sum"),
    )
    for name in ("latency_ms", "net_ms"):
        prefix = "" if name == "latency_ms" else "net_"
        for quantile in QUANTILES:
            found[f"{prefix}p{quantile * 100:.0f}_ms"] = groups[name].quantile(quantile)
    longest = rows.sort_values("net_ms", ascending=False, kind="stable")
    found["slowest_packet"] = grouped(longest, by)["request_packet"].first()
    found = found.reset_index().sort_values("total_ms", ascending=False, kind="stable")
    return shaped(found, COLUMNS, by)


def _slowest(rows: pd.DataFrame, count: int) -> pd.DataFrame:
    rows = rows.dropna(subset="latency_ms").nlargest(count, "net_ms")
    rows = rows.assign(broker=endpoint(rows, "broker"), topics=text_lists(rows["topics"]))
    return shaped(rows, SLOWEST_COLUMNS)
