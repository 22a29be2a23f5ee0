"""Response times of encrypted connections, in groups."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from analysis.columns import Column, resolved
from analysis.encrypted import BY
from analysis.encrypted.turns import Turns
from analysis.frames import frame
from analysis.input.passes import capture_files, open_pass
from analysis.sql.databases import open_database
from analysis.sql.expressions import (
    By,
    column_names,
    grouped,
    quantiles,
    with_columns,
)
from analysis.sql.intervals import create_function
from analysis.sql.query import arrow_table, select, shaped
from analysis.sql.row_order import register_numbered
from dissector.capture import Paths

if TYPE_CHECKING:
    import pandas as pd

COLUMNS: Final = (
    Column("connections", "int64", "connections"),
    Column("turns", "int64", "turns: requests and responses, if the client waits for each one"),
    Column("p50_ms", "double", "median of the response time", "ms"),
    Column("p95_ms", "double", "0.95 quantile of the response time", "ms"),
    Column("p99_ms", "double", "0.99 quantile of the response time", "ms"),
    Column("max_ms", "double", "longest response time", "ms"),
    Column("slowest_packet", "int64", "number of the packet before the longest response time"),
    Column("sent_bytes", "int64", "payload bytes of clients in turns", "bytes"),
    Column("received_bytes", "int64", "payload bytes of brokers in turns", "bytes"),
    Column("client_rtt_ms", "double", "median round trip between capture and client", "ms"),
    Column("broker_rtt_ms", "double", "median round trip between capture and broker", "ms"),
)

ESSENTIAL: Final = ("p50_ms", "p99_ms", "max_ms", "turns")
USEFUL: Final = ("connections", "slowest_packet", "broker_rtt_ms", "client_rtt_ms")
"""Columns of a narrow terminal; see `Answer`."""


def checked(by: By) -> list[str]:
    """Names of the columns of `response_times`. Raises DissectorError for a wrong column."""
    _rows(by)
    return [*column_names(by), *(column.name for column in COLUMNS)]


def response_times(
    paths: Paths, *, by: By = BY, ports: Collection[int] | None = None,
    keylog: str | os.PathLike[str] | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Encrypted connections, in groups; the longest sum of response times first.

    `by`: columns of `connections`, client, broker, or an interval such as minute. `ports`: see
    `open_capture`. `keylog`: connections that it decrypts are left out. Raises CaptureError if the
    input cannot be read or has exported tables, and DissectorError for a wrong column.
    """
    return frame(groups(paths, by, ports=ports, keylog=keylog))


def groups(paths: Paths, by: By = BY, **options: Any) -> pa.Table:
    """The Arrow table of `response_times`. `options`: of `open_pass`."""
    rows, turns = _rows(by), Turns()
    pipeline = open_pass(capture_files(paths), **options)
    connections = pipeline.observe_packets(turns.observe, ["connections"])["connections"]
    query = grouped(
        rows, by, connections="count(distinct connection_id)", turns="count(latency_ms)",
        **quantiles("latency_ms"), max_ms="max(latency_ms)",
        slowest_packet="arg_max(request_packet, latency_ms)",
        sent_bytes="coalesce(sum(sent_bytes), 0)",
        received_bytes="coalesce(sum(received_bytes), 0)",
        client_rtt_ms="median(client_rtt_ms)", broker_rtt_ms="median(broker_rtt_ms)",
        order="sum(latency_ms) desc nulls last",
    )  # fmt: skip
    with open_database() as connection:
        register_numbered(connection, "connections", arrow_table("connections", connections))
        connection.register("turns", turns.table())
        create_function(connection)
        return shaped(select(connection, query), resolved(COLUMNS), by)


def _rows(by: By) -> str:
    """SQL for turns with the columns of their connections, and those of `by`."""
    return with_columns(_TURNS, by, "connections", "request_time")


_TURNS: Final = """(
  select * from connections left join turns using (connection_id) where protocol = 'tls')"""
