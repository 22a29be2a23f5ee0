"""The page: the sections as one self-contained HTML file.

Text from the capture enters the page in only two ways: as JSON in a data block in which every ``<``
is escaped, and through a template that escapes it. The content security policy (CSP) of the page
allows only its own two scripts, by their hashes, and no external address.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import duckdb
import jinja2
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup, escape

from analysis.diagnosis.case import Case
from analysis.diagnosis.catalog import limits
from analysis.diagnosis.run import diagnosis_of
from analysis.display.diagnosis_screen import (
    NAMES_OF_SETTINGS,
    REPEATED,
    first_of_rules,
    have_same_advice,
    name_settings,
    sentence,
    times,
)
from analysis.display.presentation import names
from analysis.display.terminal import EMPTY, counted, duration_text, printable, size_text, span_text
from analysis.names.addresses import COLUMNS as ADDRESSES
from analysis.report import chart_data
from analysis.report.sections import Section, sections
from analysis.report.vega import vega as vega_script
from analysis.sql.query import Row
from dissector.arrays import value

FINDINGS: Final = 10
"""Findings that are shown at once; the others are folded."""
ROWS: Final = 2000
"""Maximum number of rows of an answer on the page; the first ones are kept."""

FOLDER: Final = Path(__file__).parent
_CODE: Final = re.compile("`([^`]+)`")

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
    },
}  # fmt: skip
"""Settings of Vega. Its colours are those of the style sheet, for light and dark themes."""


@value
class Tile:
    """A number in the head of the page."""

    name: str
    value: str
    section: str = ""
    """The section with details."""
    is_alert: bool = False


def page(
    name: str, sql: duckdb.DuckDBPyConnection, command_line: Callable[[str], str], chosen: str = ""
) -> Iterable[bytes]:
    """The file, in pieces.

    `name`: name of the capture; `sql`: a connection with its `ANALYSIS_TABLES`; `command_line`
    returns the command line of an answer, by its name; `chosen`: the filter of the exchanges.
    """
    totals, span = chart_data.totals(sql, is_filtered=bool(chosen)), chart_data.span(sql)
    case = Case(sql)
    diagnosis = diagnosis_of(case, limits({}), is_filtered=bool(chosen))
    shown, others = first_of_rules(diagnosis.findings)
    is_diagnosed = bool(totals["exchanges"] or shown)
    charts: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    items = [_item(each, charts, tables, command_line) for each in sections(sql, span, case)]
    data = {
        "charts": charts,
        "tables": tables,
        "config": CONFIG,
        "span": None if span is None else span.edges,
    }
    script, vega = _text("page.js"), vega_script()
    pieces = _template().generate(
        name=printable(name),
        version=version("kafka-dissector"),
        hashes=" ".join(map(_hash, (vega, script))),
        time=_time(totals, chosen),
        chosen=printable(chosen),
        note=_note(totals, chosen),
        tiles=_tiles(totals, {item["name"]: item for item in items}),
        findings=_findings(shown, diagnosis.last_time, command_line) if is_diagnosed else None,
        shown_findings=FINDINGS,
        finding_count=len(diagnosis.findings),
        other_findings=others,
        names_of_settings=NAMES_OF_SETTINGS if name_settings(shown) else "",
        findings_command=command_line("diagnose --format jsonl"),
        rules=diagnosis.rules,
        sections=items,
        range_command=None if span is None else command_line("report"),
        data=jinja2.utils.htmlsafe_json_dumps(data, separators=(",", ":"), allow_nan=False),
        style=Markup(_text("page.css")),
        vega=Markup(vega),
        script=Markup(script),
    )
    return (piece.encode(errors="backslashreplace") for piece in pieces)


def _item(
    section: Section, charts: dict[str, Any], tables: dict[str, Any],
    command_line: Callable[[str], str],
) -> dict[str, Any]:  # fmt: skip
    """A section for the template. `charts` and `tables` get those of the section, by name."""
    name = section.answer.name
    own = {f"{name}-{number}": chart for number, chart in enumerate(section.charts)}
    charts |= {key: chart | {"autosize": "fit-x"} for key, (_, chart) in own.items()}
    lists = {f"{name}-list-{n}": rows for n, rows in enumerate(section.lists.items())}
    tables[name] = _table(section, section.rows)
    tables |= {key: _table(section, rows) for key, (_, rows) in lists.items()}
    return {
        "name": name,
        "question": section.answer.question,
        "rows": len(section.rows),
        "count": _count(section),
        "is_alert": _is_alert(section),
        "charts": [{"name": key, "title": title, "height": 260} for key, (title, _) in own.items()],
        "lists": [{"name": key, "title": title} for key, (title, _) in lists.items()],
        "command": command_line(name),
    }


def _findings(
    findings: Sequence[Row], end: int | None, command_line: Callable[[str], str]
) -> list[dict[str, Any]]:
    """The findings for the template: text that may come from the capture. `end`: see `times`."""
    return [
        {
            "severity": row["severity"],
            "sentence": _marked(names().in_text(row["sentence"])),
            "times": times(row, end),
            "evidence": _marked(names().in_text(row["evidence"])),
            "is_repeated": is_repeated,
            "cause": REPEATED if is_repeated else _marked(sentence(row["cause"])),
            "setting": printable(" ".join(filter(None, [row["side"], row["setting"]]))),
            "change": _marked(row["change"]),
            "reference": row["reference"],
            "command": printable(command_line(row["command"])),
        }
        for row, is_repeated in zip(findings, have_same_advice(findings), strict=True)
    ]


def _marked(text: str) -> Markup:
    """The text, `printable` and escaped, with names between backticks as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(printable(text)))))


