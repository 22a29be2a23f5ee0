"""Helpers of the tests of answers: committed captures, made rows, logs of brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import duckdb
import pandas as pd
import pyarrow as pa

import analysis
import dissector
from analysis.answers import ANSWERS, Tables
from analysis.frames import frame
from analysis.sql.latency_breakdown import PART_NAMES, exchanges_with_parts
from analysis.sql.query import arrow_table, connected, no_tables, select
from analysis.sql.row_order import row_numbers
from dissector.tables import TABLES
from tests.captures.recorded import CAPTURES
from tools.record.kafka.truth import read

ANSWER_TABLES: Final = tuple(
    dict.fromkeys(
        name
        for answer in ANSWERS.values()
        for declared in (answer, *answer.variants)
        for name in declared.tables
    )
)
"""The tables of all answers with any options."""
EMPTY: Final = {**no_tables(TABLES)}
"""The tables of an empty capture."""


def path_of(name: str) -> Path:
    """The file of a committed capture."""
    return next(CAPTURES.glob(f"{name}.pcap*"))


@cache
def capture(name: str, tables: tuple[str, ...] = ()) -> Tables:
    """The tables of a committed capture: the default tables, or those in `tables`."""
    return analysis.load(path_of(name), tables or None)


@contextmanager
def opened(*names: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with tables of committed captures, for several answers: to convert and order
    tables takes longer than most answers."""
    tables = dissector.open_capture([path_of(name) for name in names]).tables(ANSWER_TABLES)
    with connected(tables, ANSWER_TABLES) as connection:
        yield connection


def broker_log(name: str) -> pd.DataFrame:
    """The broker's request log of a capture, a row for each request."""
    rows = read(name)
    return pd.DataFrame([row for row in rows if row["source"] == "broker"])


def printed(name: str, client_id: str, event: str, kind: str) -> dict[str, str]:
    """The settings or metrics that a client of a recording printed."""
    rows = read(name)
    return next(r[kind] for r in rows if r.get("event") == event and r["client_id"] == client_id)


def made(**tables: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Tables of made rows; a column that a row has not is null.

    They are those of Arrow: to convert frames takes longer than most answers.
    """
    return EMPTY | {
        name: pa.Table.from_pylist(rows, TABLES[name].schema) for name, rows in tables.items()
    }


def latency_parts(tables: Tables) -> pd.DataFrame:
    """The parts of the latency of each of the `exchanges`, in their order."""
    query = f"select {', '.join(PART_NAMES)} from {exchanges_with_parts()} order by nth"
    with connected(tables, ("exchanges", "batches", "connections")) as connection:
        rows = frame(select(connection, query))
        exchanges = arrow_table("exchanges", tables["exchanges"])
        numbers = row_numbers(connection, "exchanges", exchanges)
    return rows.take(numbers.to_numpy()).reset_index(drop=True)
