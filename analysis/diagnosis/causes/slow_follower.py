"""The follower for which leaders wait, for the rule `slow_broker`: with acks=all, Produce requests
take as long as the slowest in-sync follower. The answer `replication` shows when each follower has
the records, if the capture contains its requests.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding
from analysis.diagnosis.words import capital, listed, ms, rows_by
from analysis.sql.query import Row

TIMES_OTHER: Final = 3
"""The delay of the slowest follower, as a multiple of that of the next one. If they are about
equal, the leader or its link is slow."""
CONFIRMED: Final = 100
"""Smallest sample for the 0.99 quantile."""


def _delays(case: Case, brokers: Collection[str]) -> list[Row]:
    """The delay of each follower of these leaders, in its slowest partition; the slowest first."""
    rows = [
        row for row in case.answer("replication")
        if row["confirmed"] >= CONFIRMED and not {*row["leaders"].split(", ")}.isdisjoint(brokers)
    ]  # fmt: skip
    slowest = (
        max(each, key=lambda row: row["delay_p99_ms"])
        for each in rows_by(rows, "replica_id").values()
    )
    return sorted(slowest, key=lambda row: -row["delay_p99_ms"])


def with_slow_follower(
    case: Case, finding: Finding, brokers: Collection[str], least_ms: float
) -> Finding:
    """The finding for slow Produce requests; with another cause if one follower is late."""
    delays = _delays(case, brokers)
    if len(delays) < 2:
        return finding
    first, second = delays[:2]
    first_ms, second_ms = first["delay_p99_ms"], second["delay_p99_ms"]
    if first_ms < max(least_ms, TIMES_OTHER * second_ms):
        return finding
    name, times = f"broker {first['replica_id']}", finding.sentence.rpartition(": ")[2]
    return replace(
        finding,
        sentence=f"{capital(name)}, a follower, delays Produce requests to {listed(brokers)}: "
        f"{times}",
        evidence=f"{finding.evidence} One of the followers is late: {name} has one record in a "
        f"hundred of {first['topic']}-{first['partition']} after {ms(first_ms)} or more, and "
        f"broker {second['replica_id']}, the next one, after {ms(second_ms)}.",
        cause=f"with acks=all, requests wait for {name}, which is a follower: it is slow, or the "
        "link to it is",
        setting=None,
        change=f"Look at the disk, the garbage collection and the CPU of {name}, and for "
        "retransmissions on the links to it (network --by client_id,broker). See replication.",
        reference="Kafka documentation, Replication",
    )
