"""What charts are made of adds up to the capture, and does not grow with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import analysis
from analysis.report import bins
from analysis.sql.views import CaptureTables, views

CAPTURES = Path(__file__).parents[3] / "captures"
Make = Callable[..., None]
START = 1_700_000_000 * 10**9


@pytest.fixture(scope="module")
def errors() -> tuple[duckdb.DuckDBPyConnection, bins.Span, dict[str, Any]]:
    capture = CAPTURES / "kafka-4-quotas.pcap.zst"
    connection = analysis.connect(capture)
    span = bins.span(connection)
    assert span is not None
    return connection, span, analysis.load(capture)


Capture = tuple[duckdb.DuckDBPyConnection, bins.Span, dict[str, Any]]


def test_bins_add_up_to_the_capture(errors: Capture) -> None:
    connection, span, tables = errors
    exchanges = tables["exchanges"]
    traffic = bins.traffic(connection, span)
    assert sum(row["requests"] for row in traffic) == len(exchanges)
    assert sum(row["bytes"] for row in traffic) == (
        exchanges["request_bytes"].sum() + exchanges["response_bytes"].fillna(0).sum()
    )
    answered = exchanges["latency_ms"].notna().sum()
    for rows in (
        bins.latency_over_time(connection, span),
        bins.latency_distribution(connection),
        bins.clients_and_brokers(connection),
    ):
        assert sum(row["answers"] for row in rows) == answered
    throttled = bins.throttle(connection, span)
    assert sum(row["total_ms"] for row in throttled) == exchanges["throttle_time_ms"].sum()
    assert sum(row["count"] for row in bins.errors(connection, span)) == len(tables["errors"])
    produced = tables["batches"].query("api == 'Produce'")
    assert sum(row["batches"] for row in bins.batch_sizes(connection)) == len(produced)


def test_quantiles_are_exact(errors: Capture) -> None:
    connection, _, tables = errors
    answered = tables["exchanges"].dropna(subset=["latency_ms"])
    for row in bins.clients_and_brokers(connection):
        mine = answered[answered["client_id"] == row["client"]]["latency_ms"].to_numpy()
        assert row["p99_ms"] == pytest.approx(np.quantile(mine, 0.99))


def test_times_fall_into_their_bin(errors: Capture) -> None:
    connection, span, tables = errors
    rows = bins.traffic(connection, span)
    assert len({row["time"] for row in rows}) <= bins.BINS + 1
    first, last = span.edges
    times = tables["exchanges"]["request_time"].astype("int64") / 1e6
    for row in rows:
        assert first <= row["time"] < row["until"] <= last
        inside = ((times >= row["time"]) & (times < row["until"])).sum()
        assert inside == sum(each["requests"] for each in rows if each["time"] == row["time"])


def test_of_many_names_the_busiest_are_told_apart(made: Make) -> None:
    rows = [
        {"client_id": f"client-{number:03}", "broker_ip": f"10.0.0.{number}", "broker_port": 9092,
         "api": f"Api{number}", "latency_ms": 1.0, "throttle_time_ms": 1, "request_time": START,
         "response_time": START}
        for number in range(100)
        for _ in range(1 + (number >= 95))
    ]  # fmt: skip
    made(exchanges=rows)
    connection = views(CaptureTables("x.pcap"))
    span = bins.span(connection)
    assert span is not None
    throttled = bins.throttle(connection, span)
    assert len(throttled) == bins.NAMES + 1
    assert {f"client-{number:03}" for number in range(95, 100)} < {
        r["client_id"] for r in throttled
    }
    assert sum(row["responses"] for row in throttled) == len(rows)
    cells = bins.clients_and_brokers(connection)
    assert len({row["client"] for row in cells}) == bins.LINES + 1
    assert len({row["broker"] for row in cells}) == bins.LINES + 1


@given(st.integers(0, 10 * 365 * 24 * 3600 * 10**9))
def test_a_bin_is_wide_enough(length: int) -> None:
    width = bins.width(length / bins.BINS)
    assert width % 10**6 == 0
    assert width * bins.BINS >= length
    assert (24 * 3600 * 10**9) % width == 0 or width % (24 * 3600 * 10**9) == 0


def test_no_exchange_has_no_span(made: Make) -> None:
    made()
    connection = views(CaptureTables("x.pcap"))
    assert bins.span(connection) is None
    assert set(bins.totals(connection).values()) <= {0, None}
