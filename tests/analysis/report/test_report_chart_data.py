"""The data of charts adds up to the capture, and its size is bounded."""

from __future__ import annotations

import json
from datetime import UTC
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import vl_convert
from hypothesis import given
from hypothesis import strategies as st

import analysis
import dissector
from analysis.display.presentation import presented
from analysis.names.addresses import Names
from analysis.report import answer_charts, chart_data, charts
from analysis.report.answer_charts import PARTITIONS
from analysis.report.chart_elements import (
    COLOURS,
    PALETTE,
    colour_numbers,
    with_theme,
    with_time_range,
)
from analysis.report.page import FOLDER
from analysis.report.topology_chart import topology_chart
from analysis.sql.views import CaptureTables, views
from analysis.summary.counts import Summary
from tests.analysis.made_rows import START, Make
from tests.captures.recorded import CAPTURES


@pytest.fixture(scope="module")
def errors() -> tuple[duckdb.DuckDBPyConnection, chart_data.Span, dict[str, Any]]:
    capture = CAPTURES / "kafka-4-quotas.pcap.zst"
    connection = analysis.connect(capture)
    span = chart_data.span(connection)
    assert span is not None
    return connection, span, analysis.load(capture)


Capture = tuple[duckdb.DuckDBPyConnection, chart_data.Span, dict[str, Any]]


def test_rows_add_up_to_the_capture(errors: Capture) -> None:
    connection, span, tables = errors
    exchanges = tables["exchanges"]
    traffic = chart_data.traffic(connection, span)
    assert sum(row["requests"] for row in traffic) == len(exchanges)
    assert sum(row["bytes"] for row in traffic) == (
        exchanges["request_bytes"].sum() + exchanges["response_bytes"].fillna(0).sum()
    )
    responses = exchanges["latency_ms"].notna().sum()
    for rows in (
        chart_data.latency_over_time(connection, span),
        chart_data.latency_distribution(connection),
        chart_data.clients_and_brokers(connection),
    ):
        assert sum(row["responses"] for row in rows) == responses
    throttled = chart_data.throttle(connection, span)
    assert sum(row["total_ms"] for row in throttled) == exchanges["throttle_time_ms"].sum()
    assert sum(row["count"] for row in chart_data.errors(connection, span)) == len(tables["errors"])
    produced = tables["batches"].query("api == 'Produce'")
    assert sum(row["batches"] for row in chart_data.batch_sizes(connection)) == len(produced)


def test_quantiles_are_exact(errors: Capture) -> None:
    connection, _, tables = errors
    answered = tables["exchanges"].dropna(subset=["latency_ms"])
    for row in chart_data.clients_and_brokers(connection):
        latency = answered[answered["client_id"] == row["client"]]["latency_ms"].to_numpy()
        assert row["p99_ms"] == pytest.approx(np.quantile(latency, 0.99))


def test_times_fall_into_their_bin(errors: Capture) -> None:
    connection, span, tables = errors
    rows = chart_data.traffic(connection, span)
    assert len({row["time"] for row in rows}) <= chart_data.BINS + 1
    first, last = span.edges
    times = tables["exchanges"]["request_time"].astype("int64") / 1e6
    for row in rows:
        assert first <= row["time"] < row["until"] <= last
        inside = ((times >= row["time"]) & (times < row["until"])).sum()
        assert inside == sum(same["requests"] for same in rows if same["time"] == row["time"])


def test_only_the_busiest_names_are_kept(made: Make) -> None:
    rows = [
        {"client_id": f"client-{number:03}", "broker_ip": f"10.0.0.{number}", "broker_port": 9092,
         "api": f"Api{number}", "latency_ms": 1.0, "throttle_time_ms": 1, "request_time": START,
         "response_time": START}
        for number in range(100)
        for _ in range(1 + (number >= 95))
    ]  # fmt: skip
    made(exchanges=rows)
    connection = views(CaptureTables(dissector.open_capture("x.pcap")))
    span = chart_data.span(connection)
    assert span is not None
    throttled = chart_data.throttle(connection, span)
    assert len(throttled) == chart_data.NAMES + 1
    assert {f"client-{number:03}" for number in range(95, 100)} < {
        r["client_id"] for r in throttled
    }
    assert sum(row["responses"] for row in throttled) == len(rows)
    cells = chart_data.clients_and_brokers(connection)
    assert len({row["client"] for row in cells}) == chart_data.LINES + 1
    assert len({row["broker"] for row in cells}) == chart_data.LINES + 1


@pytest.mark.parametrize(("partitions", "note"), [
    (PARTITIONS - 1, ""),
    (PARTITIONS, "The 20 partitions with the most records. The table lists all."),
])  # fmt: skip
def test_the_note_of_a_chart_counts_its_rows(partitions: int, note: str) -> None:
    audit = pd.DataFrame(
        {"topic": "t", "partition": n, "action": "produces", "client_id": "p",
         "first_offset": 0, "last_offset": 9, "records": 10}
        for n in range(partitions)
    )  # fmt: skip
    chart = answer_charts.offsets(audit)
    assert chart is not None
    assert chart.to_dict()["title"]["text"] == note


