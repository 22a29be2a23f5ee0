"""Rows of tables belong to one exchange, as docs/reference/output.md describes."""

from __future__ import annotations

from functools import cache

import duckdb
import pytest

import analysis
from tests.captures.recorded import CAPTURES

JOINED = (
    "errors", "batches", "decompressed_batches", "records", "partitions", "memberships",
    "transactions", "brokers", "clusters",
)  # fmt: skip


@cache
def connected(name: str) -> duckdb.DuckDBPyConnection:
    return analysis.connect(CAPTURES / f"{name}.pcap.zst")


def count(name: str, query: str) -> int:
    ((rows,),) = connected(name).execute(f"select count(*) {query}").fetchall()
    return int(rows)


@pytest.mark.parametrize("table", JOINED)
@pytest.mark.parametrize("name", ["kafka-0-10", "kafka-2-4", "kafka-4-transactions"])
def test_each_row_belongs_to_one_exchange(name: str, table: str) -> None:
    joined = f"from {table} as a join exchanges using (connection_id, correlation_id)"
    in_time = f"{joined} where a.time in (exchanges.request_time, exchanges.response_time)"
    assert count(name, in_time) == count(name, f"from {table}")


def test_the_times_are_necessary() -> None:
    joined = "from errors join exchanges using (connection_id, correlation_id)"
    assert count("kafka-2-4", joined) > count("kafka-2-4", "from errors")
