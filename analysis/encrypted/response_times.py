"""Response times of encrypted connections, in groups."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from analysis.columns import Column, resolved
from analysis.encrypted import BY, FILTERS
from analysis.encrypted.turns import SCHEMA, Turns
from analysis.export.parquet import TableFiles
from analysis.frames import frame
from analysis.input.filters import SHORT_FORMS, Filter
from analysis.input.passes import capture_files, open_pass
from analysis.sql.conditions import Condition
from analysis.sql.expressions import (
    By,
    column_names,
    grouped,
    literal,
    ms_between,
    not_negative,
    quantiles,
    sum_of_ms,
    with_columns,
)
from analysis.sql.intervals import create_function
from analysis.sql.query import arrow_table, select, shaped
from analysis.sql.row_order import register_numbered
from analysis.sql.stored import connect
from analysis.temporary import temporary_folder
from dissector.arguments import name_text
from dissector.capture import Paths
from dissector.errors import DissectorError
from dissector.tables.arrow import rows_where

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
    Column("slowest_capture", "string", "file of slowest_packet"),
    Column("sent_bytes", "int64", "payload bytes of clients in turns", "bytes"),
    Column("received_bytes", "int64", "payload bytes of brokers in turns", "bytes"),
    Column("client_rtt_ms", "double", "median round trip between capture and client", "ms"),
    Column("broker_rtt_ms", "double", "median round trip between capture and broker", "ms"),
)

ESSENTIAL: Final = ("p50_ms", "p99_ms", "max_ms", "turns")
USEFUL: Final = ("connections", "slowest_packet", "broker_rtt_ms", "client_rtt_ms")
"""Columns of a narrow terminal; see `Answer`."""


def checked(by: By, chosen: Filter | None = None) -> list[str]:
    """Names of the columns of `response_times`.

    Raises DissectorError for a wrong column, and for a filter by anything else than `FILTERS`.
    """
    _rows(by)
    for name in ("where", *SHORT_FORMS):
        if chosen and name not in FILTERS and getattr(chosen, name):
            raise DissectorError(f"encrypted connections do not show what --{name} selects")
    if chosen and chosen.has_broker_ids:
        raise DissectorError("encrypted connections do not show broker ids: use the address")
    return [*column_names(by), *(column.name for column in COLUMNS)]


def response_times(
    paths: Paths, *, by: By = BY, chosen: Filter | None = None,
    ports: Collection[int] | None = None, keylog: str | os.PathLike[str] | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Encrypted connections, in groups; the longest sum of response times first.

    `by`: columns of `connections`, client, broker, or an interval such as minute. `chosen`: only
    turns of these clients, brokers and times. `ports`: see `open_capture`. `keylog`: connections
    that it decrypts are left out. Raises CaptureError if the input cannot be read or has exported
    tables, and DissectorError for a wrong column or filter.
    """
    return frame(groups(paths, by, chosen, ports=ports, keylog=keylog)[0])


def groups(
    paths: Paths, by: By = BY, chosen: Filter | None = None, **options: Any
) -> tuple[pa.Table, str]:
    """The Arrow table of `response_times`; the filter, and the number of turns that it selected.

    `options`: those of `open_pass`.
    """
    checked(by, chosen)
    pipeline = open_pass(capture_files(paths), **options)
    with temporary_folder() as folder:
        file = Path(folder, "turns.parquet")
        with TableFiles({"turns": file}, {"turns": SCHEMA}) as files:
            turns = Turns(partial(files.add, "turns"))
            tables = pipeline.observe_packets(turns.observe, ["connections"])
        encrypted = rows_where(tables["connections"], pc.field("protocol") == "tls")
        with connect(folder) as connection:
            create_function(connection)
            register_numbered(connection, "connections", arrow_table("connections", encrypted))
            names = [name_text(name) for name in pipeline.captures]
            connection.register("captures", pa.table({"capture": range(len(names)), "file": names}))
            connection.register("clients", turns.clients())
            first = pc.min(tables["connections"]["first_time"]).cast(pa.int64()).as_py()
            chosen = (chosen or Filter()).starting(first)
            connection.register("selected_connections", _selected(encrypted, chosen))
            connection.execute(f"create view all_turns as {_TURNS.format(file=literal(str(file)))}")
            times = replace(chosen, client=(), broker=())
            connection.execute(f"create view turns as {_SELECTED.format(times=times.sql)}")
            rows = shaped(select(connection, _groups(by)), resolved(COLUMNS), by)
            counts = connection.execute(_COUNTS).fetchone() or ()
    selected, total = (f"{count:,}" for count in counts)
    zone = "; times in UTC" if chosen.since or chosen.until else ""
    return rows, f"Filter: {chosen.sql}: {selected} of {total} turns{zone}"


def _selected(connections: pa.Table, chosen: Filter) -> pa.Table:
    """The connections of the clients and brokers of a filter, which is one of exchanges."""
    chosen = replace(chosen, since="", until="")
    if not chosen:
        return connections.select(["connection_id"])
    rows = connections.append_column("client_id", pa.nulls(len(connections), pa.string()))
    condition = Condition(chosen.sql, chosen.names)
    selected = [condition(batch).select(["connection_id"]) for batch in rows.to_batches()]
    return pa.Table.from_batches(selected, connections.select(["connection_id"]).schema)


def _rows(by: By) -> str:
    """SQL for turns with the columns of their connections, and those of `by`."""
    return with_columns("turns", by, "connections", "request_time")


def _groups(by: By) -> str:
    """The query of `groups`."""
    slowest = "(latency_ms, -epoch_ns(request_time), connection_id)"
    return grouped(
        _rows(by), by, connections="count(distinct connection_id)", turns="count(latency_ms)",
        **quantiles("latency_ms"), max_ms="max(latency_ms)",
        slowest_packet=f"arg_max(request_packet, {slowest})",
        slowest_capture=f"arg_max(file, {slowest})",
        sent_bytes="coalesce(sum(sent_bytes), 0)",
        received_bytes="coalesce(sum(received_bytes), 0)",
        client_rtt_ms="median(client_rtt_ms)", broker_rtt_ms="median(broker_rtt_ms)",
        order=f"{sum_of_ms('latency_ms')} desc nulls last",
    )  # fmt: skip


_TURNS: Final = f"""
  select *, {not_negative(ms_between("request_time", "response_time"))} as latency_ms
  from read_parquet({{file}}) join clients using (stream) join captures using (capture)
  where connection_id in (select connection_id from connections)"""
"""SQL: the turns of clients of encrypted connections."""
_SELECTED: Final = """
  select * from connections semi join selected_connections using (connection_id)
  left join all_turns using (connection_id) where {times}"""
"""SQL: selected turns with the columns of their connections; a connection without turns has a row,
unless the filter has times."""
_COUNTS: Final = "select (select count(latency_ms) from turns), (select count(*) from all_turns)"
