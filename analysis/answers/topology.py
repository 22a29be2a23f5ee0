"""Topology: who produces to each topic, and who consumes from it.

Counted by partition: a request with three partitions of a topic is one request, and the records of
all three. Followers that replicate are told from consumers by the replica id of their Fetch. A
consumer whose session names nothing new sends Fetches without partitions (KIP-227), which are not
among its requests.
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
    *columns_of(PARTITIONS, "topic"),
    TableColumn("action", pa.string(), "produces, consumes or replicates"),
    *columns_of(PARTITIONS, "client_id"),
    TableColumn("groups", pa.string(), "groups that the client consumes in, by comma"),
    TableColumn("client", pa.string(), "address of the client"),
    TableColumn("software", pa.string(), "name and version of its software, if it tells"),
    TableColumn("connections", pa.int64(), "connections that it uses for that"),
    TableColumn("partitions", pa.int64(), "partitions of the topic that it named"),
    TableColumn("requests", pa.int64(), "requests that name the topic"),
    TableColumn("records", pa.int64(), "records that moved; null where no header tells"),
    TableColumn("bytes", pa.int64(), "bytes of their batches", "bytes"),
    TableColumn("first_time", TIME, "first of the requests"),
    TableColumn("last_time", TIME, "last of the requests"),
)

_KEY: Final = ("topic", "action", "client_id", "groups", "client", "software")


def topology(tables: Tables) -> pd.DataFrame:
    """A row for each topic, client and what it does, in order of topic and bytes.

    The columns are `COLUMNS`.
    """
    query = counted(
        MOVERS,
        _KEY,
        "topic, action desc, coalesce(sum(bytes), 0) desc, min(nth)",
        connections="count(distinct connection_id)",
        partitions="count(distinct partition)",
        requests="count(distinct (connection_id, correlation_id, time))",
        records="sum(record_count)",
        bytes="coalesce(sum(bytes), 0)",
        first_time="min(time)",
        last_time="max(time)",
    )
    with asking(tables, ("partitions", "exchanges", "connections")) as ask:
        return shaped(ask(query), COLUMNS)
