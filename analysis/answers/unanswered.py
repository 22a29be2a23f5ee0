"""Unanswered: which requests never got an answer, and why, as far as a capture can tell.

A Produce with acks=0 wants none, and is not among them. Why:

    loss         the capture misses bytes of the connection: the answer may have come
    one_sided    it has no packet of the broker's on this connection
    reset        the connection was reset
    timeout      the client closed it after it had waited for as long as a timeout takes
    closed       either side closed it earlier: a client that stops, a broker that goes away
    capture_end  the connection was open when the capture ended
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa

from analysis.answers.common import Tables, counted, milliseconds, rows_by, shaped
from analysis.answers.waits import GROUP_WAITS
from dissector.tables import TIME, TableColumn

COLUMNS: Final = (
    TableColumn("why", pa.string(), "loss, one_sided, reset, timeout, closed or capture_end"),
    TableColumn("requests", pa.int64(), "requests without an answer"),
    TableColumn("connections", pa.int64(), "connections that they were on"),
    TableColumn("longest_ms", pa.float64(), "longest wait, to the connection's last packet", "ms"),
    TableColumn("first_time", TIME, "first of the requests"),
    TableColumn("last_time", TIME, "last of the requests"),
    TableColumn("first_packet", pa.int64(), "packet of the first request"),
)

TIMEOUT_MS: Final = 1000
"""The shortest wait that is taken for a timeout: those of clients are set in seconds."""


def unanswered(
    tables: Tables, *, by: Sequence[str] = ("why", "api", "client_id", "broker")
) -> pd.DataFrame:
    """Requests without an answer, in groups; the largest first.

    `by`: columns to group by (see `common`), also ``why``; they come first in the result. Then
    `COLUMNS`, as far as they are not among them.
    Raises DissectorError for a column that does not exist.
    """
    rows = tables["exchanges"]
    rows = _explained(rows[rows["status"] == "unanswered"], tables["connections"])
    rows = rows_by(rows, tables, by)
    found = counted(
        rows.sort_values("request_time", kind="stable"),
        by,
        why=("why", "first"),
        requests=("status", "size"),
        connections=("connection_id", "nunique"),
        longest_ms=("waited_ms", "max"),
        first_time=("request_time", "min"),
        last_time=("request_time", "max"),
        first_packet=("request_packet", "first"),
    )
    return shaped(found.sort_values("requests", ascending=False, kind="stable"), COLUMNS, by)


def _explained(rows: pd.DataFrame, connections: pd.DataFrame) -> pd.DataFrame:
    """The rows, with why and waited_ms."""
    ends = connections.set_index("connection_id").reindex(rows["connection_id"])
    ends = ends.set_axis(rows.index)
    waited = milliseconds(ends["last_time"] - rows["request_end_time"])
    patience = rows["max_wait_ms"].astype("float64").fillna(0).clip(lower=TIMEOUT_MS)
    lost = ends["client_lost_bytes"].fillna(0) + ends["broker_lost_bytes"].fillna(0)
    whys = {
        "loss": lost > 0,
        "one_sided": ends["broker_packets"].fillna(0) == 0,
        "reset": ends["closed"] == "rst",
        "timeout": (ends["closed"] == "fin")
        & (waited >= patience)
        & ~rows["api"].isin(GROUP_WAITS),
        "closed": ends["closed"] == "fin",
    }
    tests = [test.to_numpy(np.bool_, na_value=False) for test in whys.values()]
    why = np.select(tests, list(whys), "capture_end")
    return rows.assign(why=pd.Series(why, rows.index, dtype="str"), waited_ms=waited)
