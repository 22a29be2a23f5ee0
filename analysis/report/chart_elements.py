"""Elements of all charts: axes, colours, tooltips, and rows in Vega's format.

Times are in UTC. All charts over time cover the whole capture (`with_time_range`), so that they can
be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import altair as alt
import pandas as pd

from analysis.report.chart_data import OTHER, Rows

Chart: TypeAlias = alt.TopLevelMixin

HEIGHT: Final = 240
ROW: Final = 24
"""Height of a chart, and of a row in charts with rows, in pixels."""


_TIME: Final = (
    "utcmilliseconds(datum.value) ? utcFormat(datum.value, '%H:%M:%S.%L')"
    " : utcseconds(datum.value) ? utcFormat(datum.value, '%H:%M:%S')"
    " : utchours(datum.value) + utcminutes(datum.value) ? utcFormat(datum.value, '%H:%M')"
    " : utcFormat(datum.value, '%b %d')"
)
"""The label of a tick. Vega's own labels leave out the hours, and in short captures the seconds."""


def time(name: str = "time", *, binned: bool = False) -> alt.X:
    """The time axis. `binned`: marks extend from this column to a second one, and are stacked."""
    scale = alt.Scale(type="utc", domainMin=alt.ExprRef("from"), domainMax=alt.ExprRef("to"))
    axis = alt.X(
        f"{name}:T", scale=scale, title="time (UTC)", axis=alt.Axis(grid=False, labelExpr=_TIME)
    )
    return axis.bin("binned") if binned else axis


def window() -> tuple[alt.Parameter, alt.Parameter]:
    """The ends of the axis `time`, which `with_time_range` sets."""
    return alt.param("from", value=None), alt.param("to", value=None)


def with_time_range(chart: dict[str, Any], edges: tuple[float, float]) -> dict[str, Any]:
    """A Vega-Lite chart whose axis `time`, if it has one, extends from edge to edge."""
    ends = dict(zip(("from", "to"), edges, strict=True))
    params = [
        param | {"value": ends[param["name"]]} if param["name"] in ends else param
        for param in chart.get("params", [])
    ]
    return chart | ({"params": params} if params else {})


def names(name: str) -> alt.Y:
    """An axis with one row per name."""
    return alt.Y(f"{name}:N").title(None).axis(labelLimit=180)


def height(rows: Rows, name: str, row: int = ROW) -> int:
    """Height of a chart with one row per name, in pixels."""
    return row * len({values[name] for values in rows})


def colour(name: str, rows: Rows) -> alt.Color:
    names = sorted({row[name] or "-" for row in rows} - {OTHER})
    ends = [OTHER] if any(row[name] == OTHER for row in rows) else []
    colour = alt.Color(f"{name}:N", sort=[*names, *ends])
    return colour.title(None).legend(orient="top", labelLimit=260)


def legend(name: str) -> alt.Parameter:
    """Clicking a name in the legend highlights it; with shift, several names."""
    return alt.selection_point(fields=[name], bind="legend", toggle="event.shiftKey")


_FORMATS: Final[Mapping[str, str]] = {"ms": ",.3f", "rate": ",.1f", "share": ".1%"}


def tooltips(rows: Rows, *names: str) -> list[alt.Tooltip]:
    """Tooltips of a mark."""
    return [_tooltip(name, any(isinstance(row[name], str) for row in rows)) for name in names]


def _tooltip(name: str, is_text: bool) -> alt.Tooltip:
    title = name.replace("_", " ")
    if name.endswith("time"):
        return alt.Tooltip(name, type="temporal", title=title, format="%Y-%m-%d %H:%M:%S.%L")
    if is_text:
        return alt.Tooltip(name, type="nominal", title=title)
    number_format = _FORMATS.get(name.rsplit("_", 1)[-1], ",")
    return alt.Tooltip(name, type="quantitative", title=title, format=number_format)


def logarithmic(rows: Rows, *columns: str) -> alt.Scale:
    """A scale for all values; values of 0 and below are at its lower end."""
    values = [row[column] for row in rows for column in columns if row[column] and row[column] > 0]
    ends = [min(values, default=0.1) / 1.2, max(values, default=10) * 1.2]
    return alt.Scale(type="log", domain=ends, clamp=True)


def to_rows(frame: pd.DataFrame) -> Rows:
    """Rows for Vega: times in ms since 1970, None for missing values."""
    columns = {}
    for name, column in frame.items():
        if isinstance(column.dtype, pd.DatetimeTZDtype):
            ms = column.astype("int64") / 1e6
            column = ms.where(column.notna())
        columns[str(name)] = column.astype("object").where(column.notna(), None)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