def test_charts_have_the_names_of_brokers() -> None:
    names = Names()
    names.learn_brokers(pa.table({"broker_id": [1], "host": ["2001:db8::1"], "port": [9092]}))
    row = {"client": "app", "responses": 1, "p50_ms": 1.0, "p99_ms": 1.0, "errors": 0}
    path = {"client_id": "app", "requests": 1, "rtt_ms": 1.0, "broker_p50_ms": 1.0}
    broker = {"broker": "[2001:db8::1]:9092"}
    with presented(UTC, names):
        drawn = (
            charts.clients_and_brokers([row | broker]),
            answer_charts.network(pd.DataFrame([path | broker])),
        )
    for chart in drawn:
        assert chart is not None
        assert "[2001:db8::1]:9092 (id 1)" in json.dumps(chart.to_dict())


def test_an_address_of_ipv6_has_brackets(made: Make) -> None:
    row = {"client_id": "app", "broker_ip": "::1", "broker_port": 9092, "latency_ms": 1.0}
    made(exchanges=[row])
    connection = views(CaptureTables(dissector.open_capture("x.pcap")))
    (cell,) = chart_data.clients_and_brokers(connection)
    assert cell["broker"] == "[::1]:9092"


@given(st.integers(0, 10 * 365 * 24 * 3600 * 10**9))
def test_a_bin_is_wide_enough(length: int) -> None:
    width = chart_data.width(length / chart_data.BINS)
    assert width % 10**6 == 0
    assert width * chart_data.BINS >= length
    assert (24 * 3600 * 10**9) % width == 0 or width % (24 * 3600 * 10**9) == 0


@pytest.mark.parametrize("name", ["kafka-4-errors", "kafka-4-group-eager"])
def test_errors_are_those_of_the_summary(name: str) -> None:
    """Errors of normal operation do not count."""
    path = CAPTURES / f"{name}.pcap.zst"
    summary = Summary()
    summary.read(dissector.open_capture(path).stream(Summary.TABLES))
    count = sum(use.errors for use in summary.apis())
    assert count < sum(row["count"] for row in summary.errors())
    connection = analysis.connect(path)
    assert chart_data.totals(connection)["errors"] == count
    assert sum(row["errors"] for row in chart_data.clients_and_brokers(connection)) == count


def test_a_capture_without_exchanges_has_no_span(made: Make) -> None:
    made()
    connection = views(CaptureTables(dissector.open_capture("x.pcap")))
    assert chart_data.span(connection) is None
    assert set(chart_data.totals(connection).values()) <= {0, None}


@given(st.lists(st.text(max_size=5), unique=True, max_size=12))
def test_a_name_has_its_colour_in_every_report(names: list[str]) -> None:
    fixed = ["Fetch", "Produce"]
    numbers = colour_numbers([*fixed, *names])
    assert [numbers[name] for name in fixed] == [1, 0]
    assert set(numbers.values()) <= set(range(COLOURS))
    assert len(set(numbers.values())) == min(len(set(fixed + names)), COLOURS)
    for name in names:  # on its own, and with names that come later
        alone = colour_numbers([name])[name]
        others = [number for each, number in numbers.items() if each != name]
        assert numbers[name] == alone or alone in others


def test_charts_have_their_colours_in_notebooks_and_on_the_page() -> None:
    connection = analysis.connect(CAPTURES / "kafka-4-quotas.pcap.zst")
    span = chart_data.span(connection)
    assert span is not None
    throttle = charts.throttle(chart_data.throttle(connection, span))
    topology = topology_chart(analysis.topology(connection))
    assert throttle is not None
    assert topology is not None
    style = (FOLDER / "page.css").read_text()
    for chart in (throttle, topology):
        drawn = vl_convert.vegalite_to_svg(chart.to_dict())
        used = [number for number, colour in enumerate(PALETTE) if colour in drawn]
        assert len(used) > 1
        assert "var(" not in drawn
        themed = json.dumps(with_theme(chart.to_dict()))
        assert all(f'"var(--c{number})"' in themed for number in used)
    for number, colour in enumerate(PALETTE):
        assert f"--c{number}: {colour};" in style


def test_only_marks_that_extend_over_time_are_clipped() -> None:
    """Points at an edge are whole: the rows of a chart are those between its edges."""
    point = {"time": 1, "reader": "g / t 0", "lag": 5}
    bar = {"time": 1, "until": 2, "error": "E", "count": 3}
    for chart, is_clipped in ((charts.lag([point]), False), (charts.errors([bar]), True)):
        assert chart is not None
        drawn = with_time_range(chart.to_dict(), (1, 2))
        assert drawn["transform"]
        assert drawn["mark"].get("clip", False) == is_clipped


@pytest.mark.parametrize(("lags", "domain"), [((-3, 5), [-3, 5]), ((2, 5), [0, 5])])
def test_the_axis_of_the_lag_has_all_rows(lags: tuple[int, int], domain: list[int]) -> None:
    rows = [{"time": n, "reader": "g / t 0", "lag": lag} for n, lag in enumerate(lags)]
    chart = charts.lag(rows)
    assert chart is not None
    assert chart.to_dict()["encoding"]["y"]["scale"]["domain"] == domain
