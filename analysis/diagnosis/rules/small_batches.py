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
from analysis.diagnosis.words import capital, client, of_client, percent, share, span_of
from analysis.display.terminal import counted
from analysis.sql.query import Row

FOLLOWING: Final = """
  with batches as (
    select client_id, coalesce(topic, '') as topic, time,
      epoch_ns(time) - lag(epoch_ns(time)) over (
        partition by connection_id, topic, partition order by time, nth) as gap
    from batches where api = 'Produce' and bytes <= {bytes})
  select client_id, topic, count(*) as joinable, min(time) as first_time, max(time) as last_time
  from batches where gap <= {gap} * 1e6 group by all"""
"""Small batches that follow another one for their partition within a gap."""

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
    for row in small:
        near = joinable.get((row["client_id"], row["topic"] or ""))
        if near is None or row["client_id"] in throttled:
            continue
        if share(near["joinable"], row["batches"]) >= limits["percent"]:
            yield _finding(row, near, limits["gap_ms"], in_flight.get(row["client_id"]))


def _finding(row: Row, near: Row, gap: float, in_flight: int | None) -> Finding:
    name, topic = row["client_id"], row["topic"]
    cause = "linger.ms is 0 or small, so each batch is sent before the next record arrives"
    change = "Set linger.ms to a value from 5 to 20."
    if in_flight == 1:
        cause = "the application may wait for each response before it sends the next record"
        change = f"Send without waiting for each result (callbacks instead of get()). {change}"
    return Finding(
        severity="warning",
        **of_client(row, "client_id topic batches requests records records_p50 bytes_p50"),
        sentence=f"{capital(client(name))} sends batches of {_records(row['records_p50'])} to "
        f"topic `{topic}` in quick succession",
        evidence=f"{counted(row['batches'], 'batch')} in {counted(row['requests'], 'request')}; "
        f"the median batch has {_records(row['records_p50'])} and {row['bytes_p50']:,.0f} bytes. "
        f"{percent(share(near['joinable'], row['batches']))} of the batches come within {gap:g} "
        "ms after another one of their partition."
        + (" The client has at most one request in flight." if in_flight == 1 else ""),
        cause=cause,
        side="client",
        setting="linger.ms=10",
        change=change,
        reference="KIP-1030; Kafka documentation: Producer Configs",
        command="batching --by client_id,topic",
        requests=row["requests"],
        **span_of([near]),
    )


def _records(median: float | None) -> str:
    if median is None:
        return "an unknown number of records"
    return "1 record" if median == 1 else f"{median:g} records"
