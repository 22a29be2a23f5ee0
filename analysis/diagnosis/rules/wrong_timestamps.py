"""Timestamps: a producer dates its records in the future, or before Kafka existed.

Retention by time compares the largest timestamp of a segment with the clock of the broker
(`retention.ms`). One record that is dated a year ahead keeps its segment for a year longer; records
that are dated in the past are deleted with their segment. Offsets that are looked up by time, and
windows of Kafka Streams, are wrong, too.

Timestamps are in ms since 1970. A time in seconds is a date in January 1970. Some old client
libraries set the timestamp 0 themselves. A time in microseconds is beyond the range of the tables;
since Kafka 3.6, brokers refuse it (INVALID_TIMESTAMP, KIP-937).
Old dates after 2011 may be intended, for example by an import or a mirror.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.words import capital, client, ms, of_client, sql
from analysis.display.terminal import counted, local_date, moment_text
from analysis.sql.query import Row

FIRST_RELEASE: Final = 1_293_840_000 * 10**9
"""The beginning of 2011, the year of the first release of Kafka, in ns since 1970."""

_DATES: Final = """
  select client_id, topic, count(*) as batches, min(base_timestamp) as earliest,
    max(max_timestamp) as latest"""
_PRODUCED: Final = (
    "from batches where api = 'Produce' and coalesce(error_code, 0) != 32 group by all"
)
"""SQL: without batches that a broker refused with INVALID_TIMESTAMP, which `recurring_errors`
reports."""
COMMAND: Final = sql(f"{_DATES} {_PRODUCED}")
QUERY: Final = f"""{_DATES},
    max(epoch_ns(max_timestamp) / 1e6 - epoch_ns(time) / 1e6) as ahead_ms,
    min(time) as first_time, max(time) as last_time
  {_PRODUCED}"""


@rule(
    question="Do producers date records in the future, or far in the past?",
    place=26,
    rests_on="batches",
    thresholds=(
        Threshold(
            "ahead_minutes", 60, "minutes", "Time by which a record is ahead of its packet. Since "
            "Kafka 4.0, brokers refuse more by default (message.timestamp.after.max.ms, KIP-1030)."
        ),
    ),
)  # fmt: skip
def wrong_timestamps(case: Case, limits: Limits) -> Iterator[Finding]:
    """Producers of a topic with timestamps out of range."""
    for row in case.rows(QUERY):
        if (row["ahead_ms"] or 0) > 60_000 * limits["ahead_minutes"]:
            yield _finding(
                row, f"up to {ms(row['ahead_ms'])} in the future",
                f"The latest timestamp is {moment_text(row['latest'])}.",
                "the clock of the client is ahead, that of the capture is behind, or the "
                "application sets timestamps itself",
                "Records that are already in the topic stay until then, unless retention.bytes or "
                "DeleteRecords removes them.",
            )  # fmt: skip
        if row["earliest"] is not None and row["earliest"] < FIRST_RELEASE:
            yield _finding(
                row, f"{local_date(row['earliest'])}",
                f"The earliest timestamp is {moment_text(row['earliest'])}. Retention by time "
                "deletes such records with their segment.",
                "the application sets timestamps in seconds instead of milliseconds, the clock of "
                "the client is wrong, or its library sets the timestamp 0",
                "Send milliseconds since 1970, or no timestamp: the client then uses its clock, "
                "unless the library is too old.",
            )  # fmt: skip


def _finding(row: Row, date: str, evidence: str, cause: str, change: str) -> Finding:
    return Finding(
        severity="warning",
        **of_client(row, "client_id topic batches"),
        sentence=f"{capital(client(row['client_id']))} writes records to topic `{row['topic']}` "
        f"that are dated {date}",
        evidence=f"{counted(row['batches'], 'batch')}. {evidence}",
        cause=cause,
        side="client",
        change=f"Compare the clocks of both hosts. {change} With message.timestamp.type="
        "LogAppendTime, the broker sets the timestamps of a topic.",
        reference="KIP-32; KIP-937",
        command=COMMAND,
        requests=row["batches"],
    )
