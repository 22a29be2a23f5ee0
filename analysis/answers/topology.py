"""Topology: which clients produce to each topic, and which consume from it.

    $ kafka-dissector topology captures/kafka-4-java.pcap.zst

**How to read it.** A row is a client of a topic, which produces, consumes or replicates. `groups`
are the groups for which it consumes.

**What to do.** Look for clients that should not be there, for topics without consumers, and for old
software: see `versions`. Ask the owners of a topic before you change it.

**How it is computed.** A request with three partitions of a topic counts as one request, with the
records of all three. Records that the broker refused are included; `audit` omits them. Fetched
records include transaction markers, which applications do not get, and aborted records, which they
get only with read_uncommitted. Followers that replicate have a replica id in their Fetch; consumers
have none. A Fetch does not contain its group, so `analysis.sql.record_flow` attributes connections
to groups.

**Limitations.** A consumer whose fetch session has no changes sends Fetches without partitions
(KIP-227), which are not counted. If the capture does not contain the name of a topic, its id is
listed.
"""

from __future__ import annotations

from typing import Final

from analysis.answers import ArrowTable, Tables, answer, select
from analysis.columns import Column, columns_of, first_and_last
from analysis.sql.expressions import grouped
from analysis.sql.record_flow import RECORD_FLOW

_KEY: Final = ("topic", "action", "client_id", "groups", "client", "software")


@answer(
    question="Which clients produce to each topic, and which consume from it?",
    place=5,
    tables=("partitions", "exchanges", "connections"),
    rows="Produce and Fetch requests",
    columns=(
        *columns_of("partitions", "topic"),
        Column("action", "string", "produces, consumes or replicates"),
        *columns_of("partitions", "client_id"),
        Column("groups", "string", "groups in which the client consumes, separated by commas"),
        Column("client", "string", "address of the client"),
        Column("software", "string", "name and version of the client's software, if known"),
        Column("connections", "int64", "connections that carry these requests"),
        Column("partitions", "int64", "partitions of the topic in these requests"),
        Column("requests", "int64", "requests that name the topic"),
        Column("records", "int64", "records transferred; null if no header has their count"),
        Column("bytes", "int64", "size of their batches", "bytes"),
        *first_and_last("request"),
    ),
    essential="topic action client_id groups records",
    useful="bytes client requests",
)
def topology(tables: Tables) -> ArrowTable:
    """A row for each topic, client and action, in order of topic and bytes."""
    query = grouped(
        RECORD_FLOW,
        _KEY,
        "topic, action desc, coalesce(sum(bytes), 0) desc, min(nth)",
        connections="count(distinct connection_id)",
        partitions="count(distinct partition)",
        requests="count(distinct (connection_id, correlation_id, time))",
        records="""case when coalesce(sum(bytes), 0) = 0 and count(error_code) > 0 then 0
          else sum(record_count) end""",
        bytes="coalesce(sum(bytes), 0)",
        first_time="min(time)",
        last_time="max(time)",
    )
    return select(tables, query)
