"""Run the rules: from tables to findings, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from analysis.answers import ANSWERS
from analysis.diagnosis.case import Case
from analysis.diagnosis.catalog import RULES, limits
from analysis.diagnosis.rule import COLUMNS, SEVERITIES
from analysis.diagnosis.words import share
from dissector.arrays import value

if TYPE_CHECKING:
    import pandas as pd

    from analysis.answers import Tables
    from analysis.sql.query import Row

DIAGNOSIS_TABLES: Final = (
    "exchanges", "errors", "batches", "connections", "topics", "problems", "partitions",
    "memberships", "transactions", "decompressed_batches", "brokers", "clusters",
)  # fmt: skip
"""Tables that the rules need."""
ANALYSIS_TABLES: Final = tuple(
    dict.fromkeys([*DIAGNOSIS_TABLES, *(t for answer in ANSWERS.values() for t in answer.tables)])
)
"""Tables that the rules and the answers need."""

ADVISORY: Final = (
    "small_batches", "frequent_commits", "fetches", "compression", "removed_versions",
    "plain_credentials",
)  # fmt: skip
"""Rules about how clients are written or configured: failures have other causes, although these
findings may concern more requests."""


@value
class Diagnosis:
    """The findings about a capture, and what they rest on."""

    findings: list[Row]
    """Values of `COLUMNS`, clients and numbers; times are in ns."""
    clients: list[Row]
    """Where the time of each client went: `analysis.diagnosis.time`."""
    requests: int
    first_time: int | None
    """Time of the first packet, in ns, or of the first selected exchange; None without any."""
    last_time: int | None
    """Time of the last one."""
    rules: int
    """Number of rules."""


def diagnose(tables: Tables, *, thresholds: Mapping[str, float] | None = None) -> pd.DataFrame:
    """Findings about a capture, most severe first: ``diagnose("x.pcap")``.

    `tables`: a capture, or its tables of `DIAGNOSIS_TABLES`. `thresholds`: values by
    ``RULE.THRESHOLD``, or ``RULE`` for its main threshold. The column ``clients`` has the client
    ids that a finding is about; ``numbers`` has the numbers of the evidence, a dict by the column
    of the answer.

    Raises DissectorError if a table is missing, if there is no such threshold, or if its value is
    not a number of at least 0.
    """
    import pandas as pd

    from analysis.columns import resolved
    from analysis.frames import frame
    from analysis.sql.query import table_of

    findings = diagnosed(tables, limits(thresholds or {})).findings
    table = frame(table_of(findings, resolved(COLUMNS)))
    for name in ("clients", "numbers"):
        table[name] = pd.Series([row[name] for row in findings], dtype="object")
    return table


def diagnosed(
    tables: Tables, values: Mapping[str, Mapping[str, float]], *, is_filtered: bool = False
) -> Diagnosis:
    """Run all rules; `values`: the thresholds of each rule, from `limits`.

    `is_filtered`: the tables contain only selected exchanges.

    Raises DissectorError if a table is missing.
    """
    from analysis.sql.query import connected

    with connected(tables, DIAGNOSIS_TABLES) as connection:
        return diagnosis_of(Case(connection), values, is_filtered=is_filtered)


def diagnosis_of(
    case: Case, values: Mapping[str, Mapping[str, float]], *, is_filtered: bool
) -> Diagnosis:
    """See `diagnosed`."""
    first, last = case.time_range(is_filtered=is_filtered)
    return Diagnosis(
        findings=_findings(case, values),
        clients=case.time_of_clients(),
        requests=case.requests,
        first_time=first,
        last_time=last,
        rules=len(RULES),
    )


def _findings(case: Case, values: Mapping[str, Mapping[str, float]]) -> list[Row]:
    names = [column.name for column in COLUMNS]
    rows = []
    for name, rule in RULES.items():
        for finding in rule.function(case, values[name]):
            added = {"rule": name, "share_percent": share(finding.requests, case.requests)}
            rows.append({
                each: added[each] if each in added else getattr(finding, each)
                for each in (*names, "clients", "numbers")
            })  # fmt: skip
    return sorted(rows, key=_rank)


def _rank(row: Row) -> tuple[int, bool, bool, float]:
    """The place of a finding: the worst first. Clients send no requests to a broker that is down,
    which causes other findings."""
    is_effect, is_advisory = row["rule"] != "failed_connections", row["rule"] in ADVISORY
    return SEVERITIES.index(row["severity"]), is_effect, is_advisory, -row["share_percent"]


def counts(severities: Iterable[str]) -> dict[str, int]:
    """The number of findings by severity, the worst first; without zeros."""
    given = list(severities)
    return {each: given.count(each) for each in SEVERITIES if each in given}


def is_as_bad(severities: Iterable[str], severity: str) -> bool:
    """Whether one of the severities is as bad as `severity`, or worse."""
    worst = SEVERITIES[: SEVERITIES.index(severity) + 1]
    return any(each in worst for each in severities)
