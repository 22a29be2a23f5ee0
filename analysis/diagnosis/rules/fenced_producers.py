"""Fencing: a broker refuses a producer because its epoch is outdated.

A producer with a transactional id fences the previous producer with the same id by raising the
epoch. If the fenced producer gets an error, it was still running: two instances use the same id, or
an old instance did not stop before its successor started. A broker also raises the epoch when it
aborts a transaction that took too long.
"""

from __future__ import annotations

from collections.abc import Iterator

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import CLIENT, WARNING, Finding, Limits, Threshold, rule
from analysis.diagnosis.words import capital, client, of_client
from analysis.display.terminal import counted


@rule(
    question="Are producers fenced?",
    place=10,
    rests_on="producers",
    thresholds=(
        Threshold("fenced", 1, "responses", "One is enough: a fenced producer has lost its work."),
    ),
)
def fenced_producers(case: Case, limits: Limits) -> Iterator[Finding]:
    """Producers with an outdated epoch, by the answer `producers`."""
    for row in case.answer("producers"):
        if row["fenced"] < limits["fenced"]:
            continue
        name, id = row["client_id"], row["transactional_id"]
        of = f"transactional id `{id}`" if id else f"producer id {row['producer_id']}"
        yield Finding(
            severity=WARNING,
            **of_client(
                row, "client_id transactional_id producer_id first_epoch last_epoch fenced"
            ),
            sentence=f"{capital(client(name))} was fenced: its epoch of {of} is outdated",
            evidence=f"{counted(row['fenced'], 'response')} reported an outdated epoch"
            + (
                f"; the epoch rose from {row['first_epoch']} to {row['last_epoch']}."
                if row["last_epoch"] != row["first_epoch"]
                else "."
            ),
            cause="two instances share the id, an instance was replaced while it still ran, or the "
            "broker ended a transaction that took too long",
            side=CLIENT,
            setting="transactional.id",
            change="Give each instance a transactional.id of its own that survives restarts. Stop "
            "an instance before its successor starts.",
            reference="KIP-98, KIP-360",
            command="producers",
            requests=row["fenced"],
            first_time=row["first_time"],
            last_time=row["last_time"],
        )
