"""Fencing: a broker refuses a producer because its epoch is outdated.

A producer with a transactional id fences the previous producer with the same id by raising the
epoch. If the fenced producer gets an error, it was still running: two instances use the same id, or
an old instance did not stop before its successor started. A broker also raises the epoch when it
aborts a transaction that took too long.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from analysis.diagnosis.case import Case
from analysis.diagnosis.rule import DECLARED, Finding, Limits, Threshold, rule
from analysis.diagnosis.words import (
    Advice,
    capital,
    cells,
    client,
    listed,
    ms,
    of_clients,
    rows_by,
)
from analysis.display.terminal import counted
from analysis.sql.query import Row

ERRORS: Final = "errors --by client_id,api,error,topic"
STARTS: Final = """
  select transactional_id, epoch_ns(time) as time from transactions
  where api = 'InitProducerId' and transactional_id is not null"""
ABORTED: Final = "aborted by the broker"
"""The outcome of a transaction in the answer `producers`."""
FENCED: Final = ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")

INSTANCES: Final = """
  select transactional_id, client_id, client_ip, count(*) as starts
  from transactions join connections using (connection_id)
  where api = 'InitProducerId' and error_code = 0 group by all
  order by min((time, transactions.nth))"""
"""SQL: processes that started producers, by transactional id."""

_REPLACED: Final = Advice(
    "two instances share the id, an instance was replaced while it still ran, or the broker ended "
    "a transaction that took too long",
    "client", "transactional.id",
    "Give each instance a transactional.id of its own that survives restarts. Stop an instance "
    "before its successor starts.",
    "KIP-98, KIP-360",
)  # fmt: skip
_RIVALS: Final = _REPLACED._replace(cause="both instances run, and each start fences the other one")
_OVERDUE: Final = Advice(
    "the broker ended a transaction that took too long, and raised the epoch",
    "client", "transaction.timeout.ms",
    "Make transactions shorter, or raise transaction.timeout.ms (1 minute by default, "
    "transaction.max.timeout.ms of the broker at most).",
    "KIP-98, KIP-360",
)  # fmt: skip


@rule(
    question="Are producers fenced?",
    place=10,
    rests_on="producers errors transactions",
    thresholds=(
        Threshold("fenced", 1, "response", "One is enough: a fenced producer has lost its work."),
    ),
)
def fenced_producers(case: Case, limits: Limits) -> Iterator[Finding]:
    """Producers with an outdated epoch, by the answer `producers`."""
    rows = [row for row in case.answer("producers") if row["fenced"] >= limits["fenced"]]
    if rows:
        fenced = [each for each in case.answer(ERRORS) if each["error"] in FENCED]
        errors = rows_by(fenced, "client_id")
        for row in rows:
            yield _finding(case, row, _instances(case, row), errors)


def overdue_producers(case: Case) -> set[int]:
    """Ids of fenced producers whose transactions took too long."""
    fenced = [row for row in case.answer("producers") if row["fenced"]]
    return {row["producer_id"] for row in fenced if _is_overdue(case, row)}


def fenced_clients(case: Case) -> set[str]:
    """Clients of findings with default thresholds."""
    findings = fenced_producers(case, DECLARED["fenced_producers"].limits)
    return {name for each in findings for name in each.clients}


def _instances(case: Case, row: Row) -> list[Row]:
    """The processes that started a producer with the transactional id of a row."""
    id = row["transactional_id"]
    return case.matching(INSTANCES, row, "transactional_id") if id else []


def _aborted(case: Case, row: Row) -> list[Row]:
    """The transactions of a producer that brokers aborted."""
    transactions = case.matching("producers --show transactions", row, "producer_id")
    return [each for each in transactions if each["outcome"] == ABORTED]


def was_replaced(case: Case, transaction: Row) -> bool:
    """Whether a producer with the same transactional id started during a transaction."""
    starts = case.matching(STARTS, transaction, "transactional_id")
    return any(
        transaction["start_time"] < each["time"] <= transaction["end_time"] for each in starts
    )


def _is_overdue(case: Case, row: Row) -> bool:
    """Whether brokers ended transactions of a producer without a successor.

    With KIP-890, the epoch rises at each end of a transaction.
    """
    ended = _aborted(case, row)
    return bool(ended) and not any(was_replaced(case, each) for each in ended)


def _evidence(case: Case, row: Row) -> str:
    """A sentence about the transactions that brokers aborted; empty without any."""
    ended = _aborted(case, row)
    if not ended:
        return ""
    records = counted(sum(each["records"] for each in ended), "record")
    longest = "the longest " * (len(ended) > 1) + ms(
        max(each["duration_ms"] or 0 for each in ended)
    )
    return (
        f" Brokers aborted {counted(len(ended), 'transaction')} with {records}, "
        f"{longest} after its start."
    )


def _finding(
    case: Case, row: Row, instances: list[Row], by_client: dict[str | None, list[Row]]
) -> Finding:
    """The finding for a row of `producers`; `by_client`: errors of fenced clients."""
    id = row["transactional_id"]
    names = dict.fromkeys(each["client_id"] for each in instances or [row])
    errors = [error for name in names for error in by_client.get(name, [])] or [row]
    are_rivals = len([each for each in instances if each["starts"] > 1]) > 1
    first, last = row["first_epoch"], row["last_epoch"]
    advice = _RIVALS if are_rivals else _OVERDUE if _is_overdue(case, row) else _REPLACED
    labels = (
        f"{client(each['client_id'])} on {each['client_ip']} ({each['starts']:,})"
        for each in instances
    )
    return Finding(
        severity="warning",
        **of_clients([*names]),
        numbers=cells(row, "client_id transactional_id producer_id first_epoch last_epoch fenced"),
        sentence=f"{len(instances):,} instances share transactional id `{id}` and fence each other"
        if are_rivals
        else f"{capital(client(row['client_id']))} was fenced: its epoch of "
        + (f"transactional id `{id}`" if id else f"producer id {row['producer_id']}")
        + " is outdated",
        evidence=f"{counted(row['fenced'], 'response')} reported an outdated epoch"
        + ("" if first == last else f"; the epoch rose from {first:,} to {last:,}")
        + "."
        + _evidence(case, row)
        + f" Successful InitProducerId requests: {listed(labels)}." * (len(instances) > 1),
        command="producers",
        requests=row["fenced"],
        first_time=min(each["first_time"] for each in errors),
        last_time=max(each["last_time"] for each in errors),
        **advice._asdict(),
    )
