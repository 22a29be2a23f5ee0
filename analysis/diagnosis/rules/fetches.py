"""Fetches: a consumer asks for data more often than it gets data.

A Fetch waits at the broker until there are `fetch.min.bytes`, for `fetch.max.wait.ms` at most. An
idle consumer with the default of 500 ms sends two requests a second to each broker. Shorter waits
cost requests without any benefit, and with a minimum of 1 byte, the broker responds to each new
record. If a limit of the request is smaller than a batch, the response contains only this batch,
however many records are waiting (KIP-74). Fetches of brokers are excluded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding, Limits, Severity, Threshold, rule
from analysis.diagnosis.words import capital, client, of_client, percent, share
from analysis.display.terminal import counted
from analysis.kafka.client_ids import is_broker
from analysis.sql.expressions import PER_SECOND
from analysis.sql.query import Row

CONNECTIONS: Final = f"""
  select client_id, count(*) as requests, {PER_SECOND} as per_second from exchanges
  where api in ('Fetch', 'ShareFetch') and status = 'answered'
  group by client_id, connection_id"""
"""SQL: the Fetches of each connection, which the answer `fetches` counts, too."""

LIMITED: Final = """
  with filled as (
    select connection_id, correlation_id, response_time,
      bool_or(last_offset + 1 < high_watermark) as has_more,
      bool_or(last_offset + 1 < high_watermark and bytes >= max_bytes) as is_full
    from partitions where api = 'Fetch' and bytes > 0 group by all)
  select client_id, count(*) as responses, count(*) filter (is_full) as of_partition
  from exchanges join filled using (connection_id, correlation_id, response_time)
  where is_full or (has_more and record_bytes >= max_bytes) group by client_id"""
"""SQL: responses of each client that reach a limit of the request, although more records wait."""


@rule(
    question="Do consumers fetch too often for the data that they get?",
    place=16,
    rests_on="fetches",
    thresholds=(
        Threshold("per_second", 20, "requests/s", "Fetches of a client, and of one of its "
                  "connections. An idle consumer sends 2 a second to each of its brokers, and so "
                  "does each of several consumers with one client id."),
        Threshold("empty_percent", 80, "%", "Share of responses without records: a warning."),
        Threshold("small_percent", 80, "%", "Share of responses with less than 1,024 bytes, of "
                  "those with records: a note. A request costs a broker about as much as a few kB "
                  "of records."),
        Threshold("limited_percent", 80, "%", "Share of responses that reach a limit although more "
                  "records are waiting, of those with records: a warning."),
        Threshold("limited_bytes", 100_000, "bytes", "Median size of the records of these "
                  "responses. The default of max.partition.fetch.bytes is 1 MB: a consumer that "
                  "catches up reaches it."),
        Threshold("requests", 100, "requests", "Smallest sample, also of the connection."),
    ),
)  # fmt: skip
def fetches(case: Case, limits: Limits) -> Iterator[Finding]:
    """Consumers with many empty, limited or small responses, by the answer `fetches`."""
    busy = {
        row["client_id"] for row in case.rows(CONNECTIONS)
        if _is_load(row, limits) and not is_broker(row["client_id"])
    }  # fmt: skip
    limited = {row["client_id"]: row for row in (case.rows(LIMITED) if busy else ())}
    for row in case.answer("fetches --by client_id") if busy else ():
        if row["client_id"] not in busy or not _is_load(row, limits):
            continue
        empty, filled = share(row["empty"], row["requests"]), row["requests"] - row["empty"]
        if empty >= limits["empty_percent"]:
            yield _finding(
                row, "warning", "gets mostly empty responses to its fetches",
                f"{percent(empty)} of the responses have no records. fetch.max.wait.ms of the "
                f"requests: {row['max_wait_ms']}.",
                "fetch.max.wait.ms is shorter than the time between records",
                "fetch.max.wait.ms=500", "Set fetch.max.wait.ms to 500, the default, or higher.",
            )  # fmt: skip
        elif _is_limited(row, limited.get(row["client_id"]), limits):
            yield _limited_finding(row, limited[row["client_id"]])
        elif share(row["small"], filled) >= limits["small_percent"]:
            yield _finding(
                row, "note", "gets mostly small responses to its fetches",
                f"{counted(filled, 'response')} with records, the median "
                f"{row['bytes_p50']:,.0f} bytes. fetch.min.bytes of the requests: "
                f"{row['min_bytes']}.",
                "fetch.min.bytes is 1, the default: the broker responds as soon as a batch arrives",
                "fetch.min.bytes=50000",
                "Raise fetch.min.bytes if the consumer can wait up to fetch.max.wait.ms.",
            )  # fmt: skip


def _is_load(row: Row, limits: Limits) -> bool:
    is_frequent = row["per_second"] is not None and row["per_second"] >= limits["per_second"]
    return bool(is_frequent and row["requests"] >= limits["requests"])


def _is_limited(row: Row, limited: Row | None, limits: Limits) -> bool:
    filled = row["requests"] - row["empty"]
    return (
        limited is not None
        and share(limited["responses"], filled) >= limits["limited_percent"]
        and row["bytes_p50"] < limits["limited_bytes"]
    )


def _limited_finding(row: Row, limited: Row) -> Finding:
    is_of_partition = 2 * limited["of_partition"] >= limited["responses"]
    return _finding(
        row, "warning", "fetches few records at a time, although more are waiting",
        f"{counted(limited['responses'], 'response')} reached a limit of the request while more "
        f"records waited, the median {row['bytes_p50']:,.0f} bytes. max.partition.fetch.bytes of "
        f"the requests: {row['partition_max_bytes']}; fetch.max.bytes: {row['max_bytes']}.",
        "the limits of the requests are too small: a response has only one batch, or a few",
        "max.partition.fetch.bytes=1048576" if is_of_partition else "fetch.max.bytes=52428800",
        "Raise max.partition.fetch.bytes and fetch.max.bytes; the defaults are 1,048,576 and "
        "52,428,800.",
    )  # fmt: skip


def _finding(
    row: Row, severity: Severity, does: str, detail: str, cause: str, setting: str, change: str
) -> Finding:
    name = row["client_id"]
    return Finding(
        severity=severity,
        **of_client(row, "client_id requests per_second empty small limited bytes_p50"),
        sentence=f"{capital(client(name))} {does}: {row['per_second']:,.0f} requests a second",
        evidence=f"{counted(row['requests'], 'Fetch')}. {detail}",
        cause=cause,
        side="client",
        setting=setting,
        change=change,
        reference="Kafka documentation: Consumer Configs",
        command="fetches --by client_id",
        requests=row["requests"],
    )