def _count(section: Section) -> int:
    """The number of findings in a section."""
    if "count" in section.rows.column_names:  # the count of a kind of problem may be 0
        return sum(count > 0 for count in section.rows["count"].to_pylist())
    return len(section.rows)


def _is_alert(section: Section) -> bool:
    if section.answer.name == "errors":
        return bool(pc.any(pc.greater(section.rows["count"], section.rows["normal"])).as_py())
    return section.answer.lists_problems and _count(section) > 0


def _tiles(totals: Mapping[str, Any], items: Mapping[str, Mapping[str, Any]]) -> list[Tile]:
    """The numbers in the head."""
    alerts = {"errors": "errors", "throttled": "throttle", "unanswered": "unanswered",
           "undecoded": "quality", "problems": "quality"}  # fmt: skip
    return [
        *(Tile(name, f"{totals[name]:,}") for name in ("exchanges", "connections", "clients")),
        Tile("brokers", f"{totals['brokers']:,}"),
        Tile("payload", size_text(totals["bytes"])),
        *(
            Tile(name, f"{totals[name]:,}", section, totals[name] > 0)
            for name, section in alerts.items()
        ),
        Tile("rebalances", f"{items['groups']['rows']:,}", "groups"),
    ]


def _time(totals: Mapping[str, Any], chosen: str) -> str:
    first, last = totals["first"], totals["last"]
    if first is None:
        return "" if chosen else "no TCP packets"
    return f"{span_text(first, last)} UTC, {duration_text(last - first)}"


def _note(totals: Mapping[str, Any], chosen: str) -> str:
    """A note if the capture, or its filter, has no exchanges, or none that could be decoded."""
    if not totals["exchanges"] and chosen:
        return "The filter selects no exchange of this capture."
    if not totals["exchanges"]:
        connections = counted(totals["connections"], "connection")
        return f"No Kafka exchanges in the {connections} of this capture."
    if totals["undecoded"] == totals["exchanges"]:
        exchanges = counted(totals["exchanges"], "exchange")
        return f"None of the {exchanges} could be decoded: see quality."
    return ""


def _table(section: Section, rows: pa.Table) -> dict[str, Any]:
    """Columns, the first `ROWS` rows, and the number of all rows."""
    variants = section.answer.other_columns.values()
    declared = [*section.answer.columns, *(column for each in variants for column in each)]
    meanings = {column.name: column.meaning for column in declared}
    first = rows.slice(0, ROWS)
    columns, values = [], []
    for name in first.column_names:
        column = first[name]
        kind = _kind(name, column)
        columns.append({"name": name, "meaning": meanings.get(name, ""), "kind": kind})
        shown = _values(column, kind)
        if name in ADDRESSES:
            shown = [None if value is None else names().shown(value) for value in shown]
        values.append(shown)
    return {"columns": columns, "rows": list(zip(*values, strict=True)), "total": len(rows)}


def _kind(name: str, column: pa.ChunkedArray) -> str:
    if pa.types.is_timestamp(column.type):
        return "time"
    if pa.types.is_boolean(column.type):
        return "flag"
    if pa.types.is_integer(column.type):
        return "integer"
    if not pa.types.is_floating(column.type):
        return "text"
    known = column.drop_null()
    # A quantile of whole numbers, such as bytes of batches, is a whole number in most cases.
    is_whole = len(known) and pc.all(pc.equal(pc.floor(known), known)).as_py()
    return "integer" if is_whole and not name.endswith("_ms") else "number"


def _values(column: pa.ChunkedArray, kind: str) -> list[Any]:
    """Values for JSON; times in µs since 1970."""
    if kind == "time":
        times = column.cast(pa.int64()).to_pylist()
        return [None if value is None else value // 1000 for value in times]
    values = column.to_pylist()
    if kind == "text":
        return [None if value is None else printable(str(value)) or EMPTY for value in values]
    return [round(value, 6) if isinstance(value, float) else value for value in values]


def _template() -> jinja2.Template:
    loader = jinja2.FileSystemLoader(FOLDER)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template("page.html.jinja")


def _text(name: str) -> str:
    return (FOLDER / name).read_text("utf-8")


def _hash(script: str) -> str:
    """The hash source of a script (CSP 3, section 2.3.1)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
