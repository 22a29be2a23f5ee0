"""Latency: how long answers take, how much of that is waiting by design, and which took longest.

Latency is what the capture's host saw, from the last byte of a request to the first of its
response. Quantiles are exact, over every answered request. Beside each stands the same net of wait:
without the time that a Fetch waited for data, and that a request waited for earlier ones of its
connection, which a broker serves one by one. JoinGroup and SyncGroup wait for other members, and
nothing is known of them net of that. `analysis.sql.latency_breakdown` says how a wait is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from analysis.sql.expressions import columns_of, counted, endpoint, quantiles, rows_by, shaped
from analysis.sql.latency_breakdown import WAITED, WAITS
from analysis.sql.query import Tables, asking
from dissector.tables import EXCHANGES, TableColumn

if TYPE_CHECKING:
    import pandas as pd

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


def latency(
    tables: Tables, *, by: str | Sequence[str] = ("api",), slowest: int = 0
) -> pd.DataFrame:
    """Quantiles of the latency, in groups; those that took longest in total, net of wait, first.

    `by`: columns to group by (see `common`), which come first in the result. Then `COLUMNS`.
    `slowest`: if not 0, no groups but so many requests, the slowest net of wait first; the columns
    are `SLOWEST_COLUMNS`.
    Raises DissectorError for a column that does not exist.
    """
    answered = f"(from {WAITED} where latency_ms is not null)"
    rows = rows_by(answered, (*EXCHANGES.schema.names, *WAITS), by)
    with asking(tables, ("exchanges", "batches", "connections")) as ask:
        if slowest:
            return shaped(ask(_SLOWEST.format(rows=answered, count=slowest)), SLOWEST_COLUMNS)
        found = ask(
            counted(
                rows,
                by,
                "coalesce(sum(net_ms), 0) desc, min(nth)",
                count="count(*)",
                **quantiles("latency_ms"),
                max_ms="max(latency_ms)",
                waited="count(*) filter (where behind_ms + poll_ms > 0)",
                **quantiles("net_ms", "net_"),
                net_max_ms="max(net_ms)",
                slowest_packet="arg_min(request_packet, (coalesce(-net_ms, 1), nth))",
            )
        )
    return shaped(found, COLUMNS, by)


_SLOWEST: Final = f"""
  select * replace (array_to_string(topics, ', ') as topics), {endpoint("broker")} as broker
  from {{rows}} order by net_ms desc, nth limit {{count}}"""
