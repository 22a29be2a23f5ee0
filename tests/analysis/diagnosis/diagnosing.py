"""Helpers of the tests of diagnoses."""

from __future__ import annotations

import shlex
from functools import cache
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import analysis
import dissector
from analysis.answers import ANSWERS, Tables
from analysis.diagnosis import run
from analysis.diagnosis.case import Case
from analysis.diagnosis.catalog import RULES
from analysis.diagnosis.rule import Finding
from analysis.diagnosis.run import DIAGNOSIS_TABLES, diagnose
from analysis.sql.query import connected
from tests.analysis.answering import made, path_of

Row = dict[str, Any]


@cache
def arrow_tables(name: str) -> dict[str, pa.Table]:
    """The tables of a committed capture; to convert frames takes longer than most rules."""
    return dissector.open_capture(path_of(name)).tables(DIAGNOSIS_TABLES)


@cache
def findings(name: str) -> list[Row]:
    """The findings about a committed capture."""
    return diagnose(arrow_tables(name)).to_dict("records")


@cache
def rule_findings(name: str, rule: str) -> list[Row]:
    """The findings of one rule about a committed capture; to run all takes a second."""
    with (
        patch.object(run, "RULES", {rule: RULES[rule]}),
        patch.object(Case, "time_of_clients", lambda _: []),
    ):
        return diagnose(arrow_tables(name)).to_dict("records")


def finding_of(name: str, rule: str, client: str | None = None) -> Row:
    """The only finding of a rule, or the only one about a client."""
    rows = rule_findings(name, rule)
    if client is not None:
        rows = [row for row in rows if client in row["clients"]]
    assert len(rows) == 1, [row["sentence"] for row in rows]
    return rows[0]


def rows_of(name: str, command: str, tables: Tables | None = None) -> list[Row]:
    """The rows that the command of a finding prints; `tables`: a connection with those of the
    capture, for several commands."""
    verb, *given = shlex.split(command)
    if verb == "sql":
        rows = analysis.connect(path_of(name)).sql(given[0]).df()
    else:
        options = {k.removeprefix("--"): v for k, v in zip(given[::2], given[1::2], strict=True)}
        if "by" in options:
            options["by"] = options["by"].split(",")
        rows = ANSWERS[verb].function(tables or arrow_tables(name), **options)
    return rows.astype(object).where(rows.notna(), None).to_dict("records")


def findings_of(rule: str, tables: Tables, **thresholds: float) -> list[Finding]:
    """The findings of one rule; to run all takes a second."""
    values = RULES[rule].limits | thresholds
    with connected(tables, DIAGNOSIS_TABLES) as open_tables:
        return [*RULES[rule].function(Case(open_tables), values)]


def rules(*names: str, **tables: list[dict[str, Any]]) -> list[str]:
    """The rule of each finding about made rows, of these rules; without names: of all."""
    with connected(made(**tables), DIAGNOSIS_TABLES) as open_tables:
        case = Case(open_tables)
        return [
            name for name in names or RULES for _ in RULES[name].function(case, RULES[name].limits)
        ]


def times_of_clients(tables: Tables) -> list[Row]:
    """Where the time of each client went."""
    with connected(tables, DIAGNOSIS_TABLES) as open_tables:
        return Case(open_tables).time_of_clients()
