"""Errors: a client gets the same error again and again.

Clients retry after a retriable error, and report nothing until they give up. Errors that belong to
the normal operation of Kafka (see the answer `errors`) count if they last. Quotas, fenced producers
and rebalances have rules of their own; how often members join decides how often they get
MEMBER_ID_REQUIRED and REBALANCE_IN_PROGRESS.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.error_advice import advice
from analysis.diagnosis.rule import CRITICAL, WARNING, Finding, Limits, Threshold, rule
from analysis.diagnosis.words import clients, known, ms, percent, share
from analysis.display.terminal import counted
from analysis.kafka.errors import error_name
from analysis.kafka.normal import is_normal
from analysis.sql.query import Row

ELSEWHERE: Final = (
    "THROTTLING_QUOTA_EXCEEDED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "MEMBER_ID_REQUIRED",
    "REBALANCE_IN_PROGRESS",
)  # fmt: skip
"""Errors of the rules throttling, fenced_producers and rebalances."""

COMMAND: Final = "errors --by client_id,api,error,topic"

REQUESTS: Final = "select client_id, api, count(*) as requests from exchanges group by all"


@rule(
    question="Does a client get the same error again and again?",
    place=8,
    rests_on="errors",
    thresholds=(
        Threshold(
            "responses", 3, "responses", "Responses with the error for one client, API and topic. "
            "A request that fails, and its retry, are two."
        ),
        Threshold(
            "metadata_responses", 10, "responses", "The same for retriable errors of Metadata: "
            "while a topic is created, clients ask for it ten times a second for up to a second."
        ),
        Threshold(
            "normal_responses", 20, "responses", "The same for errors of normal operation: a "
            "client retries ten times a second while a leader moves, which takes a second or two."
        ),
        Threshold(
            "normal_ms", 10_000, "ms", "Errors of normal operation must last this long, too: an "
            "election or the load of a coordinator takes seconds."
        ),
        Threshold(
            "critical_percent", 50, "%", "Critical if an error that is not retriable is in this "
            "share of the client's responses of the API, and in ten or more of them."
        ),
    ),
)  # fmt: skip
def recurring_errors(case: Case, limits: Limits) -> Iterator[Finding]:
    """Recurring errors, by the answer `errors`."""
    requests = {(row["client_id"], row["api"]): row["requests"] for row in case.rows(REQUESTS)}
    alike: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in case.answer(COMMAND):
        if row["error"] not in ELSEWHERE and _recurs(row, limits):
            alike[row["api"], row["error"], row["topic"]].append(row)
    for rows in alike.values():
        sent = sum(requests.get((row["client_id"], row["api"]), 0) for row in rows)
        yield _finding(rows, share(sum(row["responses"] for row in rows), sent), limits)


def _recurs(row: Row, limits: Limits) -> bool:
    if is_normal(row["error"], row["api"]):
        lasts = (row["last_time"] - row["first_time"]) / 1e6 >= limits["normal_ms"]
        return bool(lasts and row["responses"] >= limits["normal_responses"])
    waits = row["api"] == "Metadata" and row["retriable"]
    return bool(row["responses"] >= limits["metadata_responses" if waits else "responses"])


def _finding(rows: list[Row], part: float, limits: Limits) -> Finding:
    """A finding for clients that get the same error for the same API and topic."""
    row, error = rows[0], error_name(rows[0]["error"], rows[0]["error_code"])
    names = [each["client_id"] for each in rows]
    known_error = advice(error, bool(row["retriable"]))
    topic = f" for topic `{row['topic']}`" if row["topic"] else ""
    message = f' The broker says: "{row["message"]}"' if row["message"] else ""
    shown = ("client_id", "api", "error", "topic", "count", "responses", "first_packet")
    responses = sum(each["responses"] for each in rows)
    is_critical = not row["retriable"] and part >= limits["critical_percent"] and responses >= 10
    first = min(rows, key=lambda each: each["first_time"])
    last_time = max(each["last_time"] for each in rows)
    lasts = ms((last_time - first["first_time"]) / 1e6)
    return Finding(
        severity=CRITICAL if is_critical else WARNING,
        subject=clients(names),
        clients=known(names),
        sentence=f"{row['api']} of {clients(names)} fails with {error}{topic}",
        evidence=f"{counted(responses, 'response')}, {percent(part)} of the {row['api']} requests "
        f"of {'the client' if len(rows) == 1 else 'these clients'}, within {lasts}; "
        f"the first is packet {first['first_packet']}.{message}",
        numbers={name: row[name] for name in shown},
        cause=known_error.cause,
        side=known_error.side,
        setting=known_error.setting,
        change=known_error.change,
        reference=known_error.reference,
        command=COMMAND,
        requests=responses,
        first_packet=first["first_packet"],
        first_time=first["first_time"],
        last_time=last_time,
    )
