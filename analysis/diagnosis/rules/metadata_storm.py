"""Metadata: a client requests metadata all the time.

A client needs metadata when it starts, after an error, and once in `metadata.max.age.ms` (5 minutes
by default). A response with all topics of a large cluster is megabytes long. If the requests are
due to reconnects, `connection_churn` reports the client.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from analysis.answers.leadership import TOGETHER
from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.words import capital, client, matching, of_client, span_of, verb
from analysis.display.terminal import counted

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
"""SQL: the time in which each client sends so many Metadata requests within ten seconds."""


@rule(
    question="Does a client request metadata too often?",
    place=14,
    rests_on="leadership",
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
    for row in case.answer("leadership --show clients"):
        if (
            row["metadata_busiest"] < max(limits["in_ten_seconds"], 1)
            or row["reconnects"] > row["metadata_requests"] / 2
        ):
            continue
        name = row["client_id"] or None
        refused = row["leader_errors"] + row["coordinator_errors"]
        yield Finding(
            severity="warning",
            **of_client(
                row, "client_id client_ip metadata_requests metadata_busiest leader_errors"
            ),
            sentence=f"{capital(client(name))} requests metadata {row['metadata_busiest']:,} times "
            "within ten seconds",
            evidence=f"{counted(row['metadata_requests'], 'Metadata request')} from "
            f"{row['client_ip']}."
            + f" {refused:,} of its requests {verb(refused, 'were')} refused because a leader, "
            "coordinator or controller had moved." * (refused > 0),
            cause="the client cannot find a leader or coordinator, and keeps requesting it"
            if refused
            else "the application lists topics or checks partitions in a loop, or it creates a "
            "client object for each operation",
            side="client",
            setting="retry.backoff.ms" if refused else None,
            change="See leadership and errors for the reason for these refusals."
            if refused
            else "Keep the result of list_topics() or partitionsFor(), and reuse client objects. "
            "Request single topics instead of all.",
            reference="KIP-580; Kafka documentation: Producer Configs, metadata.max.age.ms",
            command="leadership --show clients",
            requests=row["metadata_requests"],
            **span_of(matching(case.rows(query), row, "client_id client_ip")),
        )
