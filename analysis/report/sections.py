"""The sections of a report: one per answer, with its charts.

Answers and charts query tables on disk (`analysis.sql.stored`). The memory for a section depends on
its contents, not on the number of exchanges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, TypeAlias

import duckdb
import pyarrow as pa

from analysis.answers import ANSWERS, Answer
from analysis.diagnosis.case import Case
from analysis.frames import frame
from analysis.report import answer_charts, chart_data, charts
from analysis.report.chart_elements import Chart, with_printable_names, with_theme, with_time_range
from analysis.report.topology_chart import topology_chart
from dissector.arrays import value

SLOWEST: Final = 20
"""Slowest requests that are listed."""


Draw: TypeAlias = Callable[[Any], Chart | None]
"""From rows, at least one, to a chart; None if none of them has what it shows."""
Data: TypeAlias = Callable[[duckdb.DuckDBPyConnection, chart_data.Span], chart_data.Rows]

CHARTS: Final[Mapping[str, Sequence[tuple[str, Draw, Data | None]]]] = {
    "latency": (
        ("Requests per second", charts.traffic, chart_data.traffic),
        ("p99 of the latency over time, including waits", charts.latency_over_time,
         chart_data.latency_over_time),
        ("Distribution of latency by API", charts.latency_distribution,
         lambda sql, _: chart_data.latency_distribution(sql)),
        ("p99 of the latency by client and broker", charts.clients_and_brokers,
         lambda sql, _: chart_data.clients_and_brokers(sql)),
    ),
    "throttle": (
        ("Throttle time in responses, by client", charts.throttle, chart_data.throttle),
    ),
    "errors": (("Errors over time", charts.errors, chart_data.errors),),
    "unanswered": (
        ("Unanswered requests by send time", charts.unanswered, chart_data.unanswered),
    ),
    "topology": (("Producers, topics, consumers", topology_chart, None),),
    "groups": (("Rebalances", answer_charts.rebalances, None),),
    "lag": (("Lag over time", charts.lag, chart_data.lag),),
    "delay": (("Delay from produce to first fetch", answer_charts.delay, None),),
    "producers": (
        ("Transactions", answer_charts.transactions,
         lambda sql, _: chart_data.transactions(sql)),
    ),
    "network": (("Median latency by client and broker", answer_charts.network, None),),
    "leadership": (("Leader changes", answer_charts.moves, None),),
    "batching": (
        ("Sizes of produced batches", charts.batch_sizes,
         lambda sql, _: chart_data.batch_sizes(sql)),
    ),
    "audit": (("Offsets written and read", answer_charts.offsets, None),),
}  # fmt: skip
"""By answer: titles of its charts, and functions of them and of their data; None: the answer."""


@value
class Section:
    """One answer with its charts."""

    answer: Answer
    rows: pa.Table
    charts: Sequence[tuple[str, dict[str, Any]]]
    """Titles and Vega-Lite of the charts that have data."""
    lists: Mapping[str, pa.Table] = field(default_factory=dict)
    """Further tables, by their title."""


def sections(
    sql: duckdb.DuckDBPyConnection, span: chart_data.Span | None, case: Case
) -> Iterator[Section]:
    """All sections, in the order of `ANSWERS`.

    `sql`: a connection with `ANALYSIS_TABLES`. `span`: the time range of the exchanges; None, for a
    capture without exchanges, gives no charts. `case`: has the answers that the diagnosis computed.
    """
    for answer in ANSWERS.values():
        rows = case.table(answer.name)
        section_charts: list[tuple[str, dict[str, Any]]] = []
        if span is not None:
            for title, draw, data in CHARTS.get(answer.name, ()):
                shown = frame(rows) if data is None else data(sql, span)
                if len(shown) and (chart := draw(shown)) is not None:
                    section_charts.append((title, _for_page(chart, span.edges)))
        lists = {}
        if answer.name == "latency" and len(rows):
            lists["The slowest requests, excluding waits"] = answer.arrow(sql, slowest=SLOWEST)
        yield Section(answer, rows, section_charts, lists)


def _for_page(chart: Chart, edges: tuple[float, float]) -> dict[str, Any]:
    """A chart as Vega-Lite, with the time range, the names and the colours of the page."""
    return with_theme(with_printable_names(with_time_range(chart.to_dict(), edges)))
