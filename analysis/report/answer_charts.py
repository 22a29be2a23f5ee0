"""Charts of answers: a function takes what an answer gives; see `charts`."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from analysis.report.bins import LINES, SPANS, Rows
from analysis.report.marks import (
    Chart,
    colour,
    height,
    logarithmic,
    names,
    records,
    time,
    tips,
    window,
)  # fmt: skip


def rebalances(groups: pd.DataFrame) -> Chart | None:
    """When each group rebalanced, and what set it off: `analysis.groups`."""
    spans = groups.assign(row=groups["group_id"])
    more = ["trigger_client_id", "member_count", "generation"]
    return _spans(spans, "trigger", more, "Rebalances over time, a row for each group")


def transactions(rows: Rows) -> Chart | None:
    """Transactions by how they ended: `bins.transactions`."""
    return _bars(rows, "outcome", "Transactions over time, a row for each producer")


def moves(leadership: pd.DataFrame) -> Chart | None:
    """When partitions got another leader, and how long clients were refused: its `moves`."""
    told = leadership[["time", "first_error_time", "last_error_time"]]
    leader = "leader " + leadership["leader"].astype("object").fillna("not told").astype(str)
    spans = leadership.assign(
        row=leadership["topic"].astype(str) + " " + leadership["partition"].astype(str),
        leader=leader.replace("leader -1", "no leader"),
        start_time=told.min(axis=1),
        end_time=told.max(axis=1),
        duration_ms=leadership["errors_ms"],
    )
    more = ["leader_epoch", "errors", "clients", "error"]
    return _spans(spans, "leader", more, "Moves of leaders over time, a row for each partition")


def network(paths: pd.DataFrame) -> Chart | None:
    """What of a typical latency is the way, and what the broker: `analysis.network`."""
    known = paths.dropna(subset=["rtt_ms", "broker_p50_ms"])
    known = known.nlargest(LINES, "requests")
    name = known["client_id"].astype("object").fillna("(none)") + " at " + known["broker"]
    parts = [
        pd.DataFrame(
            {"path": name, "part": part, "ms": known[column], "requests": known["requests"]}
        )
        for part, column in (("network", "rtt_ms"), ("broker", "broker_p50_ms"))
    ]
    rows = records(pd.concat(parts))
    if not rows:
        return None
    return (
        alt.Chart(alt.InlineData(rows), height=height(rows, "path"), width="container")
        .mark_bar()
        .encode(
            x=alt.X("ms:Q").title("median, ms"),
            y=names("path"),
            color=colour("part", rows),
            tooltip=tips(rows, "path", "part", "ms", "requests"),
        )
        .properties(description="Median time on the network and at the broker, by client")
    )


def delay(delays: pd.DataFrame) -> Chart | None:
    """How long records waited for their first reader: `analysis.delay`."""
    columns = ["topic", "partition", "fetched", "p50_ms", "p95_ms", "p99_ms", "max_ms"]
    slowest = delays[columns].dropna(subset=["p50_ms"]).nlargest(LINES, "p99_ms")
    name = slowest["topic"].astype(str) + " " + slowest["partition"].astype(str)
    rows = records(slowest.assign(name=name))
    if not rows:
        return None
    base = alt.Chart(alt.InlineData(rows), height=height(rows, "name"), width="container").encode(
        y=alt.Y("name:N", sort=[row["name"] for row in rows]).title(None).axis(labelLimit=180),
        tooltip=tips(rows, *columns),
    )
    axis = alt.X("p50_ms:Q", scale=logarithmic(rows, "p50_ms", "p99_ms")).axis(tickCount=6)
    from_median = axis.title("delay from median to p99, ms")
    return alt.layer(
        base.mark_bar(height=6).encode(x=from_median, x2="p99_ms:Q"),
        base.mark_point(filled=True, size=60, opacity=1).encode(x="p50_ms:Q"),
        base.mark_tick(thickness=2, height=14).encode(x="p99_ms:Q"),
    ).properties(description="Delay from produce to first fetch, a row for each partition")


def offsets(audit: pd.DataFrame) -> Chart | None:
    """Which offsets of each partition were written and read: `analysis.audit`."""
    columns = ["topic", "partition", "action", "first_offset", "last_offset", "records"]
    known = audit[[*columns, "client_id"]].dropna(subset=["first_offset", "last_offset"])
    name = known["topic"].astype(str) + " " + known["partition"].astype(str)
    known = known.assign(name=name, end=known["last_offset"] + 1)
    busiest = known.groupby("name")["records"].sum().nlargest(LINES // 2).index
    rows = records(known[known["name"].isin(busiest)].nlargest(SPANS, "records"))
    if not rows:
        return None
    return (
        alt.Chart(alt.InlineData(rows), height=height(rows, "name", 30), width="container")
        .mark_bar()
        .encode(
            x=alt.X("first_offset:Q").scale(zero=False).title("offset"),
            x2="end:Q",
            y=names("name"),
            yOffset="action:N",
            color=colour("action", rows),
            tooltip=tips(rows, *columns, "client_id"),
        )
        .properties(description="Offsets that were produced and consumed, by partition")
    )


def _spans(found: pd.DataFrame, kind: str, more: Sequence[str], description: str) -> Chart | None:
    """Bars over time in rows; of start_time, end_time, duration_ms, row and the column `kind`."""
    busiest = found["row"].value_counts().index[:LINES]
    found = found[found["row"].isin(busiest)].nlargest(SPANS, "duration_ms")
    shown = ["row", "start_time", "end_time", "duration_ms", kind, *more]
    return _bars(records(found.sort_values("start_time")[shown]), kind, description)


def _bars(rows: Rows, kind: str, description: str) -> Chart | None:
    if not rows:
        return None
    base = alt.Chart(
        alt.InlineData(rows), height=height(rows, "row", 36), width="container"
    ).encode(
        x=time("start_time"), y=names("row"), color=colour(kind, rows), tooltip=tips(rows, *rows[0])
    )
    bars = base.mark_bar(height=14, opacity=0.7).encode(x2="end_time:Q")
    # A span may be shorter than a pixel of the capture: its start is always to be seen.
    starts = base.mark_tick(thickness=3, height=20)
    return alt.layer(bars, starts).add_params(*window()).properties(description=description)
