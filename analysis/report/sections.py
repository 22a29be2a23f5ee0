"""The sections of a report: a section an answer, with the charts that go with it.

Answers and charts query tables on disk (`analysis.sql.stored`). The memory that a section takes
depends on what it shows, not on the number of exchanges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import duckdb
import pandas as pd

from analysis.answers import ANSWERS, Answer
from analysis.report import answer_charts, bins, charts
from analysis.report.flow import flow
from analysis.report.marks import Chart, over

TABLES: Final = tuple({name: None for answer in ANSWERS.values() for name in answer.tables})
"""What a report needs."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the charts of a section are made of."""

    sql: duckdb.DuckDBPyConnection
    span: bins.Span
    answer: pd.DataFrame


Draw: TypeAlias = Callable[[Evidence], Chart | None]

CHARTS: Final[Mapping[str, Sequence[tuple[str, Draw]]]] = {
    "latency": (
        ("Requests in a second", lambda e: charts.traffic(bins.traffic(e.sql, e.span))),
        (
            "p99 of the latency over time, waits included",
            lambda e: charts.latency_over_time(bins.latency_over_time(e.sql, e.span)),
        ),
        (
            "How the latencies of each API are spread",
            lambda e: charts.latency_distribution(bins.latency_distribution(e.sql)),
        ),
        (
            "p99 of the latency by client and broker",
            lambda e: charts.clients_and_brokers(bins.clients_and_brokers(e.sql)),
        ),
    ),
    "throttle": (
        (
            "Throttle time that responses tell, by client",
            lambda e: charts.throttle(bins.throttle(e.sql, e.span)),
        ),
    ),
    "errors": (
        ("Errors over time", lambda e: charts.errors(bins.errors(e.sql, e.span))),
    ),
    "unanswered": (
        ("When they were sent", lambda e: charts.unanswered(bins.unanswered(e.sql, e.span))),
    ),
    "topology": (("Producers, topics, consumers", lambda e: flow(e.answer)),),
    "groups": (("Rebalances", lambda e: answer_charts.rebalances(e.answer)),),
    "lag": (
        ("Lag over time", lambda e: charts.lag(bins.lag(e.sql, e.span))),
    ),
    "delay": (("From produce to the first fetch", lambda e: answer_charts.delay(e.answer)),),
    "producers": (
        ("Transactions", lambda e: answer_charts.transactions(bins.transactions(e.sql))),
    ),
    "network": (
        ("Of a typical answer, by client and broker", lambda e: answer_charts.network(e.answer)),
    ),
    "leadership": (("Moves of leaders", lambda e: answer_charts.moves(e.answer)),),
    "batching": (
        ("Sizes of produced batches", lambda e: charts.batch_sizes(bins.batch_sizes(e.sql))),
    ),
    "audit": (("Offsets written and read", lambda e: answer_charts.offsets(e.answer)),),
}  # fmt: skip
"""For each answer that has any: title and maker of its charts."""


@dataclass(frozen=True, slots=True)
class Section:
    """One answer, ready to be shown."""

    answer: Answer
    rows: pd.DataFrame
    charts: Sequence[tuple[str, dict[str, Any]]]
    """Title and Vega-Lite of those that have something to draw."""


def sections(sql: duckdb.DuckDBPyConnection, span: bins.Span | None) -> Iterator[Section]:
    """Every answer, in the order of `ANSWERS`.

    `sql`: a connection with `TABLES`. `span`: from when to when the exchanges are; None: without
    any there are no charts.
    """
    for answer in ANSWERS.values():
        rows = answer.function(sql)
        drawn: list[tuple[str, dict[str, Any]]] = []
        if span is not None:
            evidence = Evidence(sql, span, rows)
            made = ((title, draw(evidence)) for title, draw in CHARTS.get(answer.name, ()))
            drawn = [
                (title, over(chart.to_dict(), span.edges))
                for title, chart in made
                if chart is not None
            ]
        yield Section(answer, rows, drawn)
