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
from analysis.diagnosis.run import DIAGNOSIS_TABLES
from analysis.frames import frame
from analysis.report import answer_charts, chart_data, charts
from analysis.report.chart_elements import (
    Chart,
    with_printable_names,
    with_theme,
    with_time_range,
)
from analysis.report.topology_chart import topology_chart
from dissector.arrays import value

TABLES: Final = tuple(
    dict.fromkeys([*DIAGNOSIS_TABLES, *(t for answer in ANSWERS.values() for t in answer.tables)])
)
"""Tables that a report needs."""


SLOWEST: Final = 20
"""Slowest requests that are listed."""


@value
class ChartInput:
    """The input of the charts of a section."""

    sql: duckdb.DuckDBPyConnection
    span: chart_data.Span
    answer: pa.Table


Draw: TypeAlias = Callable[[ChartInput], Chart | None]

CHARTS: Final[Mapping[str, Sequence[tuple[str, Draw]]]] = {
    "latency": (
        ("Requests per second", lambda e: charts.traffic(chart_data.traffic(e.sql, e.span))),
        (
            "p99 of the latency over time, including waits",
            lambda e: charts.latency_over_time(chart_data.latency_over_time(e.sql, e.span)),
        ),
        (
            "Distribution of latency by API",
            lambda e: charts.latency_distribution(chart_data.latency_distribution(e.sql)),
        ),
        (
            "p99 of the latency by client and broker",
            lambda e: charts.clients_and_brokers(chart_data.clients_and_brokers(e.sql)),
        ),
    ),
    "throttle": (
        (
            "Throttle time in responses, by client",
            lambda e: charts.throttle(chart_data.throttle(e.sql, e.span)),
        ),
    ),
    "errors": (
        ("Errors over time", lambda e: charts.errors(chart_data.errors(e.sql, e.span))),
    ),
    "unanswered": (
        (
            "Unanswered requests by send time",
            lambda e: charts.unanswered(chart_data.unanswered(e.sql, e.span)),
        ),
    ),
    "topology": (("Producers, topics, consumers", lambda e: topology_chart(frame(e.answer))),),
    "groups": (("Rebalances", lambda e: answer_charts.rebalances(frame(e.answer))),),
    "lag": (
        ("Lag over time", lambda e: charts.lag(chart_data.lag(e.sql, e.span))),
    ),
    "delay": (
        ("Delay from produce to first fetch", lambda e: answer_charts.delay(frame(e.answer))),
    ),
    "producers": (
        ("Transactions", lambda e: answer_charts.transactions(chart_data.transactions(e.sql))),
    ),
    "network": (
        ("Median latency by client and broker", lambda e: answer_charts.network(frame(e.answer))),
    ),
    "leadership": (("Leader changes", lambda e: answer_charts.moves(frame(e.answer))),),
    "batching": (
        ("Sizes of produced batches", lambda e: charts.batch_sizes(chart_data.batch_sizes(e.sql))),
    ),
    "audit": (("Offsets written and read", lambda e: answer_charts.offsets(frame(e.answer))),),
}  # fmt: skip
"""By answer: titles and functions of its charts."""


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

    `sql`: a connection with `TABLES`. `span`: the time range of the exchanges; None, for a capture
    without exchanges, gives no charts. `case`: has the answers that the diagnosis computed.
    """
    for answer in ANSWERS.values():
        rows = case.table(answer.name)
        section_charts: list[tuple[str, dict[str, Any]]] = []
        if span is not None:
            chart_input = ChartInput(sql, span, rows)
            all_charts = ((title, draw(chart_input)) for title, draw in CHARTS.get(answer.name, ()))
            section_charts = [
                (title, _for_page(chart, span.edges))
                for title, chart in all_charts
                if chart is not None
            ]
        lists = {}
        if answer.name == "latency" and len(rows):
            lists["The slowest requests, excluding waits"] = answer.arrow(sql, slowest=SLOWEST)
        yield Section(answer, rows, section_charts, lists)


def _for_page(chart: Chart, edges: tuple[float, float]) -> dict[str, Any]:
    """A chart as Vega-Lite, with the time range, the names and the colours of the page."""
    return with_theme(with_printable_names(with_time_range(chart.to_dict(), edges)))
