"""Helpers of the tests of diagnoses."""

from __future__ import annotations

import shlex
from functools import cache
from typing import Any

import analysis
from analysis.answers import ANSWERS, Tables
from analysis.diagnosis.case import Case
from analysis.diagnosis.catalog import RULES, limits
from analysis.diagnosis.rule import Finding
from analysis.diagnosis.run import DIAGNOSIS_TABLES, diagnose
from analysis.sql.query import connected
from tests.analysis.answering import CAPTURES, capture, made

Row = dict[str, Any]


@cache
def findings(name: str) -> list[Row]:
    """The findings about a committed capture."""
    return diagnose(capture(name, DIAGNOSIS_TABLES)).to_dict("records")


def finding_of(name: str, rule: str, client: str | None = None) -> Row:
    """The only finding of a rule, or the only one about a client."""
    rows = [row for row in findings(name) if row["rule"] == rule]
    if client is not None:
        rows = [row for row in rows if client in row["clients"]]
    assert len(rows) == 1, [row["sentence"] for row in findings(name)]
    return rows[0]


def rows_of(name: str, command: str) -> list[Row]:
    """The rows that the command of a finding prints."""
    verb, *given = shlex.split(command)
    if verb == "sql":
        path = next(CAPTURES.glob(f"{name}.pcap*"))
        rows = analysis.connect(path).sql(given[0]).df()
    else:
        options = {k.removeprefix("--"): v for k, v in zip(given[::2], given[1::2], strict=True)}
        if "by" in options:
            options["by"] = options["by"].split(",")
        rows = ANSWERS[verb].function(capture(name, DIAGNOSIS_TABLES), **options)
    return rows.astype(object).where(rows.notna(), None).to_dict("records")


def findings_of(rule: str, tables: Tables) -> list[Finding]:
    """The findings of one rule; to run all takes a second."""
    with connected(tables, DIAGNOSIS_TABLES) as open_tables:
        return [*RULES[rule].function(Case(open_tables), limits({})[rule])]


def rules(**tables: list[dict[str, Any]]) -> list[str]:
    return [row.rule for row in diagnose(made(**tables)).itertuples()]
