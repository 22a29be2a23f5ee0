"""Metadata: a client requests metadata all the time.

A client needs metadata when it starts, after an error, and once in `metadata.max.age.ms` (5 minutes
by default). A response with all topics of a large cluster is megabytes long. If the requests are
due to reconnects, `connection_churn` reports the client. A client asks for a topic that does not
exist, or that has no leader yet, again and again: `recurring_errors` reports a topic that does not
exist, unless there are a few requests for each of many topics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow.compute as pc

from analysis.answers.leadership import TOGETHER
from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.rules.recurring_errors import unknown_topics
from analysis.diagnosis.words import (
    Advice,
    addresses,
    capital,
    clients,
    of_ends,
    rows_by,
    topics,
    verb,
)
from analysis.display.terminal import counted
from analysis.sql.query import Row

STORMS: Final = f"""
  select client_id, client_ip, min(first_time) as first_time, max(request_time) as last_time
  from (
    select client_id, client_ip, request_time, count(*) over recent as together,
      min(request_time) over recent as first_time
    from (select coalesce(client_id, '') as client_id, client_ip, request_time
      from exchanges where api = 'Metadata' and request_time is not null)
    window recent as (partition by client_id, client_ip order by epoch_ns(request_time)
      range between {TOGETHER - 1} preceding and current row))
  where together >= {{requests}} group by client_id, client_ip"""
"""SQL: the time in which each client sends this number of Metadata requests within ten seconds."""

MISSING: Final = """
  select coalesce(client_id, '') as client_id, client_ip,
    list(distinct topic order by topic) as topics,
    count(distinct (connection_id, correlation_id, time)) as responses
  from errors where api = 'Metadata' and topic is not null group by all"""
"""SQL: Metadata responses of each client in which a topic has an error."""

_REFERENCE: Final = "KIP-580; Kafka documentation: Producer Configs, metadata.max.age.ms"
_LOOP: Final = Advice(
    "the application lists topics or checks partitions in a loop, or it creates a client object "
    "for each operation",
    "client", None,
    "Keep the result of list_topics() or partitionsFor(), and reuse client objects. Request single "
    "topics instead of all.",
    _REFERENCE,
)  # fmt: skip
_MOVED: Final = Advice(
    "the client cannot find a leader or coordinator, and keeps requesting it",
    "client", "retry.backoff.ms",
    "See leadership and errors for the reason for these refusals.",
    _REFERENCE,
)  # fmt: skip
_MISSING: Final = Advice(
    "the client uses topics that do not exist, were deleted, or are being created, and asks for "
    "them until they have a leader",
    "client", None,
    "See errors for the topics. Create them before clients use them, and stop the clients of a "
    "topic before you delete it. If an application needs new topics all the time, use the key of "
    "a record instead.",
    _REFERENCE,
)  # fmt: skip


@rule(
    question="Does a client request metadata too often?",
    place=14,
    rests_on="leadership errors",
    thresholds=(
        Threshold("in_ten_seconds", 50, "requests", "Metadata requests of a client in its busiest "
                  "ten seconds. A client that waits for a leader sends one per retry.backoff.ms "
                  "(100 ms by default, with exponential back-off since KIP-580), for a few seconds "
                  "at most."),
    ),
)  # fmt: skip
def metadata_storm(case: Case, limits: Limits) -> Iterator[Finding]:
    """Clients with many Metadata requests, by the answer `leadership`."""
    query = STORMS.format(requests=limits["in_ten_seconds"])
    is_busy = pc.field("metadata_busiest") >= max(limits["in_ten_seconds"], 1)
    storms: dict[Advice, list[Row]] = {}
    for row in case.answer_where("leadership --show clients", is_busy):
        if row["reconnects"] > row["metadata_requests"] / 2:
            continue
        missing, (storm,) = (
            case.matching(each, row, "client_id client_ip") for each in (MISSING, query)
        )
        missing = [each for each in missing if 2 * each["responses"] >= row["metadata_requests"]]
        if missing and unknown_topics(case).issuperset(missing[0]["topics"]):
            continue
        refused = row["leader_errors"] + row["coordinator_errors"]
        advice = _MISSING if missing else _MOVED if refused else _LOOP
        errors = missing[0] if missing else {"responses": 0, "topics": []}
        storms.setdefault(advice, []).append(row | storm | errors | {"refused": refused})
    for advice, rows in storms.items():
        yield _finding(sorted(rows, key=lambda row: -row["metadata_busiest"]), advice)


def _finding(rows: list[Row], advice: Advice) -> Finding:
    """A finding for clients with the same cause, the busiest first.

    `rows`: of the answer, with the columns of `STORMS` and `MISSING`.
    """
    row, names = rows[0], [*rows_by(rows, "client_id")]
    requests, responses, refused = (
        sum(row[name] for row in rows) for name in ("metadata_requests", "responses", "refused")
    )
    hosts = addresses((row["client_ip"] for row in rows), "hosts")
    evidence = f"{counted(requests, 'Metadata request')} from {hosts}."
    if advice is _MISSING:
        missing = sorted({topic for row in rows for topic in row["topics"]})
        evidence += (
            f" {counted(responses, 'response')} {verb(responses, 'have')} an error about "
            f"{topics(missing)}."
        )
    if advice is _MOVED:
        evidence += (
            f" {counted(refused, 'request')} {verb(refused, 'were')} refused because a leader, "
            "coordinator or controller had moved."
        )
    busiest = f"{row['metadata_busiest']:,} times"
    return Finding(
        severity="warning",
        **of_ends(rows, "client_id client_ip metadata_requests metadata_busiest leader_errors"),
        sentence=f"{capital(clients(names))} "
        + (f"requests metadata {busiest}" if len(rows) == 1
           else f"request metadata up to {busiest} each")
        + " within ten seconds",
        evidence=evidence,
        command="leadership --show clients",
        requests=requests,
        **advice._asdict(),
    )  # fmt: skip
