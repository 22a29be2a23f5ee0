"""Throttling: who was told to wait because of a quota, for how long, and whether it did.

A broker that enforces a quota tells the time in its response (KIP-13, KIP-124, KIP-599). Since
KIP-219 the response comes at once, and it is for the client to send nothing on that connection
until the time has passed; a broker does not read what comes earlier, so that a request which did
not wait looks slow. Before that version of an API, a broker held the response back instead, and
there was nothing for the client to honour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from analysis.sql.expressions import counted, mapped, ms, rows_by, shaped
from analysis.sql.query import Tables, asking
from dissector.protocol import registry
from dissector.tables import EXCHANGES, TIME, TableColumn

if TYPE_CHECKING:
    import pandas as pd

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

_CLIENT_THROTTLES: Final = mapped(
    "api", {api.name: api.client_throttles[0] for api in registry.all_apis()}
)
"""SQL: the first version in which the client waits by itself (KIP-219)."""


def throttle(
    tables: Tables, *, by: str | Sequence[str] = ("client_id", "broker", "api")
) -> pd.DataFrame:
    """Responses that told a throttle time, in groups; those with the longest total first.

    `by`: columns to group by (see `common`), which come first in the result. Then `COLUMNS`.
    Raises DissectorError for a column that does not exist.
    """
    rows = rows_by(_JUDGED, EXCHANGES.schema.names, by)
    query = counted(
        rows,
        by,
        "total_ms desc, min(nth)",
        responses="count(*)",
        total_ms="sum(throttle_time_ms)",
        longest_ms="max(throttle_time_ms)",
        honoured="count(*) filter (not (held or early or last))",
        early="count(*) filter (early)",
        earliest_ms="max(early_ms) filter (early)",
        held="count(*) filter (held)",
        last="count(*) filter (last)",
        first_time="min(response_time)",
        last_time="max(response_time)",
    )
    with asking(tables, ("exchanges", "connections")) as ask:
        return shaped(ask(query), COLUMNS, by)


_JUDGED: Final = f"""(
  with throttled as (from exchanges where throttle_time_ms > 0),
  asked as (
    select connection_id, request_time as next_time from exchanges
    where connection_id in (select connection_id from throttled) and request_time is not null)
  select throttled.*,
    throttle_time_ms - {ms("response_end_time", "next_time")} as early_ms,
    coalesce(api_version < coalesce({_CLIENT_THROTTLES}, 0)
      and latency_ms >= throttle_time_ms, false) as held,
    coalesce(early_ms > {TOLERANCE_MS}, false) and not held as early,
    early_ms is null and not held as last
  from throttled asof left join asked
    on throttled.connection_id = asked.connection_id and response_end_time < next_time)"""
"""SQL: throttled responses, with how much too early the connection's next request came, and whether
each was held, early or the last; else it was honoured."""
