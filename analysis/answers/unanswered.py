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
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from analysis.sql.expressions import counted, ms, rows_by, shaped, words
from analysis.sql.latency_breakdown import GROUP_BARRIERS
from analysis.sql.query import Tables, asking
from dissector.tables import EXCHANGES, TIME, TableColumn

if TYPE_CHECKING:
    import pandas as pd

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
    tables: Tables, *, by: str | Sequence[str] = ("why", "api", "client_id", "broker")
) -> pd.DataFrame:
    """Requests without an answer, in groups; the largest first.

    `by`: columns to group by (see `common`), also ``why``; they come first in the result. Then
    `COLUMNS`, as far as they are not among them.
    Raises DissectorError for a column that does not exist.
    """
    query = counted(
        rows_by(EXPLAINED, (*EXCHANGES.schema.names, "why", "waited_ms"), by),
        by,
        "count(*) desc, min((request_time, nth))",
        why="arg_min(why, (request_time, nth))",
        requests="count(*)",
        connections="count(distinct connection_id)",
        longest_ms="max(waited_ms)",
        first_time="min(request_time)",
        last_time="max(request_time)",
        first_packet="arg_min(request_packet, (request_time, nth))",
    )
    with asking(tables, ("exchanges", "connections")) as ask:
        return shaped(ask(query), COLUMNS, by)


EXPLAINED: Final = f"""(
  select exchanges.*, {ms("request_end_time", "last_time")} as waited_ms,
    case when coalesce(client_lost_bytes, 0) + coalesce(broker_lost_bytes, 0) > 0 then 'loss'
      when coalesce(broker_packets, 0) = 0 then 'one_sided'
      when closed = 'rst' then 'reset'
      when closed = 'fin' and waited_ms >= greatest(coalesce(max_wait_ms, 0), {TIMEOUT_MS})
        and not coalesce(api in {words(GROUP_BARRIERS)}, false) then 'timeout'
      when closed = 'fin' then 'closed'
      else 'capture_end' end as why
  from exchanges left join connections using (connection_id) where status = 'unanswered')"""
"""SQL: the requests without an answer, with why, and how long their client waited."""
