"""Elements of all charts: axes, colours, tooltips, and rows in Vega's format.

Times are in UTC. All charts over time cover the whole capture (`with_time_range`), so that they can
be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from zlib import crc32

import altair as alt
import pandas as pd

from analysis.display.terminal import excerpt
from analysis.report.chart_data import OTHER, Rows

Chart: TypeAlias = alt.TopLevelMixin

ROW: Final = 24
"""Height of a row in charts with rows, in pixels."""
LONGEST_NAME: Final = 1000
"""Characters of a name that a chart contains whole."""


_LABEL: Final = "max(180, (containerSize()[0] || 0) * 0.3)"
"""Maximum pixels of a name on an axis: a wide chart has room for a client and its broker."""
_COLUMN_LABEL: Final = 160
_IS_NARROW: Final = f"((containerSize()[0] || 0) - 200) / domain('x').length < {_COLUMN_LABEL}"


def _label(pixels: str | int) -> dict[str, Any]:
    """Names of at most this width. Longer ones lack their middle: those of a client at several
    brokers begin alike."""
    return {
        "labelExpr": f"truncate(datum.label, floor({pixels} / 6.5), 'center')",
        "labelLimit": alt.ExprRef(f"{pixels}"),
        "labelOverlap": False,
    }


ROW_LABEL: Final = _label(_LABEL)
"""Names beside rows."""
COLUMN_LABEL: Final = _label(_COLUMN_LABEL) | {
    "labelAngle": alt.ExprRef(f"{_IS_NARROW} ? -90 : 0"),
    "labelAlign": alt.ExprRef(f"{_IS_NARROW} ? 'right' : 'center'"),
    "labelBaseline": alt.ExprRef(f"{_IS_NARROW} ? 'middle' : 'top'"),
}
"""Names below columns, upright if these are narrow, as on a phone."""

_TIME: Final = (
    "utcmilliseconds(datum.value) ? utcFormat(datum.value, '%H:%M:%S.%L')"
    " : utcseconds(datum.value) ? utcFormat(datum.value, '%H:%M:%S')"
    " : utchours(datum.value) + utcminutes(datum.value) ? utcFormat(datum.value, '%H:%M')"
    " : utcFormat(datum.value, '%b %d')"
)
"""The label of a tick. Vega's own labels leave out the hours, and in short captures the seconds."""
SIZE: Final = (
    "datum.value >= 1048576 ? format(datum.value / 1048576, ',~g') + ' MiB'"
    " : datum.value >= 1024 ? format(datum.value / 1024, ',~g') + ' KiB'"
    " : format(datum.value, ',~g') + ' B'"
)
"""The label of a number of bytes that is a power of 2."""


def time(name: str = "time", *, binned: bool = False) -> alt.X:
    """The time axis. `binned`: marks extend from this column to a second one, and are stacked."""
    scale = alt.Scale(type="utc", domainMin=alt.ExprRef("from"), domainMax=alt.ExprRef("to"))
    axis = alt.X(
        f"{name}:T", scale=scale, title="time (UTC)", axis=alt.Axis(grid=False, labelExpr=_TIME)
    )
    return axis.bin("binned") if binned else axis


def counts(largest: float) -> alt.Axis:
    """An axis of whole numbers up to `largest`. Up to 2, `tickMinStep` does not keep Vega from
    halves."""
    if largest <= 2:
        return alt.Axis(values=[*range(int(largest) + 1)], format="d")
    return alt.Axis(tickMinStep=1)


def window() -> tuple[alt.Parameter, alt.Parameter]:
    """The ends of the axis `time`, which `with_time_range` sets."""
    return alt.param("from", value=None), alt.param("to", value=None)


def with_time_range(chart: dict[str, Any], edges: tuple[float, float]) -> dict[str, Any]:
    """A Vega-Lite chart whose axis `time`, if it has one, extends from edge to edge.

    The page changes the edges: then the chart has only the rows between them, and no mark beyond.
    """
    ends = dict(zip(("from", "to"), edges, strict=True))
    params = chart.get("params", [])
    if not any(param["name"] in ends for param in params):
        return chart
    parts = [chart, *chart.get("layer", [])]
    fields = {
        channel: encoding["field"]
        for part in parts
        for channel, encoding in part.get("encoding", {}).items()
        if channel in ("x", "x2")
    }
    for part in parts:
        if "mark" in part and "x2" in fields:  # other marks are between the edges: see `rows`
            part["mark"] = part["mark"] | {"clip": True}
    end = fields.get("x2", fields["x"])
    rows = f"datum['{end}'] >= from && datum['{fields['x']}'] <= to"
    params = [
        param | {"value": ends[param["name"]]} if param["name"] in ends else param
        for param in params
    ]
    return chart | {"params": params, "transform": [{"filter": rows}]}


def note(text: str) -> alt.Title:
    """A sentence above a chart; none if it is empty."""
    return alt.Title(text, anchor="start", fontSize=12, fontWeight="normal")


def limit_note(rows: Rows, name: str, limit: int, kind: str) -> alt.Title:
    """The `note` of a chart with at most `limit` names; `kind`: those that it has."""
    shown = len({row[name] for row in rows})
    return note(f"The {limit} {kind}. The table lists all." if shown >= limit else "")


