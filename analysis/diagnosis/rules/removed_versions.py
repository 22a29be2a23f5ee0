"""Kafka 4: a client uses versions that Kafka 4.0 removed.

Kafka 4.0 removed the oldest versions of many APIs (KIP-896). A client that uses such a version with
a broker of 2.1 or newer supports no newer one, so it stops working after the upgrade.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import CLIENT, WARNING, Finding, Limits, rule
from analysis.diagnosis.words import cells, clients, listed, of_clients
from analysis.display.terminal import counted
from analysis.sql.query import Row


@rule(
    question="Would Kafka 4 refuse a client?",
    place=19,
    rests_on="versions",
)  # fmt: skip
def removed_versions(case: Case, limits: Limits) -> Iterator[Finding]:
    """Clients with requests in removed versions, by the answer `versions`; one is enough."""
    by_use: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    rows = case.answer("versions")
    used: dict[str | None, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        used[row["client_id"]].append((row["software"], row["api"], row["api_version"]))
    for row in rows:
        by_use[tuple(used[row["client_id"]])].append(row)
    yield from map(_finding, by_use.values())


def _finding(rows: list[Row]) -> Finding:
    """A finding for clients that use the same versions."""
    worst = max(rows, key=lambda row: (row["breaks"].startswith("cannot"), row["requests"]))
    names = list(dict.fromkeys(row["client_id"] for row in rows))
    software = listed(dict.fromkeys(row["software"] for row in rows if row["software"]))
    count = sum(row["requests"] for row in rows)
    used = dict.fromkeys(
        f"{row['api']} {row['api_version']} ({_kept(row['kept_since'])})" for row in rows
    )
    return Finding(
        severity=WARNING,
        **of_clients(names),
        sentence=f"Kafka 4 refuses {clients(names)}: {worst['breaks']}",
        evidence=f"{counted(count, 'request')} in removed versions: {listed(used)}."
        + (f" Software: {software}." if software else "")
        + f" Addresses: {listed(dict.fromkeys(row['client'] for row in rows))}.",
        numbers=cells(worst, "client_id api api_version kept_since breaks requests"),
        cause="the client library is older than Kafka 2.1, or is configured for an old broker",
        side=CLIENT,
        setting="api.version.request",
        change="Upgrade the client library before the brokers. Remove settings that select an old "
        "version (broker.version.fallback, api_version).",
        reference="KIP-896",
        command="versions",
        requests=count,
        first_time=min(row["first_time"] for row in rows),
        last_time=max(row["last_time"] for row in rows),
    )


def _kept(version: int | None) -> str:
    return "removed" if version is None else f"4.0: {version} or newer"
