"""Resets: the offset at which a consumer continues after OFFSET_OUT_OF_RANGE.

Kafka's brokers do not name the bounds of the log in such a response. The consumer continues at the
offset that ListOffsets returns, by auto.offset.reset, or where its application seeks to: its next
Fetch contains this offset. If a follower does not have the offset yet, the consumer fetches it
again from the leader (KIP-392).

An offset before the log was deleted by retention. An offset after the end of the log is another
problem, which the positions of other messages show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.words import capital, client, ms
from analysis.display.terminal import counted
from analysis.sql.query import Row

OFFSET_OUT_OF_RANGE: Final = "OFFSET_OUT_OF_RANGE"

RESETS: Final = f"""
  with requests as (
    select *, api = 'Fetch' and coalesce(error = '{OFFSET_OUT_OF_RANGE}', false) as is_refused
    from partitions where api in ('Fetch', 'ListOffsets') and replica_id is null),
  steps as (
    select *, coalesce(
      first_value(case when api = 'Fetch' and not is_refused then "offset" end ignore nulls)
        over later,
      first_value(case when api = 'ListOffsets' and error_code = 0 then "offset" end ignore nulls)
        over later) as continued
    from requests
    window later as (partition by connection_id, topic, partition order by time, nth
      rows between 1 following and unbounded following))
  select client_id, topic, partition, "offset", continued, end_offset
  from steps left join (
    select topic, partition, max(greatest(high_watermark, try(last_offset + 1))) as end_offset
    from partitions where error_code = 0 group by all) as ends using (topic, partition)
  where is_refused and "offset" is not null
  order by try(abs(continued - "offset")) desc nulls last, time, nth"""
"""SQL: the offset of each refused Fetch, the one at which the consumer continued, and the highest
known end of the log; the largest difference first. A leader has one connection of the consumer."""

_CHECK_MS: Final = 300_000
"""log.retention.check.interval.ms by default: retention by time is no more exact."""

_OLD: Final = f"""
  select resets.client_id, resets.topic, arg_min(producers.client_id, age_ms) as producer,
    min(age_ms) as age_ms
  from ({RESETS}) as resets join (
    select *, epoch_ns(time) / 1e6 - epoch_ns(max_timestamp) / 1e6 as age_ms
    from batches where api = 'Produce' and error_code = 0) as producers
    on resets.topic = producers.topic and resets.partition = producers.partition
      and base_offset >= "offset" and last_offset < continued
  group by all having min(age_ms) > {_CHECK_MS}"""
"""SQL: the smallest age of the records that each client skipped, when they were produced."""


def resets(case: Case, errors: Iterable[Row]) -> list[Row]:
    """The rows of `RESETS` about rows of the answer `errors`; none for other errors."""
    ends = {(e["client_id"], e["topic"]) for e in errors if e["error"] == OFFSET_OUT_OF_RANGE}
    return [
        row for row in (case.rows(RESETS) if ends else ())
        if (row["client_id"], row["topic"]) in ends
    ]  # fmt: skip


def is_after_end(row: Row) -> bool:
    """Whether the requested offset of a reset is after the end of the log.

    A consumer never continues before the start of the log. The last known end may be an old one.
    """
    end = row["end_offset"] if row["continued"] is None else row["continued"]
    return end is not None and bool(row["offset"] > end)


def is_repeated(rows: Sequence[Row]) -> bool:
    """Whether a consumer requested the same offset again and again, and continued nowhere."""
    places = {(row["client_id"], row["topic"], row["partition"], row["offset"]) for row in rows}
    return len(rows) >= 3 * len(places) > 0 and all(row["continued"] is None for row in rows)


def reset_evidence(rows: Sequence[Row]) -> str:
    """How many records consumers skipped, or read again: sentences with a space before each.

    `rows`: of `resets`.
    """
    if not rows:
        return ""
    row, continued, partition = rows[0], rows[0]["continued"], rows[0]["partition"]
    if continued is None:
        end = row["end_offset"]
        known = "" if end is None else f", whose last known end is {end:,}"
        asked = f"requested offset {row['offset']:,} of partition {partition}{known}"
        if is_repeated(rows):
            return f" The consumer {asked}, {len(rows):,} times, and did not ask for another one."
        return (
            f" The consumer {asked}. The capture does not contain the offset at which it continued."
        )
    steps = [row["continued"] - row["offset"] for row in rows if row["continued"] is not None]
    skipped, repeated = sum(s for s in steps if s > 0), -sum(s for s in steps if s < 0)
    does = [f"skipped up to {counted(skipped, 'record')}"] * (skipped > 0)
    # They requested offsets after the end of the log, of which there are no records.
    does += [f"went back by up to {counted(repeated, 'offset')}"] * (repeated > 0)
    if not does:
        return " Consumers continued at the same offset."
    most = "most " if len(steps) > 1 else ""
    return (
        f" Consumers {' and '.join(does)}: {most}from offset {row['offset']:,} to {continued:,} of "
        f"partition {partition}."
    )


def skipped_dates(case: Case, errors: Iterable[Row]) -> str:
    """A sentence about records that were old when they were produced: retention by time deletes
    them by their dates."""
    skipped = {(row["client_id"], row["topic"]) for row in errors}
    rows = [row for row in case.rows(_OLD) if (row["client_id"], row["topic"]) in skipped]
    return "".join(
        f" {capital(client(row['producer']))} dated skipped records of topic `{row['topic']}` "
        f"{ms(row['age_ms'])} or more in the past, and retention.ms counts from these dates."
        for row in rows[:1]
    )
