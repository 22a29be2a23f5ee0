"""Queues of connections: requests wait behind earlier ones of the same connection.

A broker processes the requests of a connection one by one. A request behind a long poll, or behind
a slow request, waits for its response, however fast the broker is. Produce is excluded, because a
producer has several requests in flight on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import CLIENT, WARNING, Finding, Limits, Threshold, rule
from analysis.diagnosis.words import capital, client, listed, ms, of_client, percent, share, sql
from analysis.display.terminal import counted
from analysis.sql.expressions import sum_of_ms
from analysis.sql.latency_breakdown import exchanges_with_parts

QUERY: Final = f"""
  select client_id, string_agg(distinct api, ', ' order by api) as apis, count(*) as requests,
    {sum_of_ms("queue_ms")} as queue_ms, {sum_of_ms("latency_ms")} as latency_ms
  from {{exchanges}} where api not in ('Fetch', 'ShareFetch', 'Produce') and net_ms is not null
  group by client_id order by queue_ms desc"""


@rule(
    question="Do requests wait for earlier requests of their connection?",
    place=6,
    rests_on="exchanges",
    thresholds=(
        Threshold("percent", 50, "%", "Most of the latency is the wait in the queue."),
        Threshold("queue_ms", 2000, "ms", "Smallest total wait of a client in the capture that "
                  "matters."),
        Threshold("requests", 50, "requests", "Smallest sample. At start-up, clients send several "
                  "requests at once to a broker that has just started."),
    ),
)  # fmt: skip
def queueing(case: Case, limits: Limits) -> Iterator[Finding]:
    """Clients whose requests queue."""
    for row in case.rows(QUERY.format(exchanges=exchanges_with_parts())):
        part = share(row["queue_ms"], row["latency_ms"])
        if (
            row["requests"] < limits["requests"]
            or row["queue_ms"] < limits["queue_ms"]
            or part < limits["percent"]
        ):
            continue
        name = row["client_id"]
        yield Finding(
            severity=WARNING,
            **of_client(row, "client_id requests queue_ms latency_ms"),
            sentence=f"{capital(client(name))} delays its own requests: "
            f"{percent(part)} of their latency is waiting for earlier ones",
            evidence=f"{counted(row['requests'], 'request')} ({listed(row['apis'].split(', '))}) "
            f"waited {ms(row['queue_ms'])} of {ms(row['latency_ms'])} behind other requests of "
            "their connections.",
            cause="the client sends requests on a connection that is occupied by a long poll or a "
            "slow request",
            side=CLIENT,
            change="Use another client instance, and so another connection, for requests that must "
            "not wait. Send larger batches, so that fewer requests are in flight.",
            reference="Kafka documentation: Protocol Guide, Network",
            command=sql(QUERY.format(exchanges="exchanges")),
            requests=row["requests"],
        )