def names(name: str) -> alt.Y:
    """An axis with one row per name."""
    return alt.Y(f"{name}:N").title(None).axis(**ROW_LABEL)


def chart_of(rows: Rows, name: str = "", row: int = ROW) -> alt.Chart:
    """A chart as wide as the page. `name`: it has a row of `row` pixels for each value of this
    column; empty: it has no rows."""
    height = row * len({values[name] for values in rows}) if name else 240
    return alt.Chart(alt.InlineData(rows), height=height, width="container")


PALETTE: Final = (
    *("#0072b2", "#d55e00", "#009e73", "#c0609a", "#56b4e9", "#e69f00", "#4a1486", "#4d4d4d"),
    "#b4bbc6",
)
"""The colours of the style sheet in its light theme: `--c0`, `--c1` and so on."""
COLOURS: Final = len(PALETTE) - 1
"""Colours of names; the last one is for `OTHER`."""
_FIXED: Final[Mapping[str, int]] = {
    "produces": 0, "consumes": 1, "replicates": 2, "network": 0, "broker": 1,
    "Produce": 0, "Fetch": 1, "Metadata": 2, "OffsetCommit": 3, "Heartbeat": 4, "ApiVersions": 5,
    "JoinGroup": 6, "FindCoordinator": 7,
}  # fmt: skip
"""Colours of frequent names, which are often in the same chart."""


def colour(name: str, rows: Rows) -> alt.Color:
    """The colour of a mark by name, with a legend; the same for a name in every report."""
    texts = {row[name] for row in rows}
    names = sorted(texts - {OTHER, None})
    ends = [each for each in (None, OTHER) if each in texts]
    numbers = [*colour_numbers(names).values(), *(COLOURS for _ in ends)]
    scale = alt.Scale(domain=[*names, *ends], range=[PALETTE[number] for number in numbers])
    return alt.Color(f"{name}:N", scale=scale).title(None).legend(orient="top", labelLimit=260)


def with_theme(chart: dict[str, Any]) -> dict[str, Any]:
    """A Vega-Lite chart with the colours of the page, which are those of its theme.

    Elsewhere, as in notebooks, variables of a style sheet have no value: all marks would be black.
    """
    for part in (chart, *chart.get("layer", [])):
        scale = part.get("encoding", {}).get("color", {}).get("scale", {})
        if "range" in scale:
            scale["range"] = [f"var(--c{PALETTE.index(each)})" for each in scale["range"]]
    return chart


def colour_numbers(names: Sequence[str]) -> dict[str, int]:
    """The colour of each name. If two names have the same, the later one gets the next free one."""
    numbers: dict[str, int] = {}
    # Fixed colours come first, so that a name that is not fixed does not take one.
    for name in sorted(set(names), key=lambda name: (name not in _FIXED, name)):
        first = _FIXED.get(name, crc32(name.encode()) % COLOURS)
        choices = [(first + step) % COLOURS for step in range(COLOURS)]
        free = [number for number in choices if number not in numbers.values()]
        numbers[name] = (free or choices)[0]
    return {name: numbers[name] for name in names}


def shade(field: str, title: str, scale: Mapping[str, Any] = MappingProxyType({})) -> alt.Opacity:
    """A number as a shade of one colour: small values are near the page, light or dark."""
    shades = alt.Scale(range=[0.15, 1], **scale)
    return alt.Opacity(field, title=title, scale=shades)


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
    return alt.Scale(**logarithmic_domain(rows, *columns))


def logarithmic_domain(rows: Rows, *columns: str) -> dict[str, Any]:
    """The parameters of `logarithmic`."""
    values = [row[column] for row in rows for column in columns if row[column] and row[column] > 0]
    ends = [min(values, default=0.1) / 1.2, max(values, default=10) * 1.2]
    return {"type": "log", "domain": ends, "clamp": True}


def to_rows(frame: pd.DataFrame) -> Rows:
    """Rows for Vega: times in ms since 1970, None for missing values."""
    columns = {}
    for name, column in frame.items():
        if isinstance(column.dtype, pd.DatetimeTZDtype):
            ms = column.astype("int64") / 1e6
            column = ms.where(column.notna())
        columns[str(name)] = column.astype("object").where(column.notna(), None)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def with_printable_names(chart: dict[str, Any]) -> dict[str, Any]:
    """The chart as Vega-Lite. Names, which come from the wire, are escaped and shortened."""
    rows = chain.from_iterable(chart["datasets"].values())
    texts = {text for row in rows for text in row.values() if isinstance(text, str)}
    printed = {text: excerpt(text, LONGEST_NAME) for text in texts}
    return {key: _replaced(value, printed) for key, value in chart.items()}


def _replaced(value: Any, texts: Mapping[str, str]) -> Any:
    """The value, with these texts replaced in all lists and objects."""
    if isinstance(value, dict):
        return {key: _replaced(each, texts) for key, each in value.items()}
    if isinstance(value, list):
        return [_replaced(each, texts) for each in value]
    return texts.get(value, value) if isinstance(value, str) else value
