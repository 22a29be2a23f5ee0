"""Throttling: who was told to wait because of a quota, for how long, and whether it did.

A broker that enforces a quota tells the time in its response (KIP-13, KIP-124, KIP-599). Since
KIP-219 the response comes at once, and it is for the client to send nothing on that connection
until the time has passed; a broker does not read what comes earlier, so that a request which did
not wait looks slow. Before that version of an API, a broker held the response back instead, and
there was nothing for the client to honour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import pandas as pd
import pyarrow as pa

from analysis.answers.common import Tables, counted, exchanges_by, milliseconds, shaped
from dissector.tables import TIME, TableColumn

COLUMNS: Final = (
    TableColumn("responses", pa.int64(), "responses that tell a throttle time"),
    TableColumn("total_ms", pa.int64(), "sum of their throttle times", "ms"),
    TableColumn("longest_ms", pa.int64(), "longest of them", "ms"),
    TableColumn("honoured", pa.int64(), "the connection's next request came after the time"),
    TableColumn("early", pa.int64(), "it came before the time had passed"),
    TableColumn("earliest_ms", pa.float64(), "by how much at most; null where none did", "ms"),
    TableColumn("held", pa.int64(), "the broker itself held the response for the time"),
    TableColumn("last", pa.int64(), "no request came after it in the capture"),
    TableColumn("first_time", TIME, "first of the responses"),
    TableColumn("last_time", TIME, "last of the responses"),
)

TOLERANCE_MS: Final = 1
"""Clients count in whole milliseconds: one may begin its wait up to that much before its clock."""

CLIENT_WAITS_SINCE: Final[Mapping[str, int]] = MappingProxyType(
    {
        "Produce": 6, "Fetch": 8, "ListOffsets": 3, "Metadata": 6, "OffsetCommit": 4,
        "OffsetFetch": 4, "FindCoordinator": 2, "JoinGroup": 3, "Heartbeat": 2, "LeaveGroup": 2,
        "SyncGroup": 2, "DescribeGroups": 2, "ListGroups": 2, "ApiVersions": 2, "CreateTopics": 3,
        "DeleteTopics": 2, "DeleteRecords": 1, "InitProducerId": 1, "AddPartitionsToTxn": 1,
        "AddOffsetsToTxn": 1, "EndTxn": 1, "TxnOffsetCommit": 1, "DescribeConfigs": 2,
        "AlterConfigs": 1, "AlterReplicaLogDirs": 1, "DescribeLogDirs": 1, "CreatePartitions": 1,
        "CreateDelegationToken": 1, "RenewDelegationToken": 1, "ExpireDelegationToken": 1,
        "DescribeDelegationToken": 1, "DeleteGroups": 1,
    }
)  # fmt: skip
"""From which version on the client waits by itself (KIP-219); in later APIs it always did."""


def throttle(tables: Tables, *, by: Sequence[str] = ("client_id", "broker", "api")) -> pd.DataFrame:
    """Responses that told a throttle time, in groups; those with the longest total first.

    `by`: columns to group by (see `common`), which come first in the result. Then `COLUMNS`.
    Raises DissectorError for a column that does not exist.
    """
    rows = exchanges_by(tables, by)
    rows = rows[rows["throttle_time_ms"].fillna(0) > 0]
    rows = _judged(rows, tables["exchanges"])
    found = counted(
        rows,
        by,
        responses=("throttle_time_ms", "size"),
        total_ms=("throttle_time_ms", "sum"),
        longest_ms=("throttle_time_ms", "max"),
        honoured=("honoured", "sum"),
        early=("early", "sum"),
        earliest_ms=("early_ms", "max"),
        held=("held", "sum"),
        last=("last", "sum"),
        first_time=("response_time", "min"),
        last_time=("response_time", "max"),
    )
    return shaped(found.sort_values("total_ms", ascending=False, kind="stable"), COLUMNS, by)


def _judged(rows: pd.DataFrame, exchanges: pd.DataFrame) -> pd.DataFrame:
    """Throttled responses, with whether each was honoured, early, held or last, and early_ms."""
    waited = _next_request(rows, exchanges)
    early_ms = rows["throttle_time_ms"].astype("float64") - waited
    since = rows["api"].map(CLIENT_WAITS_SINCE).fillna(0)
    held = (rows["api_version"] < since) & (rows["latency_ms"] >= rows["throttle_time_ms"])
    held = held.fillna(False).astype("bool")
    early = (early_ms > TOLERANCE_MS) & ~held
    last = waited.isna() & ~held
    return rows.assign(
        held=held,
        early=early,
        last=last,
        honoured=~(held | early | last),
        early_ms=early_ms.where(early),
    )


def _next_request(rows: pd.DataFrame, exchanges: pd.DataFrame) -> pd.Series[float]:
    """From the end of each response to the next request of its connection, in ms; NaN for none."""
    asked = exchanges[["connection_id", "request_time"]].dropna()
    asked = asked.sort_values("request_time", kind="stable")
    ends = rows[["connection_id", "response_end_time"]].dropna().sort_values("response_end_time")
    found = pd.merge_asof(
        ends.reset_index(),
        asked,
        left_on="response_end_time",
        right_on="request_time",
        by="connection_id",
        direction="forward",
        allow_exact_matches=False,
    ).set_index("index")
    return milliseconds(found["request_time"] - found["response_end_time"]).reindex(rows.index)
