"""The topology chart: producers, topics and consumers in three columns, joined by curves.

A link joins a client id, with all its addresses, and a topic. The links with the most bytes are
drawn, and their width shows the bytes. The title counts the links that are left out. A curve is a
cubic between two columns, horizontal at both ends, drawn as a line of points because Vega-Lite has
no curves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import altair as alt
import pandas as pd

from analysis.report.chart_data import Rows
from analysis.report.chart_elements import ROW, Chart, colour, note, to_rows, tooltips

CURVE: Final = 16
"""Line segments per curve."""
LINKS: Final = 60
"""Most curves."""
PRODUCES: Final = "produces"
NO_CLIENT_ID: Final = "(no client id)"


def topology_chart(topology: pd.DataFrame) -> Chart | None:
    """Producers and consumers of each topic: `analysis.topology`."""
    merged = _merged(topology)
    largest = _largest(merged)
    links = _links(largest)
    if not links:
        return None
    heights = _heights(links)
    hover = alt.selection_point(fields=["link"], on="pointerover", empty=False)
    x = alt.X("x:Q").axis(None).scale(domain=[0, 2], nice=False)
    y = alt.Y("y:Q").axis(None).scale(domain=[max(heights.values()) + 0.5, -0.5], nice=False)
    link_tooltips = tooltips(
        links, "client", "action", "topic", "addresses", "requests", "records", "bytes"
    )
    lines = (
        alt.Chart(alt.InlineData(_curves(links, heights)))
        .mark_line()
        .encode(
            x=x,
            y=y,
            detail="link:N",
            order="step:Q",
            strokeWidth=alt.StrokeWidth("bytes:Q")
            .scale(type="sqrt", domainMin=0, range=[1.5, 14])
            .legend(None),
            color=colour("action", links),
            opacity=alt.when(hover).then(alt.value(0.9)).otherwise(alt.value(0.45)),
            tooltip=link_tooltips,
        )
        .add_params(hover)
    )
    nodes = [{"x": column, "y": y, "name": name} for (column, name), y in heights.items()]
    # Labels are above the ends of the curves, to fit on a narrow screen.
    texts = alt.Chart(alt.InlineData(nodes)).encode(
        x=x, y=y, text="name:N", tooltip=tooltips(nodes, "name")
    )
    sides = (
        texts.transform_filter("datum.x == 0").mark_text(align="left", dy=-15, limit=170),
        texts.transform_filter("datum.x == 1").mark_text(fontWeight="bold", dy=-15, limit=170),
        texts.transform_filter("datum.x == 2").mark_text(align="right", dy=-15, limit=170),
    )
    return alt.layer(lines, *sides).properties(
        width="container",
        height=(1 + max(heights.values())) * ROW * 2,
        description="Producers (left) to topics (middle) to consumers (right)",
        title=note(_left_out(merged, largest)),
    )


def _merged(topology: pd.DataFrame) -> pd.DataFrame:
    """One row per topic, action and client id (with its groups), by descending bytes."""
    named = topology.assign(client_id=topology["client_id"].fillna(NO_CLIENT_ID))
    by_id = named.groupby(["topic", "action", "client_id", "groups"], dropna=False, sort=False)
    sums = by_id[["requests", "records", "bytes"]].sum(min_count=1)
    merged = sums.assign(addresses=by_id["client"].nunique())
    sorted_ = merged.reset_index().sort_values("bytes", ascending=False, kind="stable")
    return sorted_.reset_index(drop=True)


def _largest(merged: pd.DataFrame) -> pd.DataFrame:
    """The largest links: half of them producers if possible, half consumers."""
    produces = merged["action"] == PRODUCES
    halves = pd.concat([merged[produces].head(LINKS // 2), merged[~produces].head(LINKS // 2)])
    remaining = merged.drop(halves.index).head(LINKS - len(halves))
    return pd.concat([halves, remaining]).sort_index()


def _left_out(merged: pd.DataFrame, largest: pd.DataFrame) -> str:
    """A sentence about links that are not drawn; empty if all are drawn."""
    if len(largest) == len(merged):
        return ""
    total, bytes_ = merged["bytes"].sum(), largest["bytes"].sum()
    share = f" They carry {100 * bytes_ / total:.1f} % of the bytes." if total else ""
    return f"Largest {len(largest):,} of {len(merged):,} links.{share} `topology` lists all."


def _links(largest: pd.DataFrame) -> Rows:
    """Links from column 0 to 1 or from 1 to 2, the widest first."""
    rows = to_rows(largest)
    for number, row in enumerate(rows):
        groups = row.pop("groups")
        name = row.pop("client_id")
        row["client"] = f"{name} ({groups})" if groups else name
        row["link"] = number
        ends = (0, row["client"]), (1, row["topic"] or "?")
        row["ends"] = ends if row["action"] == PRODUCES else (ends[1], (2, row["client"]))
    return rows


def _heights(links: Rows) -> dict[tuple[int, str], float]:
    """The vertical position of each node, by column and name; columns are centred."""
    nodes = list(dict.fromkeys(end for link in links for end in link["ends"]))
    columns = [[node for node in nodes if node[0] == column] for column in range(3)]
    tallest = max(map(len, columns))
    return {
        node: place + (tallest - len(column)) / 2
        for column in columns
        for place, node in enumerate(column)
    }


def _curves(links: Rows, heights: dict[tuple[int, str], float]) -> Rows:
    return [
        {**shown, "step": step, **_point(link["ends"], heights, step / CURVE)}
        for link in links
        for shown in [{name: value for name, value in link.items() if name != "ends"}]
        for step in range(CURVE + 1)
    ]


def _point(
    ends: Sequence[tuple[int, str]], heights: dict[tuple[int, str], float], along: float
) -> dict[str, float]:
    """A point of a curve; `along` is from 0 to 1."""
    (start, _), (end, _) = ends
    low, high = (heights[node] for node in ends)
    return {
        "x": round(start + (end - start) * along, 4),
        "y": round(low + (high - low) * (3 - 2 * along) * along * along, 4),
    }
