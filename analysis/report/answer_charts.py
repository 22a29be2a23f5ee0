"""Charts of answers. Each function takes the result of an answer; see `charts`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import altair as alt
import pandas as pd

from analysis.display.presentation import names as shown_names
from analysis.report.chart_data import LINES, SPANS, Rows
from analysis.report.chart_elements import (
    ROW_LABEL,
    Chart,
    chart_of,
    colour,
    limit_note,
    logarithmic,
    names,
    time,
    to_rows,
    tooltips,
    window,
)  # fmt: skip

PARTITIONS: Final = 20
"""Maximum number of partitions in a chart with a bar for each action."""


def rebalances(groups: pd.DataFrame) -> Chart | None:
    """Rebalances over time, with their triggers: `analysis.groups`."""
    spans = groups.assign(row=groups["group_id"])
    extra = ["trigger_client_id", "member_count", "generation"]
    return _spans(
        spans, "trigger", extra, "Rebalances over time, one row per group",
        "groups with the most rebalances",
    )  # fmt: skip


def transactions(rows: Rows) -> Chart | None:
    """Transactions by outcome: `chart_data.transactions`."""
    return _bars(
        rows, "outcome", "Transactions over time, one row per producer",
        "producers with the most transactions",
    )  # fmt: skip


def moves(leadership: pd.DataFrame) -> Chart | None:
    """Leader changes of partitions, and how long requests failed: `analysis.leadership`."""
    times = leadership[["time", "first_error_time", "last_error_time"]]
    leader = "leader " + leadership["leader"].astype("object").fillna("unknown").astype(str)
    spans = leadership.assign(
        row=leadership["topic"].astype(str) + " " + leadership["partition"].astype(str),
        leader=leader.replace("leader -1", "no leader"),
        start_time=times.min(axis=1),
        end_time=times.max(axis=1),
        duration_ms=leadership["errors_ms"],
    )
    extra = ["leader_epoch", "errors", "clients", "error"]
    return _spans(
        spans, "leader", extra, "Leader changes over time, one row per partition",
        "partitions with the most changes",
    )  # fmt: skip


def network(paths: pd.DataFrame) -> Chart | None:
    """Median latency, divided into network and broker: `analysis.network`."""
    known = paths.dropna(subset=["rtt_ms", "broker_p50_ms"])
    known = known.nlargest(LINES, "requests")
    broker = known["broker"].map(shown_names().brief)
    name = known["client_id"].astype("object").fillna("(none)") + " at " + broker
    parts = [
        pd.DataFrame(
            {"path": name, "part": part, "ms": known[column], "requests": known["requests"]}
        )
        for part, column in (("network", "rtt_ms"), ("broker", "broker_p50_ms"))
    ]
    rows = to_rows(pd.concat(parts))
    if not rows:
        return None
    return (
        chart_of(rows, "path")
        .mark_bar()
        .encode(
            x=alt.X("ms:Q").title("median, ms").axis(tickCount=8),
            y=names("path"),
            color=colour("part", rows),
            tooltip=tooltips(rows, "path", "part", "ms", "requests"),
        )
        .properties(
            description="Median time on the network and in the broker, by client",
            title=limit_note(rows, "path", LINES, "paths with the most requests"),
        )
    )


def delay(delays: pd.DataFrame) -> Chart | None:
    """Delay of records until their first fetch: `analysis.delay`."""
    columns = ["topic", "partition", "fetched", "p50_ms", "p95_ms", "p99_ms", "max_ms"]
    slowest = delays[columns].dropna(subset=["p50_ms"]).nlargest(LINES, "p99_ms")
    name = slowest["topic"].astype(str) + " " + slowest["partition"].astype(str)
    rows = to_rows(slowest.assign(name=name))
    if not rows:
        return None
    base = chart_of(rows, "name").encode(
        y=alt.Y("name:N", sort=[row["name"] for row in rows]).title(None).axis(**ROW_LABEL),
        tooltip=tooltips(rows, *columns),
    )
    axis = alt.X("p50_ms:Q", scale=logarithmic(rows, "p50_ms", "p99_ms")).axis(tickCount=6)
    from_median = axis.title("delay from median to p99, ms")
    return alt.layer(
        base.mark_bar(height=6).encode(x=from_median, x2="p99_ms:Q"),
        base.mark_point(filled=True, size=60, opacity=1).encode(x="p50_ms:Q"),
        base.mark_tick(thickness=2, height=14).encode(x="p99_ms:Q"),
    ).properties(
        description="Delay from produce to first fetch, one row per partition",
        title=limit_note(rows, "name", LINES, "partitions with the largest p99"),
    )


def offsets(audit: pd.DataFrame) -> Chart | None:
    """Offsets written and read, by partition: `analysis.audit`."""
    columns = ["topic", "partition", "action", "first_offset", "last_offset", "records"]
    known = audit[[*columns, "client_id"]].dropna(subset=["first_offset", "last_offset"])
    name = known["topic"].astype(str) + " " + known["partition"].astype(str)
    known = known.assign(name=name, end=known["last_offset"] + 1)
    busiest = known.groupby("name")["records"].sum().nlargest(PARTITIONS).index
    rows = to_rows(known[known["name"].isin(busiest)].nlargest(SPANS, "records"))
    if not rows:
        return None
    return (
        chart_of(rows, "name", 30)
        .mark_bar()
        .encode(
            x=alt.X("first_offset:Q").scale(zero=False).title("offset"),
            x2="end:Q",
            y=names("name"),
            yOffset="action:N",
            color=colour("action", rows),
            tooltip=tooltips(rows, *columns, "client_id"),
        )
        .properties(
            description="Produced and consumed offsets by partition",
            title=limit_note(rows, "name", PARTITIONS, "partitions with the most records"),
        )
    )


def _spans(
    spans: pd.DataFrame, kind: str, extra: Sequence[str], description: str, busiest_rows: str
) -> Chart | None:
    """Bars over time from columns start_time, end_time, duration_ms, row and `kind`."""
    busiest = spans["row"].value_counts().index[:LINES]
    spans = spans[spans["row"].isin(busiest)].nlargest(SPANS, "duration_ms")
    columns = ["row", "start_time", "end_time", "duration_ms", kind, *extra]
    rows = to_rows(spans.sort_values("start_time", kind="stable")[columns])
    return _bars(rows, kind, description, busiest_rows)


def _bars(rows: Rows, kind: str, description: str, busiest_rows: str) -> Chart | None:
    if not rows:
        return None
    base = chart_of(rows, "row", 36).encode(
        x=time("start_time"),
        y=names("row"),
        color=colour(kind, rows),
        tooltip=tooltips(rows, *rows[0]),
    )
    bars = base.mark_bar(height=14, opacity=0.7).encode(x2="end_time:Q")
    # A span may be narrower than a pixel, so its start has a tick.
    starts = base.mark_tick(thickness=3, height=20)
    return (
        alt.layer(bars, starts)
        .add_params(*window())
        .properties(description=description, title=limit_note(rows, "row", LINES, busiest_rows))
    )
