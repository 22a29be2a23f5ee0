"""What charts share: axes, colours, tooltips, and rows as Vega takes them.

Times are in UTC. Charts over time reach over the whole capture (`over`), so that they can be
compared one above the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import altair as alt
import pandas as pd

from analysis.report.bins import OTHER, Rows

Chart: TypeAlias = alt.TopLevelMixin

HEIGHT: Final = 240
ROW: Final = 24
"""Height of a chart, and of each row where it has rows; pixels."""


def time(name: str = "time", *, binned: bool = False) -> alt.X:
    """The axis of time. `binned`: the marks reach from this to another column, and are stacked."""
    scale = alt.Scale(type="utc", domainMin=alt.ExprRef("from"), domainMax=alt.ExprRef("to"))
    axis = alt.X(f"{name}:T", scale=scale, title="time (UTC)", axis=alt.Axis(grid=False))
    return axis.bin("binned") if binned else axis


def window() -> tuple[alt.Parameter, alt.Parameter]:
    """The ends of the axis `time`; `over` sets them."""
    return alt.param("from", value=None), alt.param("to", value=None)


def over(chart: dict[str, Any], edges: tuple[float, float]) -> dict[str, Any]:
    """A chart as Vega-Lite, whose axis `time`, if it has one, reaches from edge to edge."""
    ends = dict(zip(("from", "to"), edges, strict=True))
    params = [
        each | {"value": ends[each["name"]]} if each["name"] in ends else each
        for each in chart.get("params", [])
    ]
    return chart | ({"params": params} if params else {})


def names(name: str) -> alt.Y:
    """An axis with a row for each name."""
    return alt.Y(f"{name}:N").title(None).axis(labelLimit=180)


def height(rows: Rows, name: str, each: int = ROW) -> int:
    """Of a chart with `names`; in pixels."""
    return each * len({row[name] for row in rows})


def colour(name: str, rows: Rows) -> alt.Color:
    names = sorted({row[name] or "-" for row in rows} - {OTHER})
    ends = [OTHER] if any(row[name] == OTHER for row in rows) else []
    colour = alt.Color(f"{name}:N", sort=[*names, *ends])
    return colour.title(None).legend(orient="top", labelLimit=260)


def legend(name: str) -> alt.Parameter:
    """A click on the legend tells a name from the others; with shift, several."""
    return alt.selection_point(fields=[name], bind="legend", toggle="event.shiftKey")


_FORMATS: Final[Mapping[str, str]] = {"ms": ",.3f", "rate": ",.1f", "share": ".1%"}


def tips(rows: Rows, *names: str) -> list[alt.Tooltip]:
    """What a pointer, or a tap, tells of a mark."""
    return [_tip(name, any(isinstance(row[name], str) for row in rows)) for name in names]


def _tip(name: str, is_text: bool) -> alt.Tooltip:
    title = name.replace("_", " ")
    if name.endswith("time"):
        return alt.Tooltip(name, type="temporal", title=title, format="%Y-%m-%d %H:%M:%S.%L")
    if is_text:
        return alt.Tooltip(name, type="nominal", title=title)
    form = _FORMATS.get(name.rsplit("_", 1)[-1], ",")
    return alt.Tooltip(name, type="quantitative", title=title, format=form)


def logarithmic(rows: Rows, *columns: str) -> alt.Scale:
    """A scale that has room for all values; what is not above 0 is at its lower end."""
    values = [row[column] for row in rows for column in columns if row[column] and row[column] > 0]
    ends = [min(values, default=0.1) / 1.2, max(values, default=10) * 1.2]
    return alt.Scale(type="log", domain=ends, clamp=True)


def records(frame: pd.DataFrame) -> Rows:
    """Rows for Vega: times in ms since 1970, and None for what is missing."""
    columns = {}
    for name, column in frame.items():
        if isinstance(column.dtype, pd.DatetimeTZDtype):
            ms = column.astype("int64") / 1e6
            column = ms.where(column.notna())
        columns[str(name)] = column.astype("object").where(column.notna(), None)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
