"""The page: sections as one HTML file that needs nothing else.

The capture's words go into the page in two ways only: as JSON in a data block, in which no ``<`` is
left as it is, and by a template that escapes them. The page's policy (CSP) allows the two scripts
that are its own, by their hashes, and no address.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import duckdb
import jinja2
import pandas as pd
from markupsafe import Markup

from analysis.display.terminal import counted, duration_text, printable, size_text, span_text
from analysis.report import bins
from analysis.report.sections import Section, sections
from analysis.report.vega import vega as vega_script

ROWS: Final = 2000
"""Rows of an answer that the page has, at most: those that the answer puts first."""

WRONG: Final = frozenset({"throttle", "errors", "unanswered", "versions", "trust"})
"""Answers that list findings."""

HERE: Final = Path(__file__).parent

CONFIG: Final[Mapping[str, Any]] = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "domainColor": "var(--line)", "gridColor": "var(--line)", "tickColor": "var(--line)",
        "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal",
        "labelOverlap": "greedy", "labelSeparation": 5,
    },
    "legend": {"labelFontSize": 12, "titleFontSize": 11, "titleFontWeight": "normal"},
    "mark": {"color": "var(--c0)"},
    "range": {
        "category": [f"var(--c{number})" for number in range(9)],
        "heatmap": {"scheme": "viridis"},
    },
}  # fmt: skip
"""How Vega draws: in colours of the style sheet, which know light and dark."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A number at the head of the page."""

    name: str
    value: str
    section: str = ""
    """Where more is said of it."""
    wrong: bool = False


def page(name: str, sql: duckdb.DuckDBPyConnection, again: Callable[[str], str]) -> Iterable[bytes]:
    """The file, in pieces.

    `name`: of the capture; `sql`: a connection with its `sections.TABLES`. `again`: the command
    line of an answer, by its name.
    """
    totals, span = bins.totals(sql), bins.span(sql)
    described: list[dict[str, Any]] = []
    charts: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    for section in sections(sql, span):
        answer = section.answer
        shown = []
        for number, (title, chart) in enumerate(section.charts):
            charts[f"{answer.name}-{number}"] = chart | {"autosize": "fit-x"}
            shown.append({"name": f"{answer.name}-{number}", "title": title, "height": 260})
        tables[answer.name] = _table(section)
        described.append(
            {
                "name": answer.name,
                "question": answer.question,
                "rows": len(section.rows),
                "count": _count(section),
                "wrong": _is_wrong(section),
                "charts": shown,
                "more": again(answer.name),
            }
        )
    data = {
        "charts": charts,
        "tables": tables,
        "config": CONFIG,
    }
    script, vega = _text("page.js"), vega_script()
    made = _template().generate(
        name=printable(name),
        version=version("kafka-dissector"),
        hashes=" ".join(_hash(each) for each in (vega, script)),
        time=_time(totals),
        note=_note(totals),
        tiles=_tiles(totals, {each["name"]: each["rows"] for each in described}),
        sections=described,
        data=jinja2.utils.htmlsafe_json_dumps(data, separators=(",", ":"), allow_nan=False),
        style=Markup(_text("page.css")),
        vega=Markup(vega),
        script=Markup(script),
    )
    return (piece.encode() for piece in made)


def _count(section: Section) -> int:
    """How much there is of what is asked about."""
    if section.answer.name == "trust":  # it has a row for each kind of flaw, also for no flaw
        return int((section.rows["count"] > 0).sum())
    return len(section.rows)


def _is_wrong(section: Section) -> bool:
    return section.answer.name in WRONG and _count(section) > 0


def _tiles(totals: Mapping[str, Any], rows: Mapping[str, int]) -> list[Tile]:
    bad = {"errors": "errors", "throttled": "throttle", "unanswered": "unanswered",
           "undecoded": "trust", "problems": "trust"}  # fmt: skip
    return [
        *(Tile(each, f"{totals[each]:,}") for each in ("exchanges", "connections", "clients")),
        Tile("brokers", f"{totals['brokers']:,}"),
        Tile("payload", size_text(totals["bytes"])),
        *(Tile(n, f"{totals[n]:,}", section, totals[n] > 0) for n, section in bad.items()),
        Tile("rebalances", f"{rows['groups']:,}", "groups"),
    ]


def _time(totals: Mapping[str, Any]) -> str:
    first, last = totals["first"], totals["last"]
    if first is None:
        return "no packets of a TCP connection"
    return f"{span_text(first, last)} UTC, {duration_text(last - first)}"


def _note(totals: Mapping[str, Any]) -> str:
    """What a reader must know before anything else."""
    if not totals["exchanges"]:
        connections = counted(totals["connections"], "connection")
        return f"No Kafka exchange was found in the {connections} of this capture."
    if totals["undecoded"] == totals["exchanges"]:
        exchanges = counted(totals["exchanges"], "exchange")
        return f"Nothing of the {exchanges} could be decoded: see trust."
    return ""


def _table(section: Section) -> dict[str, Any]:
    """Columns, the first `ROWS` rows, and how many there are."""
    meanings = {column.name: column.meaning for column in section.answer.columns}
    first = section.rows.head(ROWS)
    columns, values = [], []
    for name, column in first.items():
        kind = _kind(column)
        columns.append({"name": name, "meaning": meanings.get(str(name), ""), "kind": kind})
        values.append(_values(column, kind))
    return {
        "columns": columns,
        "rows": list(zip(*values, strict=True)),
        "total": len(section.rows),
    }


def _kind(column: pd.Series[Any]) -> str:
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        return "time"
    if pd.api.types.is_bool_dtype(column.dtype):
        return "flag"
    if pd.api.types.is_integer_dtype(column.dtype):
        return "integer"
    return "number" if pd.api.types.is_numeric_dtype(column.dtype) else "text"


def _values(column: pd.Series[Any], kind: str) -> list[Any]:
    """As JSON has them; times in µs since 1970."""
    if kind == "time":
        column = (column.astype("int64") // 1000).where(column.notna())
    given = column.astype("object").where(column.notna(), None).tolist()
    if kind == "text":
        return [None if value is None else printable(str(value)) for value in given]
    return [round(value, 6) if isinstance(value, float) else value for value in given]


def _template() -> jinja2.Template:
    loader = jinja2.FileSystemLoader(HERE)
    made = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    return made.get_template("page.html.jinja")


def _text(name: str) -> str:
    return (HERE / name).read_text("utf-8")


def _hash(script: str) -> str:
    """As a policy names a script that it allows (CSP 3, section 2.3.1)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
