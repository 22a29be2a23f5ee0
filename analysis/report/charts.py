"""Charts of what `bins` counts, as Vega-Lite, which Altair writes and checks.

A function takes rows of `bins` and gives a chart; None where there is nothing to draw. A chart says
in its description what it shows, for whoever cannot see it. Text from the wire reaches Vega as data
only, and Vega draws text, not markup.
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from analysis.report.bins import Rows
from analysis.report.marks import (
    HEIGHT,
    Chart,
    colour,
    height,
    legend,
    logarithmic,
    names,
    time,
    tips,
    window,
)


def traffic(rows: Rows) -> Chart | None:
    """Requests in a second, by API."""
    return _stacked(rows, "rate", "requests/s", "api", ["requests", "bytes"], "Requests by API")


def throttle(rows: Rows) -> Chart | None:
    """Throttle time that responses tell, by client."""
    more = ["responses", "longest_ms"]
    return _stacked(rows, "total_ms", "throttle time, ms", "client_id", more, "Throttling")


def errors(rows: Rows) -> Chart | None:
    """Error codes of responses."""
    return _stacked(rows, "count", "errors", "error", [], "Errors in responses")


def unanswered(rows: Rows) -> Chart | None:
    """Requests that never had an answer, by API."""
    return _stacked(rows, "requests", "requests", "api", [], "Unanswered requests, when sent")


def latency_over_time(rows: Rows) -> Chart | None:
    """The 0.99 quantile of the latency, by API."""
    if not rows:
        return None
    scale = logarithmic(rows, "p99_ms")
    pick = legend("api")
    return (
        alt.Chart(alt.InlineData(rows), height=HEIGHT, width="container")
        .mark_line(point=alt.OverlayMarkDef(size=24), strokeWidth=1.5)
        .encode(
            x=time(),
            y=alt.Y("p99_ms:Q", title="p99, ms", scale=scale).axis(tickCount=5),
            color=colour("api", rows),
            opacity=alt.when(pick).then(alt.value(1)).otherwise(alt.value(0.08)),
            tooltip=tips(rows, "time", "api", "answers", "p50_ms", "p99_ms", "max_ms"),
        )
        .add_params(pick, *window())
        .properties(description="p99 of the latency over time, a line for each API")
    )


def latency_distribution(rows: Rows) -> Chart | None:
    """How the latencies of each API are spread."""
    if not rows:
        return None
    apis = len({row["api"] for row in rows})
    return (
        alt.Chart(alt.InlineData(rows), height=height(rows, "api"), width="container")
        .mark_rect()
        .encode(
            x=alt.X("from_ms:Q", scale=logarithmic(rows, "from_ms", "to_ms"))
            .title("latency, ms")
            .axis(tickCount=6, grid=False),
            x2="to_ms:Q",
            y=names("api"),
            color=alt.Color("share:Q").title("share").legend(format="%", orient="top"),
            tooltip=tips(rows, "api", "from_ms", "to_ms", "answers", "share"),
        )
        .properties(description=f"Spread of the latency of {apis} APIs, on a logarithmic scale")
    )


def clients_and_brokers(rows: Rows) -> Chart | None:
    """Latency and errors for each client at each broker."""
    if not rows:
        return None
    scale = logarithmic(rows, "p99_ms")
    return (
        alt.Chart(alt.InlineData(rows), height=height(rows, "client"), width="container")
        .mark_rect()
        .encode(
            x=alt.X("broker:N").title("broker").axis(labelAngle=0, labelLimit=160),
            y=names("client"),
            color=alt.Color("p99_ms:Q", title="p99, ms", scale=scale).legend(orient="top"),
            tooltip=tips(rows, "client", "broker", "answers", "p50_ms", "p99_ms", "errors"),
        )
        .properties(description="p99 of the latency for each client (rows) at each broker")
    )


def batch_sizes(rows: Rows) -> Chart | None:
    """How large the batches are that producers send."""
    if not rows:
        return None
    # A bin more at both ends: a bar that is the whole chart would tell nothing.
    ends = [min(row["from_bytes"] for row in rows) / 2, max(row["to_bytes"] for row in rows) * 2]
    return (
        alt.Chart(alt.InlineData(rows), height=HEIGHT, width="container")
        .mark_bar(binSpacing=0)
        .encode(
            x=alt.X("from_bytes:Q", bin="binned")
            .scale(type="log", base=2, domain=ends)
            .axis(format="~s", tickCount=8, title="bytes of a batch"),
            x2="to_bytes:Q",
            y=alt.Y("batches:Q"),
            color=colour("codec", rows),
            tooltip=tips(rows, "codec", "from_bytes", "to_bytes", "batches", "records"),
        )
        .properties(description="Batches that are produced by size and codec")
    )  # fmt: skip


def lag(rows: Rows) -> Chart | None:
    """How far each group was behind, over time."""
    if not rows:
        return None
    pick = legend("reader")
    most = max(1, *(row["lag"] for row in rows))
    return (
        alt.Chart(alt.InlineData(rows), height=HEIGHT, width="container")
        .mark_line(interpolate="step-after", point=alt.OverlayMarkDef(size=16))
        .encode(
            x=time(),
            y=alt.Y("lag:Q").title("records behind").scale(domain=[0, most]),
            color=colour("reader", rows),
            opacity=alt.when(pick).then(alt.value(1)).otherwise(alt.value(0.08)),
            tooltip=tips(rows, "time", "reader", "lag"),
        )
        .add_params(pick, *window())
        .properties(description="Records that groups were behind, the worst partitions")
    )


def _stacked(
    rows: Rows, value: str, unit: str, name: str, more: Sequence[str], title: str
) -> Chart | None:
    """Bars over time, stacked by name."""
    if not rows:
        return None
    pick = legend(name)
    return (
        alt.Chart(alt.InlineData(rows), height=HEIGHT, width="container")
        .mark_bar(binSpacing=0)
        .encode(
            x=time(binned=True),
            x2="until:Q",
            y=alt.Y(f"{value}:Q").title(unit),
            color=colour(name, rows),
            opacity=alt.when(pick).then(alt.value(1)).otherwise(alt.value(0.08)),
            tooltip=tips(rows, "time", name, value, *more),
        )
        .add_params(pick, *window())
        .properties(description=f"{title} over time")
    )
