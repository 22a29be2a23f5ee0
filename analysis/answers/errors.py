"""Errors: which codes came, for what and whom, since when, and whether the client may try again.

A row of the table `errors` is an error code anywhere in a response; here they are counted. Not
every code is a fault: COORDINATOR_LOAD_IN_PROGRESS or MEMBER_ID_REQUIRED belong to how clients
start, and a retriable one that stops is mostly no more than a move of a leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd
import pyarrow as pa

from analysis.answers.common import Tables, counted, packets, rows_by, shaped
from dissector.tables import TIME, TableColumn

COLUMNS: Final = (
    TableColumn("error_code", pa.int16(), "the code; the first where a group has several"),
    TableColumn("error", pa.string(), "its name"),
    TableColumn("retriable", pa.bool_(), "whether Kafka's clients try again"),
    TableColumn("count", pa.int64(), "how often it came"),
    TableColumn("responses", pa.int64(), "responses that have it"),
    TableColumn("clients", pa.int64(), "addresses of clients that got it"),
    TableColumn("partitions", pa.int64(), "partitions that it came for; 0 where for none"),
    TableColumn("first_time", TIME, "first of the responses"),
    TableColumn("last_time", TIME, "last of the responses"),
    TableColumn("first_packet", pa.int64(), "packet of the first response"),
    TableColumn("message", pa.string(), "first that a broker says beside it"),
)


def errors(
    tables: Tables, *, by: Sequence[str] = ("error", "api", "topic", "client_id")
) -> pd.DataFrame:
    """Error codes that are not 0, in groups; the most frequent first.

    `by`: columns of the table `errors` to group by, or broker, client, software; they come first in
    the result. Then `COLUMNS`, as far as they are not among them.
    Raises DissectorError for a column that does not exist.
    """
    rows = rows_by(tables["errors"], tables, by)
    rows = rows.sort_values("time", kind="stable")
    place = rows["topic"] + "-" + rows["partition"].astype("str")
    rows = rows.assign(
        response=packets(rows, tables["exchanges"], "response_packet"),
        place=place.where(rows["topic"].notna() & rows["partition"].notna()),
    )
    found = counted(
        rows,
        by,
        error_code=("error_code", "first"),
        error=("error", "first"),
        retriable=("retriable", "first"),
        count=("path", "size"),
        responses=("response", "nunique"),
        clients=("client_ip", "nunique"),
        partitions=("place", "nunique"),
        first_time=("time", "min"),
        last_time=("time", "max"),
        first_packet=("response", "first"),
        message=("error_message", "first"),
    )
    return shaped(found.sort_values("count", ascending=False, kind="stable"), COLUMNS, by)
