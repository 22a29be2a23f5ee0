"""The sections of a report: a section an answer, with the charts that go with it.

All tables that the answers need are read in one pass, into mapped files (`analysis.sql`); charts
come from SQL over these, answers from DataFrames, of which no more are held than the answers that
are still to come need. That is what takes memory: some 2 kB an exchange, at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import duckdb
import pandas as pd

from analysis.answers import ANSWERS, Answer
from analysis.answers.common import Tables
from analysis.frames import frame
from analysis.report import answer_charts, bins, charts
from analysis.report.flow import flow
from analysis.report.marks import Chart
from analysis.sql import CaptureTables, views
from dissector.tables import TABLES

ALSO: Final = ("problems",)
"""Tables that only charts and the head of the report need."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the charts of a section are made of."""

    sql: duckdb.DuckDBPyConnection
    span: bins.Span
    answer: pd.DataFrame
    tables: Tables
    """Those that the answer needs."""


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
        (
            "Lag over time",
            lambda e: answer_charts.lag(ANSWERS["lag"].function(e.tables, show="all")),
        ),
    ),
    "delay": (("From produce to the first fetch", lambda e: answer_charts.delay(e.answer)),),
    "producers": (
        (
            "Transactions",
            lambda e: answer_charts.transactions(
                ANSWERS["producers"].function(e.tables, show="transactions")
            ),
        ),
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


def head(tables: CaptureTables) -> tuple[dict[str, Any], bins.Span | None]:
    """The totals of `bins`, and from when to when the exchanges are; None without any."""
    tables.read({*ALSO, *(name for answer in ANSWERS.values() for name in answer.tables)})
    with views(tables) as connection:
        return bins.totals(connection), bins.span(connection)


def sections(tables: CaptureTables, span: bins.Span | None) -> Iterator[Section]:
    """Every answer, in the order of `ANSWERS`."""
    frames: dict[str, pd.DataFrame] = {}
    waiting = list(ANSWERS.values())
    with views(tables) as connection:
        while waiting:
            for name in frames.keys() - {name for answer in waiting for name in answer.tables}:
                del frames[name]
            answer = waiting.pop(0)
            for name in answer.tables:
                if name not in frames:
                    frames[name] = frame(tables.reader(name).read_all().cast(TABLES[name].schema))
            given = {name: frames[name] for name in answer.tables}
            rows = answer.function(given)
            drawn: list[tuple[str, dict[str, Any]]] = []
            if span is not None:
                evidence = Evidence(connection, span, rows, given)
                made = ((title, draw(evidence)) for title, draw in CHARTS.get(answer.name, ()))
                drawn = [(title, chart.to_dict()) for title, chart in made if chart is not None]
            yield Section(answer, rows, drawn)
