"""Commits: a consumer commits or looks up offsets after almost every record.

The coordinator writes each commit to `__consumer_offsets` and waits for its replicas, as for a
Produce with acks=all. A consumer that commits synchronously waits for the response, so with a
commit per record, each record takes at least a round trip. A commit per poll gives the same
guarantee: after a failure, the group reads the records since the last commit again.

An application that looks up the end of a partition, or the committed offset, for each record also
waits for a response each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.words import (
    capital,
    client,
    listed,
    ms,
    of_client,
    percent,
    rows_by,
    span_of,
)
from analysis.display.terminal import counted
from analysis.sql.expressions import ms_between, sum_of_ms
from analysis.sql.query import Row

BUSY: Final = f"""
  with connections as (
    select client_id, connection_id, api = 'OffsetCommit' as is_commit, count(*) as sent,
      {sum_of_ms("latency_ms")} as wait_ms,
      min(request_time) as first_time, max(coalesce(response_end_time, request_time)) as last_time
    from exchanges
    where api in ('OffsetCommit', 'ListOffsets', 'OffsetFetch') and request_time is not null
    group by all)
  select client_id, is_commit,
    max(1000 * sent / greatest(span_ms, 1000)) as per_second,
    max(100 * wait_ms / nullif(span_ms, 0)) as wait_percent, min(first_time) as first_time,
    max(last_time) as last_time
  from (select *, {ms_between("first_time", "last_time")} as span_ms from connections)
  where sent >= {{requests}} group by client_id, is_commit"""
"""SQL: clients with many commits or look-ups of offsets on a connection: their rate there, and the
time that they take."""

LOOKUPS: Final = ("ListOffsets", "OffsetFetch")

PROGRESS: Final = """
  select client_id, sum(greatest(step, 0))::bigint as records from (
    select client_id, "offset" - lag("offset") over (
      partition by group_id, topic, partition order by time) as step
    from partitions where api = 'OffsetCommit')
  group by client_id"""
"""SQL: records by which the commits of each client advance the offsets of its groups."""


@rule(
    question="Does a consumer commit or look up offsets after almost every record?",
    place=25,
    rests_on="latency partitions",
    thresholds=(
        Threshold(
            "records", 5, "records", "Mean number of records by which a commit advances a group. "
            "A poll returns up to 500 (max.poll.records)."
        ),
        Threshold(
            "per_second", 50, "requests/s", "Commits or look-ups of a client on one connection. By "
            "default (auto.commit.interval.ms), a consumer commits every 5 seconds."
        ),
        Threshold(
            "wait_percent", 50, "%", "Share of the time that these requests take: a warning. Below "
            "it, a note."
        ),
        Threshold("requests", 100, "requests", "Smallest sample, on one connection."),
    ),
)  # fmt: skip
def frequent_commits(case: Case, limits: Limits) -> Iterator[Finding]:
    """Consumers with many commits, by the answer `latency` and the progress of their groups."""
    yield from _lookups(case, limits)
    busy = _busy(case, limits, is_commit=True)
    records = {row["client_id"]: row["records"] for row in case.rows(PROGRESS)} if busy else {}
    for row in case.answer("latency --by client_id,api") if busy else ():
        if row["api"] == "OffsetCommit" and row["client_id"] in busy:
            advance = records.get(row["client_id"]) or 0
            if advance <= limits["records"] * row["count"]:
                yield _finding(row, advance, busy[row["client_id"]], limits["wait_percent"])


def _busy(case: Case, limits: Limits, *, is_commit: bool) -> dict[str | None, Row]:
    """The rows of `BUSY` with a high rate, by client id."""
    return {
        row["client_id"]: row for row in case.rows(BUSY.format(requests=limits["requests"]))
        if row["per_second"] >= limits["per_second"] and row["is_commit"] == is_commit
    }  # fmt: skip


def _lookups(case: Case, limits: Limits) -> Iterator[Finding]:
    """Findings for clients that look up offsets all the time."""
    busy = _busy(case, limits, is_commit=False)
    lookups = [
        row for row in (case.answer("latency --by client_id,api") if busy else ())
        if row["api"] in LOOKUPS and row["client_id"] in busy.keys() - case.followers
    ]  # fmt: skip
    for client_id, rows in rows_by(lookups, "client_id").items():
        rows.sort(key=lambda row: -row["count"])
        counts = listed(f"{row['count']:,} {row['api']}" for row in rows)
        wait = busy[client_id]["wait_percent"] or 0
        yield Finding(
            severity="warning" if wait >= limits["wait_percent"] else "note",
            **of_client(rows[0], "client_id api count p50_ms"),
            sentence=f"{capital(client(client_id))} looks up offsets "
            f"{busy[client_id]['per_second']:,.0f} times a second",
            evidence=f"Requests: {counts}. {rows[0]['api']} takes {ms(rows[0]['p50_ms'])} "
            f"(median). On one connection, they take {percent(min(wait, 100))} of the time.",
            cause="the application calls endOffsets(), offsetsForTimes() or committed() for each "
            "record, or looks up the lag in a loop",
            side="client",
            change="Look up offsets at intervals of seconds. A consumer knows its lag without "
            "requests: currentLag(), or its metric records-lag.",
            reference="KIP-695",
            command="latency --by client_id,api",
            requests=sum(row["count"] for row in rows),
            **span_of([busy[client_id]]),
        )


def _finding(row: Row, advance: int, busy: Row, most_wait: float) -> Finding:
    wait, mean = busy["wait_percent"] or 0, round(advance / row["count"])
    pace = f"after {mean} records" if mean > 1 else "after each record"
    return Finding(
        severity="warning" if wait >= most_wait else "note",
        **of_client(row, "client_id api count p50_ms"),
        sentence=f"{capital(client(row['client_id']))} commits its offsets "
        f"{busy['per_second']:,.0f} times a second, {pace if advance else 'without new records'}",
        evidence=f"{counted(row['count'], 'OffsetCommit')} advanced the offsets by "
        f"{counted(advance, 'record')}. A commit takes {ms(row['p50_ms'])} (median). On one "
        f"connection, the commits take {percent(min(wait, 100))} of the time.",
        cause="the application commits after each record, or its polls return few records",
        side="client",
        change="Commit once per poll, or let the client commit at intervals (enable.auto.commit, "
        "auto.commit.interval.ms). In each case, the group reads the records since the last commit "
        "again after a failure.",
        reference="Kafka documentation: Consumer Configs",
        command="latency --by client_id,api",
        requests=row["count"],
        **span_of([busy]),
    )
