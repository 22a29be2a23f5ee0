"""Quotas: a broker imposes a wait on a client that exceeds its quota.

A throttle time is a wait that a broker imposes because of a quota. No log of the client shows it.
The API shows which quota it is. ``request_percentage`` applies to all APIs, and its throttle times
are at most a window of the quota (`quota.window.size.seconds`, KIP-124): a longer one of a Produce
or Fetch comes from a byte-rate quota. A controller rejects requests for topics above its quota.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.time import waited_for_quota
from analysis.diagnosis.words import capital, client, listed, ms, of_client, percent, rows_by, share
from analysis.display.terminal import counted
from analysis.sql.query import Row

QUOTAS: Final = {
    "Produce": ("producer_byte_rate", "KIP-13"),
    "Fetch": ("consumer_byte_rate", "KIP-13"),
    "CreateTopics": ("controller_mutation_rate", "KIP-599"),
    "DeleteTopics": ("controller_mutation_rate", "KIP-599"),
    "CreatePartitions": ("controller_mutation_rate", "KIP-599"),
}
REQUESTS: Final = ("request_percentage", "KIP-124")
"""The quota of all other APIs."""
WINDOW_MS: Final = 1000
"""Longest throttle time of `REQUESTS`: the default of quota.window.size.seconds."""
REJECTED: Final = """
  select client_id, count(distinct (connection_id, correlation_id, time)) as responses
  from errors where error = 'THROTTLING_QUOTA_EXCEEDED' group by client_id"""
"""SQL: responses to requests that a controller rejected because of a quota (KIP-599)."""


@rule(
    question="Is a client throttled by a quota?",
    place=1,
    rests_on="throttle",
    thresholds=(
        Threshold("total_ms", 1000, "ms", "A user notices a second. If the quota is large enough, "
                  "its clients have no throttle time at all, so even a small sum matters."),
        Threshold("critical_percent", 20, "%", "Critical if its throttled connections wait for "
                  "this share of the time between their first request and their last message: a "
                  "fifth of their throughput is lost."),
    ),
)  # fmt: skip
def throttling(case: Case, limits: Limits) -> Iterator[Finding]:
    """Clients with a throttle time, by the answer `throttle`."""
    throttled = [
        row for row in case.answer("throttle --by client_id")
        if row["total_ms"] >= limits["total_ms"]
    ]  # fmt: skip
    if not throttled:
        return
    by_api = rows_by(case.answer("throttle --by client_id,api"), "client_id")
    rejected = {row["client_id"]: row["responses"] for row in case.rows(REJECTED)}
    waits = {row["client_id"]: row for row in case.rows(waited_for_quota())}
    for row in throttled:
        name, apis = row["client_id"], [each["api"] for each in by_api[row["client_id"]]]
        quotas = _quotas(by_api[name])
        settings = list(dict.fromkeys(setting for setting, _ in quotas))
        is_certain = row["longest_ms"] > WINDOW_MS or REQUESTS in quotas
        waited = waits.get(name, {"waited_ms": None, "throttled_ms": None})
        part = min(share(waited["waited_ms"], waited["throttled_ms"]), 100)
        yield Finding(
            severity="critical" if part >= limits["critical_percent"] else "warning",
            **of_client(row, "responses total_ms longest_ms early held"),
            sentence=f"{capital(client(name))} spends {percent(part)} of its time throttled by a "
            f"quota",
            evidence=_evidence(row, apis, rejected.get(name, 0)),
            cause=f"the client exceeds {listed(settings)}"
            + ("" if is_certain else " or request_percentage"),
            side="broker",
            setting=listed(settings),
            change="Raise the quota of the client or its user with kafka-configs.sh --entity-type "
            "clients (or users), or reduce what the client sends.",
            reference=", ".join(dict.fromkeys([kip for _, kip in quotas] + ["KIP-219"])),
            command="throttle --by client_id",
            requests=row["responses"],
        )


def _quotas(rows: list[Row]) -> list[tuple[str, str]]:
    """The quotas that explain the throttle times of a client in each API."""
    has_byte_rates = all(row["api"] in QUOTAS for row in rows)
    return [
        QUOTAS.get(row["api"], REQUESTS)
        if has_byte_rates or row["longest_ms"] > WINDOW_MS
        else REQUESTS
        for row in rows
    ]


def _evidence(row: Row, apis: list[str], rejected: int) -> str:
    return (
        f"Brokers throttled {counted(row['responses'], 'response')} ({listed(apis)}) for "
        f"{ms(row['total_ms'])} in total, the longest for {ms(row['longest_ms'])}."
        + f" After {row['early']:,} of them the client did not wait long enough."
        * bool(row["early"])
        + f" The broker held back {row['held']:,} of them." * bool(row["held"])
        + f" {counted(rejected, 'request')} failed with THROTTLING_QUOTA_EXCEEDED." * bool(rejected)
    )
