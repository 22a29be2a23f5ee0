"""Charts of `chart_data` as Vega-Lite, which Altair writes and validates.

A function takes rows of `chart_data`, at least one. A chart has a description for screen readers.
Text from the capture reaches Vega only as data, and Vega draws it as text, not as markup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import altair as alt

from analysis.display.presentation import names as shown_names
from analysis.report.chart_data import NAMES, Rows
from analysis.report.chart_elements import (
    COLUMN_LABEL,
    SIZE,
    Chart,
    chart_of,
    colour,
    counts,
    legend,
    limit_note,
    logarithmic,
    logarithmic_domain,
    names,
    shade,
    time,
    tooltips,
    window,
)


def traffic(rows: Rows) -> Chart:
    """Requests per second, by API."""
    return _stacked(rows, "rate", "requests/s", "api", ["requests", "bytes"], "Requests by API")


def throttle(rows: Rows) -> Chart:
    """Throttle time in responses, by client."""
    extra = ["responses", "longest_ms"]
    return _stacked(rows, "total_ms", "throttle time, ms", "client_id", extra, "Throttling")


def errors(rows: Rows) -> Chart:
    """Error codes of responses."""
    return _stacked(rows, "count", "errors", "error", [], "Errors in responses")


def unanswered(rows: Rows) -> Chart:
    """Requests without a response, by API."""
    return _stacked(rows, "requests", "requests", "api", [], "Unanswered requests by send time")


def latency_over_time(rows: Rows) -> Chart:
    """The 0.99 quantile of the latency, by API."""
    scale = logarithmic(rows, "p99_ms")
    pick = legend("api")
    return (
        chart_of(rows)
        .mark_line(point=alt.OverlayMarkDef(size=24), strokeWidth=1.5)
        .encode(
            x=time(),
            y=alt.Y("p99_ms:Q", title="p99, ms", scale=scale).axis(tickCount=5),
            color=colour("api", rows),
            opacity=alt.when(pick).then(alt.value(1)).otherwise(alt.value(0.08)),
            tooltip=tooltips(rows, "time", "api", "responses", "p50_ms", "p99_ms", "max_ms"),
        )
        .add_params(pick, *window())
        .properties(description="p99 of the latency over time, one line per API")
    )


def latency_distribution(rows: Rows) -> Chart:
    """The distribution of latency by API."""
    apis = len({row["api"] for row in rows})
    return (
        chart_of(rows, "api")
        .mark_rect()
        .encode(
            x=alt.X("from_ms:Q", scale=logarithmic(rows, "from_ms", "to_ms"))
            .title("latency, ms")
            .axis(tickCount=6, grid=False),
            x2="to_ms:Q",
            y=names("api"),
            opacity=shade("share:Q", title="share").legend(format="%", orient="top"),
            tooltip=tooltips(rows, "api", "from_ms", "to_ms", "responses", "share"),
        )
        .properties(description=f"Distribution of latency of {apis} APIs, on a logarithmic scale")
    )


def clients_and_brokers(rows: Rows) -> Chart:
    """Latency and errors by client and broker."""
    rows = [row | {"broker": shown_names().brief(row["broker"])} for row in rows]
    scale = logarithmic_domain(rows, "p99_ms")
    return (
        chart_of(rows, "client")
        .mark_rect()
        .encode(
            x=alt.X("broker:N").title("broker").axis(**COLUMN_LABEL),
            y=names("client"),
            opacity=shade("p99_ms:Q", title="p99, ms", scale=scale).legend(orient="top"),
            tooltip=tooltips(rows, "client", "broker", "responses", "p50_ms", "p99_ms", "errors"),
        )
        .properties(description="p99 of the latency for each client (rows) at each broker")
    )


def batch_sizes(rows: Rows) -> Chart:
    """How large the batches are that producers send."""
    # One more bin at both ends, so that a single bar does not fill the chart.
    ends = [min(row["from_bytes"] for row in rows) / 2, max(row["to_bytes"] for row in rows) * 2]
    return (
        chart_of(rows)
        .mark_bar(binSpacing=0)
        .encode(
            x=alt.X("from_bytes:Q", bin="binned")
            .scale(type="log", base=2, domain=ends)
            .axis(labelExpr=SIZE, tickCount=8, title="size of a batch"),
            x2="to_bytes:Q",
            y=alt.Y("batches:Q", axis=counts(_largest(rows, "from_bytes", "batches"))),
            color=colour("codec", rows),
            tooltip=tooltips(rows, "codec", "from_bytes", "to_bytes", "batches", "records"),
        )
        .properties(description="Produced batches by size and codec")
    )  # fmt: skip


def lag(rows: Rows) -> Chart:
    """Lag of each group over time."""
    pick = legend("reader")
    lags = [row["lag"] for row in rows]
    largest = max(1, *lags)
    return (
        chart_of(rows)
        .mark_line(interpolate="step-after", point=alt.OverlayMarkDef(size=16))
        .encode(
            x=time(),
            y=alt.Y("lag:Q", axis=counts(largest))
            .title("records behind")
            .scale(domain=[min(0, *lags), largest]),
            color=colour("reader", rows),
            opacity=alt.when(pick).then(alt.value(1)).otherwise(alt.value(0.08)),
            tooltip=tooltips(rows, "time", "reader", "lag"),
        )
        .add_params(pick, *window())
        .properties(
            description="Lag of groups in records, for the partitions with the largest lag",
            title=limit_note(rows, "reader", NAMES, "partitions with the largest lag"),
        )
    )


def _stacked(
    rows: Rows, value: str, unit: str, name: str, extra: Sequence[str], title: str
) -> Chart:
    """Bars over time, stacked by name."""
    axis = alt.Axis() if value == "rate" else counts(_largest(rows, "time", value))
    pick = legend(name)
    return (
        chart_of(rows)
        .mark_bar(binSpacing=0)
        .encode(
            x=time(binned=True),
            x2="until:Q",
            y=alt.Y(f"{value}:Q", axis=axis).title(unit),
            color=colour(name, rows),
            opacity=alt.when(pick).then(alt.value(1)).otherwise(alt.value(0.08)),
            tooltip=tooltips(rows, "time", name, value, *extra),
        )
        .add_params(pick, *window())
        .properties(description=f"{title} over time")
    )


def _largest(rows: Rows, place: str, value: str) -> float:
    """The height of the highest stack of bars."""
    heights: Counter[Any] = Counter()
    for row in rows:
        heights[row[place]] += row[value]
    return max(heights.values())
