"""Batches: a producer sends several small batches in succession that could be one.

The cost of a request hardly depends on its size. Two batches for the same partition within a few ms
would have been one batch with `linger.ms`. A producer that waits for each response before it sends
the next record cannot fill batches, whatever its settings are. A throttled producer is excluded,
because the quota determines when it sends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.words import (
    capital,
    client,
    clients,
    of_ends,
    percent,
    rows_by,
    share,
    topics,
)
from analysis.display.terminal import counted
from analysis.sql.expressions import EXCHANGE
from analysis.sql.query import Row

FOLLOWING: Final = f"""
  with sent as (
    select client_id, connection_id, coalesce(topic, '') as topic, partition, time, min(nth) as nth
    from batches where api = 'Produce' group by client_id, {EXCHANGE}, topic, partition
    having sum(bytes) <= {{bytes}}),
  following as (
    select client_id, topic, time, epoch_ns(time) - lag(epoch_ns(time)) over (
        partition by connection_id, topic, partition order by time, nth) as gap
    from sent)
  select client_id, topic, count(*) as joinable, min(time) as first_time, max(time) as last_time
  from following where gap <= {{gap}} * 1e6 group by all"""
"""Small batches that follow another one for their partition within a gap. Before Kafka 0.11, a
batch is all messages of a request for a partition."""

IN_FLIGHT: Final = """
  select client_id, max(in_flight) as in_flight from exchanges where api = 'Produce' group by all"""


@rule(
    question="Do producers send separate requests for records that could share a batch?",
    place=15,
    rests_on="batching batches throttle",
    thresholds=(
        Threshold("percent", 50, "%", "More than half of the batches could have been part of the "
                  "batch before them."),
        Threshold("gap_ms", 10, "ms", "Two batches of a partition within this time could be one. "
                  "linger.ms is 5 by default since Kafka 4.0 (KIP-1030); with 10, a record waits "
                  "10 ms at most."),
        Threshold("bytes", 4096, "bytes", "Largest median size of a batch: a quarter of the "
                  "default of batch.size."),
        Threshold("batches", 100, "batches", "Smallest sample; fewer do not load a broker."),
    ),
)  # fmt: skip
def small_batches(case: Case, limits: Limits) -> Iterator[Finding]:
    """Producers with small batches in quick succession, by the answer `batching`."""
    small = [
        row for row in case.answer("batching --by client_id,topic")
        if row["batches"] >= limits["batches"] and row["bytes_p50"] <= limits["bytes"]
    ]  # fmt: skip
    if not small:
        return
    query = FOLLOWING.format(bytes=limits["bytes"], gap=limits["gap_ms"])
    joinable = {(row["client_id"], row["topic"]): row for row in case.rows(query)}
    in_flight = {row["client_id"]: row["in_flight"] for row in case.rows(IN_FLIGHT)}
    throttled = {row["client_id"] for row in case.answer("throttle --by client_id")}
    hasty = [
        row | {
            "joinable": near["joinable"], "first_time": near["first_time"],
            "last_time": near["last_time"], "waits": in_flight.get(row["client_id"]) == 1,
        }
        for row in small
        if row["client_id"] not in throttled
        and (near := joinable.get((row["client_id"], row["topic"] or "")))
        and share(near["joinable"], row["batches"]) >= limits["percent"]
    ]  # fmt: skip
    for rows in rows_by(hasty, "waits").values():
        yield _finding(sorted(rows, key=lambda row: -row["joinable"]), limits["gap_ms"])


def _finding(rows: list[Row], gap: float) -> Finding:
    """A finding for producers with the same cause, that with the most small batches first."""
    row, by_client = rows[0], rows_by(rows, "client_id")
    used = topics(list(dict.fromkeys(row["topic"] for row in rows)))
    does = f"{clients([*by_client])} {'sends' if len(by_client) == 1 else 'send'}"
    most = ""
    if len(rows) > 1:
        most = f"Most: {client(row['client_id'])} and topic `{row['topic']}`, with "
    cause = "linger.ms is 0 or small, so each batch is sent before the next record arrives"
    change = "Set linger.ms to a value from 5 to 20."
    if row["waits"]:
        cause = "the application may wait for each response before it sends the next record"
        change = f"Send without waiting for each result (callbacks instead of get()). {change}"
    waiting = "The client has" if len(by_client) == 1 else "Each client has"
    return Finding(
        severity="warning",
        **of_ends(rows, "client_id topic batches requests records records_p50 bytes_p50"),
        sentence=f"{capital(does)} batches of {_records(rows)} to {used} in quick succession",
        evidence=most
        + f"{counted(row['batches'], 'batch')} in {counted(row['requests'], 'request')}; "
        f"the median batch has {_records([row])} and {row['bytes_p50']:,.0f} bytes. "
        f"{percent(share(row['joinable'], row['batches']))} of the batches come within {gap:g} "
        "ms after another one of their partition."
        + (f" {waiting} at most one request in flight." if row["waits"] else ""),
        cause=cause,
        side="client",
        setting="linger.ms=10",
        change=change,
        reference="KIP-1030; Kafka documentation: Producer Configs",
        command="batching --by client_id,topic",
        # A request may have batches for several topics.
        requests=sum(max(row["requests"] for row in own) for own in by_client.values()),
    )


def _records(rows: list[Row]) -> str:
    """The median records of a batch: ``1 record``, ``1 to 2.5 records``."""
    medians = {row["records_p50"] for row in rows} - {None}
    if not medians:
        return "an unknown number of records"
    least, most = min(medians), max(medians)
    text = f"{most:g}" if least == most else f"{least:g} to {most:g}"
    return "1 record" if most == 1 else f"{text} records"
