"""Queues of connections: requests wait behind earlier ones of the same connection.

A broker processes the requests of a connection one by one. A request behind a long poll, or behind
a slow request, waits for its response, however fast the broker is. Produce is excluded, because a
producer has several requests in flight on purpose. Connections that a quota throttles are excluded,
too: `throttling` reports them. So are those on which a broker waited for replicas until
request.timeout.ms or offsets.commit.timeout.ms: `recurring_errors` reports them. Requests that wait
for the end of a pause of the broker, which `slow_broker` reports, are excluded, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.causes.pauses import all_pauses
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.words import (
    capital,
    cells,
    client,
    clients,
    listed,
    ms,
    of_ends,
    percent,
    rows_by,
    share,
)
from analysis.display.terminal import counted
from analysis.sql.expressions import endpoint, literal, sum_of_ms
from analysis.sql.latency_breakdown import exchanges_with_parts
from analysis.sql.query import Row

COMMAND: Final = "latency --by client_id,api"


_IN_VAIN: Final = """
  select connection_id from errors
  where error in ('REQUEST_TIMED_OUT', 'NOT_ENOUGH_REPLICAS_AFTER_APPEND')
    or (error = 'COORDINATOR_NOT_AVAILABLE' and api != 'FindCoordinator')"""
"""SQL: connections with a request whose records were not replicated in time. A coordinator writes
to a topic, too."""


def waits(pauses: Iterable[Row] = ()) -> str:
    """SQL: the waits of each client in each API, the longest sum first, without the requests that
    wait for the end of one of these `pauses` of brokers."""
    behind = "".join(f"""
        and not ({endpoint("broker")} = {literal(pause["broker"])}
          and {pause["until"]} between epoch_ns(request_time) and epoch_ns(response_time))"""
        for pause in pauses)  # fmt: skip
    return f"""
      select client_id, api, count(*) as requests,
        count(*) filter (queue_ms > 0) as waiting,
        coalesce({sum_of_ms("queue_ms")}, 0) as queue_ms,
        coalesce({sum_of_ms("latency_ms")}, 0) as latency_ms,
        min(request_time) filter (queue_ms > 0) as first_time,
        max(response_time) filter (queue_ms > 0) as last_time
      from {exchanges_with_parts()}
      where api not in ('Fetch', 'ShareFetch', 'Produce') and net_ms is not null
        and connection_id not in (select connection_id from exchanges where throttle_time_ms > 0)
        and connection_id not in ({_IN_VAIN}){behind}
      group by client_id, api order by queue_ms desc, api"""


@rule(
    question="Do requests wait for earlier requests of their connection?",
    place=6,
    rests_on="latency exchanges errors",
    thresholds=(
        Threshold("percent", 50, "%", "Most of the latency is the wait in the queue."),
        Threshold("queue_ms", 2000, "ms", "Smallest total wait of a client in the capture that "
                  "matters."),
        Threshold("time_percent", 10, "%", "Its share of the time between the first request of "
                  "the client and its last message: shorter waits delay the client little."),
        Threshold("waiting_percent", 10, "%", "Share of requests that wait: a broker that pauses "
                  "once delays a few, and is the cause."),
        Threshold("requests", 50, "requests", "Smallest sample. At start-up, clients send several "
                  "requests at once to a broker that has just started."),
    ),
)  # fmt: skip
def queueing(case: Case, limits: Limits) -> Iterator[Finding]:
    """Clients whose requests queue."""
    queued = []
    for rows in rows_by(case.rows(waits(all_pauses(case))), "client_id").values():
        requests, waiting, queue_ms, latency_ms = (
            sum(row[column] for row in rows)
            for column in ("requests", "waiting", "queue_ms", "latency_ms")
        )
        if (
            queue_ms > 0
            and requests >= limits["requests"]
            and queue_ms >= limits["queue_ms"]
            and share(queue_ms, case.span_ms(rows[0]["client_id"])) >= limits["time_percent"]
            and share(queue_ms, latency_ms) >= limits["percent"]
            and share(waiting, requests) >= limits["waiting_percent"]
        ):
            queued.append(rows)
    if queued:
        queued.sort(key=lambda rows: -sum(row["queue_ms"] for row in rows))
        (most,) = case.matching(COMMAND, queued[0][0], "client_id api")
        yield _finding([row for rows in queued for row in rows], most)


def _finding(rows: list[Row], most: Row) -> Finding:
    """`rows`: the APIs of each client, those with the longest wait first; `most`: the latency of
    the first one."""
    requests, queue_ms, latency_ms = (
        sum(row[column] for row in rows) for column in ("requests", "queue_ms", "latency_ms")
    )
    apis, names = sorted({row["api"] for row in rows}), [*rows_by(rows, "client_id")]
    own, of_most = ("its", "") if len(names) == 1 else ("their", f" of {client(names[0])}")
    return Finding(
        severity="warning",
        **of_ends([row for row in rows if row["queue_ms"] > 0], "client_id api")
        | {"numbers": cells(most, "client_id api count p99_ms net_p99_ms")},
        sentence=f"{capital(clients(names))} {'delays' if len(names) == 1 else 'delay'} {own} own "
        f"requests: {percent(share(queue_ms, latency_ms))} of their latency is waiting for earlier "
        "ones",
        evidence=f"{counted(requests, 'request')} ({listed(apis)}) "
        f"waited {ms(queue_ms / requests)} each on average behind other requests of their "
        f"connections, of a latency of {ms(latency_ms / requests)}. "
        f"Most: {counted(most['count'], most['api'] + ' request')}{of_most}, with a 0.99 quantile "
        f"of {ms(most['p99_ms'])}, and of {ms(most['net_p99_ms'])} excluding waits.",
        cause="the client sends requests on a connection that is occupied by a long poll or a slow "
        "request",
        side="client",
        change="Use another client instance, and so another connection, for requests that must not "
        "wait. Send larger batches, so that fewer requests are in flight.",
        reference="Kafka documentation: Protocol Guide, Network",
        command=COMMAND,
        requests=requests,
    )
