"""The flow graph: producers, topics and consumers in three columns, joined by curves.

Of `analysis.topology` the links that moved most bytes are drawn, as wide as these bytes. A curve is
a cubic from one column to the next, level at both ends, as a row of points: Vega-Lite has lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import altair as alt
import pandas as pd

from analysis.report.bins import Rows
from analysis.report.marks import ROW, Chart, records, tips

CURVE: Final = 16
"""Pieces of a curve."""
LINKS: Final = 60
"""Curves, at most."""
PRODUCES: Final = "produces"


def flow(topology: pd.DataFrame) -> Chart | None:
    """Who produces to which topic, and who consumes from it: `analysis.topology`."""
    links = _links(topology)
    if not links:
        return None
    heights = _heights(links)
    hover = alt.selection_point(fields=["link"], on="pointerover", empty=False)
    x = alt.X("x:Q").axis(None).scale(domain=[0, 2], nice=False)
    y = alt.Y("y:Q").axis(None).scale(domain=[max(heights.values()) + 0.5, -0.5], nice=False)
    tips_of_link = tips(links, "who", "action", "topic", "requests", "records", "bytes")
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
            color=alt.Color("action:N").title(None).legend(orient="top"),
            opacity=alt.when(hover).then(alt.value(0.9)).otherwise(alt.value(0.45)),
            tooltip=tips_of_link,
        )
        .add_params(hover)
    )
    nodes = [{"x": column, "y": y, "name": name} for (column, name), y in heights.items()]
    # Above the ends of the curves, so that a narrow screen has room for both.
    texts = alt.Chart(alt.InlineData(nodes)).encode(
        x=x, y=y, text="name:N", tooltip=tips(nodes, "name")
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
    )


def _links(topology: pd.DataFrame) -> Rows:
    """From column 0 to 1, or 1 to 2; the widest first."""
    widest = topology.sort_values("bytes", ascending=False, kind="stable").head(LINKS)
    rows = records(widest[["topic", "action", "client_id", "client", "groups", "requests",
                           "records", "bytes"]])  # fmt: skip
    for number, row in enumerate(rows):
        name = row["client_id"] or row["client"] or "?"
        row["who"] = f"{name} ({row['groups']})" if row["groups"] else name
        row["link"] = number
        ends = (0, row["who"]), (1, row["topic"] or "?")
        row["ends"] = ends if row["action"] == PRODUCES else (ends[1], (2, row["who"]))
    return rows


def _heights(links: Rows) -> dict[tuple[int, str], float]:
    """Where each node stands: column and name to height; every column is centred."""
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
        {**_without_ends(link), "step": step, **_point(link["ends"], heights, step / CURVE)}
        for link in links
        for step in range(CURVE + 1)
    ]


def _point(
    ends: Sequence[tuple[int, str]], heights: dict[tuple[int, str], float], along: float
) -> dict[str, float]:
    """A point of a curve; `along` from 0 to 1."""
    (start, _), (end, _) = ends
    low, high = (heights[each] for each in ends)
    return {
        "x": round(start + (end - start) * along, 4),
        "y": round(low + (high - low) * (3 - 2 * along) * along * along, 4),
    }


def _without_ends(link: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in link.items() if name != "ends"}
