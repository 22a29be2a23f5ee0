"""Transactions: they stay open, or end only because the broker aborts them after a timeout.

Consumers with `isolation.level=read_committed` read up to the first open transaction of a
partition. A transaction that stays open stops them all. After `transaction.timeout.ms` the broker
aborts it, and the producer loses its records. A later EndTxn fails with INVALID_TXN_STATE, or with
an outdated epoch, which `fenced_producers` reports. If the connections of the producer ended
before, it stopped or crashed inside the transaction. A long transaction that its producer ends
delays these consumers, too, as do several that each take a second or more. If a client aborts most
of its transactions, these consumers never get its records.

A capture at the leader of a partition may lack the coordinator of a transaction, or packets of the
coordinator, and so the end of the transaction. Then only the last stable offset shows whether the
transaction is open.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from analysis.answers.producers import COORDINATED
from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import Finding, Limits, Threshold, rule
from analysis.diagnosis.rules.fenced_producers import (
    ABORTED,
    ERRORS,
    fenced_clients,
    overdue_producers,
    was_replaced,
)
from analysis.diagnosis.words import (
    capital,
    cells,
    client,
    known,
    ms,
    of_client,
    rows_by,
    share,
)
from analysis.display.terminal import counted
from analysis.sql.expressions import CLIENT_IDS
from analysis.sql.query import Row

ENDED: Final = "INVALID_TXN_STATE"
"""The error of an EndTxn after the broker has aborted the transaction."""
COMPLETE: Final = f"""
  from {COORDINATED} except
  select coalesce(given_producer_id, producer_id)
  from transactions join connections using (connection_id)
  where api != 'WriteTxnMarkers' and client_lost_bytes + broker_lost_bytes > 0"""
"""SQL: producers with a coordinator of which the capture has all bytes."""
STOPPED: Final = f"""
  select client_id, epoch_ns(max(last_time)) as last_time
  from connections join {CLIENT_IDS} using (connection_id)
  group by client_id having bool_and(closed is not null)"""
"""SQL: clients that closed all connections, and the time of their last packet."""


@rule(
    question="Do transactions stay open, or time out?",
    place=9,
    rests_on="producers stuck transactions",
    thresholds=(
        Threshold("open_ms", 10_000, "ms", "A transaction without an end, from its start to the "
                  "end of the capture. Most take less than a second; Kafka Streams commits every "
                  "100 ms. For those of a client that end: the time for which they hold back a "
                  "partition for a second or more each, in total."),
        Threshold("aborted_percent", 50, "%", "Transactions of a client that the client itself "
                  "aborts, of those that it ends: an application commits most of them."),
        Threshold("aborted", 10, "transactions", "Smallest number of them."),
        Threshold("timed_out", 1, "transaction", "Transactions that the broker aborted: one is "
                  "enough, because its records are lost."),
    ),
)  # fmt: skip
def stuck_transactions(case: Case, limits: Limits) -> Iterator[Finding]:
    """Open transactions, and those that the broker aborted, by the answer `producers`."""
    rows, end = case.answer("producers --show transactions"), case.last_message or 0
    still_open = [
        row | {"age_ms": (end - row["start_time"]) / 1e6} for row in rows
        if row["outcome"] == "open" and (end - row["start_time"]) / 1e6 >= limits["open_ms"]
    ]  # fmt: skip
    holds = case.answer("stuck")
    held = [row for row in holds if row["is_open"] and row["duration_ms"] >= limits["open_ms"]]
    coordinated = _coordinated(case) if rows or holds else set()
    yield from _aborted_by_clients(
        [row for row in rows if row["producer_id"] in coordinated], limits
    )
    aborted = aborted_transactions(case)
    ended = [
        row for row in holds
        if not row["is_open"] and row["readers"] and row["producer_id"] in coordinated
    ]  # fmt: skip
    for client_id, group in rows_by(ended, "client_id").items():
        if (
            client_id not in {*aborted, *fenced_clients(case)}
            and _held_ms(group) >= limits["open_ms"]
        ):
            yield _ended(group)
    for group in aborted.values():
        if len(group) >= limits["timed_out"]:
            finding = _aborted(group, case.matching(ERRORS, group[0], "client_id"))
            for stopped in case.matching(STOPPED, group[0], "client_id"):
                finding = _stopped(finding, group, stopped["last_time"])
            yield finding
    for row in still_open:
        if row["producer_id"] in coordinated:
            yield _open(row, row["age_ms"])
    begun = {row["producer_id"] for row in rows}
    for row in held:
        if row["producer_id"] not in begun & coordinated:  # a reader may show the id
            yield _held(row, began_before=row["producer_id"] not in begun)


def aborted_transactions(case: Case) -> dict[str | None, list[Row]]:
    """Transactions that brokers aborted although their producer was not fenced, by client id."""
    rows = case.answer("producers --show transactions")
    aborted = [row for row in rows if row["outcome"] == ABORTED]
    coordinated = _coordinated(case) if aborted else set()
    return rows_by(
        (row for row in aborted
         if row["producer_id"] in coordinated and not _is_fenced(case, row)),
        "client_id",
    )  # fmt: skip


def _coordinated(case: Case) -> set[int]:
    return {row["producer_id"] for row in case.rows(COMPLETE)}


def _is_fenced(case: Case, row: Row) -> bool:
    """Whether the producer was fenced because the transaction took too long, or the transaction
    ended because another producer with the same id started, although this one still ran: the rule
    `fenced_producers` reports it."""
    if row["producer_id"] in overdue_producers(case):
        return True
    return was_replaced(case, row) and any(
        each["fenced"] and each["producer_id"] == row["producer_id"]
        for each in case.answer("producers")
    )


def _aborted_by_clients(rows: list[Row], limits: Limits) -> Iterator[Finding]:
    """Findings for clients that abort most of their transactions."""
    ended = [row for row in rows if row["outcome"] in ("committed", "aborted")]
    for client_id, group in rows_by(ended, "client_id").items():
        aborted = [row for row in group if row["outcome"] == "aborted"]
        if (
            len(aborted) < max(limits["aborted"], 1)
            or share(len(aborted), len(group)) < limits["aborted_percent"]
        ):
            continue
        given = {
            "setting": None,
            "sentence": f"{capital(client(client_id))} aborts {len(aborted):,} of its "
            f"{counted(len(group), 'transaction')}",
        }
        yield Finding(
            severity="warning",
            evidence=f"It sent EndTxn to abort them. They contain "
            f"{counted(sum(row['records'] for row in aborted), 'record')}, which consumers with "
            "read_committed do not get.",
            cause="the application fails while it processes, or one of its requests fails",
            change="Look at the log of the application at these times, and at other findings about "
            "this client. Other consumers need isolation.level=read_committed, or they get the "
            "aborted records, too.",
            reference="KIP-98",
            **_common(aborted) | given,
        )


def _open(row: Row, age: float) -> Finding:
    return Finding(
        severity="critical",
        sentence=f"A transaction of {client(row['client_id'])} is open for {ms(age)}",
        evidence=f"Transactional id `{row['transactional_id']}`, "
        f"{counted(row['records'], 'record')} in {counted(row['partitions'], 'partition')}; the "
        f"capture ends {ms(age)} after its start, without an EndTxn.",
        cause="the application does not commit or abort after an error, or waits for something "
        "else inside the transaction",
        change="Commit or abort on every code path of the application. Until then, read_committed "
        "consumers of these partitions wait, usually for transaction.timeout.ms at most (1 minute "
        "by default). kafka-transactions.sh aborts a transaction that hangs.",
        reference="KIP-98, KIP-664",
        **_common([row]),
    )  # fmt: skip


def _held_ms(rows: list[Row]) -> float:
    """The time for which rows of `stuck` hold back the partition that waits longest."""
    partitions = rows_by(rows, "topic", "partition").values()
    return max(float(sum(row["duration_ms"] for row in group)) for group in partitions)


def _held(row: Row, *, began_before: bool) -> Finding:
    """A finding for a transaction that began before the capture, or without its coordinator."""
    where = f"partition {row['partition']} of topic `{row['topic']}`"
    readers = f" Readers: {row['readers']}." if row["readers"] else ""
    began = "that began before the capture" if began_before else f"of {client(row['client_id'])}"
    return Finding(
        severity="critical",
        subject=f"topic `{row['topic']}`",
        sentence=f"A transaction {began} holds back {where}",
        evidence=f"The last stable offset is {row['offset']:,} for {ms(row['duration_ms'])}, until "
        f"the capture ends; {counted(row['held'], 'offset')} after it cannot be read with "
        f"read_committed.{readers}",
        numbers=cells(row, "topic partition offset is_open held duration_ms readers"),
        cause="the producer is gone, or does not end its transaction",
        side="client",
        setting="transaction.timeout.ms",
        change="Find it with kafka-transactions.sh find-hanging, and abort it with "
        "kafka-transactions.sh abort.",
        reference="KIP-664",
        command="stuck",
        first_time=row["start_time"],
    )


def _ended(rows: list[Row]) -> Finding:
    """A finding for transactions of a client that ended late, while readers waited for them."""
    row = max(rows, key=lambda row: row["duration_ms"])
    number = len({(each["producer_id"], each["end_time"]) for each in rows})
    partitions = len({(each["topic"], each["partition"]) for each in rows})
    of_client = f" of {client(row['client_id'])}" if row["client_id"] else ""
    held = f"partition {row['partition']} of topic `{row['topic']}`"
    return replace(
        _held(row, began_before=False),
        severity="note",
        clients=known([row["client_id"]]),
        sentence=f"{counted(number, 'transaction')}{of_client} held back {held} for up to "
        f"{ms(row['duration_ms'])}",
        evidence=f"The last stable offset of {counted(partitions, 'partition')} did not advance, "
        f"{ms(_held_ms(rows))} in total for one of them; here, it was {row['offset']:,}. "
        "Meanwhile, consumers with read_committed got no later records, also of other producers. "
        f"Readers: {row['readers']}.",
        cause="the producer processes for long, or waits for something else, inside a transaction",
        change="Commit more often (Flink: at shorter intervals of checkpoints), and do not wait "
        "for other systems inside a transaction. A shorter transaction.timeout.ms (1 minute by "
        "default) limits the wait of the consumers.",
        reference="KIP-98",
        last_time=max((each["end_time"] for each in rows if each["end_time"]), default=None),
    )


def _aborted(rows: list[Row], errors: list[Row]) -> Finding:
    """The finding for transactions of a client; `errors`: its rows of `ERRORS`."""
    row = max(rows, key=lambda row: row["duration_ms"] or 0)
    refused = sum(each["responses"] for each in errors if each["error"] == ENDED)
    count = "a transaction" if len(rows) == 1 else f"{len(rows):,} transactions"
    return Finding(
        severity="warning",
        sentence=f"The broker aborted {count} of {client(row['client_id'])}",
        evidence=f"Transactional id `{row['transactional_id']}`: markers of the broker "
        f"{ms(row['duration_ms'])} after the start (longest), without an EndTxn of the producer; "
        f"{counted(sum(each['records'] for each in rows), 'record')} lost."
        + f" {counted(refused, 'later EndTxn')} failed with {ENDED}." * bool(refused),
        cause="the transaction took longer than transaction.timeout.ms, or a producer with the "
        "same id replaced this one",
        change="Make transactions shorter, or raise transaction.timeout.ms (1 minute by default, "
        "transaction.max.timeout.ms of the broker at most).",
        reference="KIP-98; Kafka documentation: Producer Configs",
        **_common(rows, row),
    )  # fmt: skip


def _stopped(finding: Finding, rows: list[Row], time: int) -> Finding:
    """The finding for transactions of a client whose last packet has this time."""
    row = rows[-1]
    if not row["start_time"] <= time < row["end_time"]:
        return finding
    return replace(
        finding,
        evidence=f"{finding.evidence} The connections of the client ended "
        f"{ms((time - row['start_time']) / 1e6)} after the start of its last transaction. Until "
        "the markers, consumers with read_committed got no later records of its partitions.",
        cause="the producer stopped or crashed inside a transaction",
        change="Look at the log of the application at that time. If it starts again with the same "
        "transactional.id, the broker aborts the transaction at once. A shorter "
        "transaction.timeout.ms (1 minute by default) limits the wait of the consumers.",
    )


def _common(rows: list[Row], shown: Row | None = None) -> dict[str, Any]:
    row = shown or rows[0]
    names = "client_id transactional_id producer_id outcome records duration_ms"
    return of_client(row, names) | {
        "side": "client",
        "setting": "transaction.timeout.ms",
        "command": "producers --show transactions",
        "first_time": min(each["start_time"] for each in rows),
        "last_time": max((each["end_time"] for each in rows if each["end_time"]), default=None),
    }
