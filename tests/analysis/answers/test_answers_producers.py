"""Transactions end as in the logs of clients and coordinators; sequence numbers have no gaps."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import analysis
from tests.analysis.answering import capture, made
from tests.analysis.made_rows import SECOND, START, batch
from tools.record.kafka.truth import read

NEEDS = ("batches", "transactions")
MS = 1_000_000
CLIENT_MS = 60
"""From the wire to where the program notes it, on a busy machine."""


def test_transactions_are_those_of_their_client() -> None:
    rows = read("kafka-4-followed")
    logged = [row for row in rows if row["source"] == "client" and "transactional_id" in row]
    begun = [row["time"] for row in logged if row["event"] == "begun"]
    ended = [row for row in logged if row["event"] != "begun"]
    spans = analysis.producers(capture("kafka-4-followed", NEEDS), show="transactions")
    outcomes = {"timed out": "aborted by the broker"}
    assert spans["outcome"].tolist() == [outcomes.get(row["event"], row["event"]) for row in ended]
    assert spans["transactional_id"].eq("copier").all()
    assert spans["records"].tolist() == [4, 4, 4]
    for span, begin, end in zip(spans.itertuples(), begun, ended, strict=True):
        assert 0 < (span.start_time.value - begin) / MS < CLIENT_MS
        if end["event"] != "timed out":
            assert 0 < (end["time"] - span.end_time.value) / MS < CLIENT_MS


def test_a_transaction_that_timed_out_ends_as_in_the_coordinators_log() -> None:
    (rollback,) = [
        row["time"]
        for row in read("kafka-4-followed")
        if re.search("rollback .* transactionalId copier due to timeout", row.get("message", ""))
    ]
    spans = analysis.producers(capture("kafka-4-followed", NEEDS), show="transactions")
    span = spans.set_index("outcome").loc["aborted by the broker"]
    assert abs(span["end_time"].value - rollback) / MS < CLIENT_MS
    assert span["duration_ms"] >= 2000  # transaction.timeout.ms


@pytest.mark.parametrize("name", ["kafka-4-transactions", "kafka-4-transactions-old"])
def test_transactions_are_those_of_the_program(name: str) -> None:
    """The transactions of java/Transactions.java, before and after KIP-890."""
    spans = analysis.producers(capture(name, NEEDS), show="transactions")
    actual = spans[["transactional_id", "outcome", "records"]].values.tolist()
    assert actual == [
        ["copier", "committed", 10],
        ["copier", "committed", 10],
        ["copier", "aborted", 10],
        ["same", "aborted by the broker", 5],
        ["same", "committed", 5],
        ["slow", "aborted by the broker", 5],
    ]
    assert spans["group_id"].dropna().to_dict() == {1: "uncommitted"}
    producers = analysis.producers(capture(name, NEEDS)).set_index("transactional_id")
    assert producers["committed"].to_dict() == {"copier": 2, "same": 1, "slow": 0}
    assert producers["aborted"].to_dict() == {"copier": 1, "same": 0, "slow": 0}
    assert producers["ended_by_broker"].to_dict() == {"copier": 0, "same": 1, "slow": 1}
    assert producers.loc["same", "fenced"] > 0
    assert producers["gaps"].sum() == 0


def test_a_transaction_that_begins_before_the_markers_of_the_previous_one() -> None:
    """EndTxn raises the epoch and returns before the markers are written (KIP-890)."""
    base = {"producer_id": 7, "error_code": 0, "connection_id": 0, "client_id": "app"}
    written = batch("Produce", is_transactional=True, record_count=5)
    end = {"api": "EndTxn", "given_producer_id": 7, "committed": True}
    marker = {"api": "WriteTxnMarkers", "committed": True}
    tables: dict[str, list[dict[str, Any]]] = {"batches": [], "transactions": []}
    for epoch in range(3):
        time = START + epoch * SECOND
        row = base | {"producer_epoch": epoch}
        tables["batches"].append(written | row | {"time": time})
        ended = {"time": time + SECOND // 2, "response_time": time + SECOND * 6 // 10}
        tables["transactions"].append(row | end | ended | {"given_producer_epoch": epoch + 1})
        marked = {"time": time + SECOND + 1, "response_time": time + SECOND + 2}
        tables["transactions"].append(row | marker | marked | {"producer_epoch": epoch + 1})
    spans = analysis.producers(made(**tables), show="transactions")
    assert spans[["producer_epoch", "outcome", "records", "duration_ms"]].values.tolist() == [
        [epoch, "committed", 5, 600] for epoch in range(3)
    ]


def test_the_error_is_that_of_the_last_attempt() -> None:
    """A commit succeeds at the third attempt; the next one fails twice; the broker refuses a
    request with three batches."""
    base = {"producer_id": 7, "producer_epoch": 0, "connection_id": 0, "client_id": "app"}
    tables: dict[str, list[dict[str, Any]]] = {"batches": [], "transactions": []}
    produced = batch("Produce", is_transactional=True, record_count=1)
    attempts = [
        ("COORDINATOR_NOT_AVAILABLE", 15), ("CONCURRENT_TRANSACTIONS", 51), ("NONE", 0),
        ("NOT_COORDINATOR", 16), ("PRODUCER_FENCED", 90),
    ]  # fmt: skip
    for number, (error, code) in enumerate(attempts):
        at = START + number * SECOND
        end = {"time": at, "response_time": at + MS, "error": error, "error_code": code}
        tables["transactions"].append(base | end | {"api": "EndTxn", "committed": True})
    for at, code in ((START - 1, 0), (START + 5 * SECOND // 2, 0), (START + 9 * SECOND, 47)):
        written = {"time": at, "correlation_id": at % 1000, "error_code": code}
        tables["batches"] += [produced | base | written | {"partition": each} for each in range(3)]
    spans = analysis.producers(made(**tables), show="transactions")
    assert spans["outcome"].tolist() == ["committed", "failed"]
    assert spans["error"].fillna("").tolist() == ["", "PRODUCER_FENCED"]
    assert analysis.producers(made(**tables))["fenced"].tolist() == [2]


def test_a_client_that_only_the_mock_broker_fences() -> None:
    spans = analysis.producers(capture("librdkafka-mock-transactions", NEEDS), show="transactions")
    assert {"committed", "aborted"} <= set(spans["outcome"])


@pytest.mark.parametrize(
    "name",
    ["kafka-4-followed", "kafka-4-net-loss", "kafka-4-net-disorder", "kafka-4-cut-midway"],
)
def test_a_batch_that_is_taken_away_is_a_gap(name: str) -> None:
    tables: dict[str, Any] = dict(capture(name, NEEDS))
    assert analysis.producers(tables, show="gaps").empty
    rows = tables["batches"]
    rows = rows[(rows["api"] == "Produce") & rows["base_sequence"].notna()]
    rows = rows.drop_duplicates(["producer_id", "topic", "partition", "base_sequence"], keep=False)
    key = [rows[each] for each in ("producer_id", "topic", "partition")]
    inner = rows.groupby(key).filter(lambda each: len(each) > 2).sort_values("base_sequence")
    taken = inner.groupby(["producer_id", "topic", "partition"]).nth(1).iloc[0]
    tables["batches"] = tables["batches"].drop(index=taken.name)
    (gap,) = analysis.producers(tables, show="gaps").to_dict("records")
    assert (gap["producer_id"], gap["expected"]) == (taken["producer_id"], taken["base_sequence"])
    assert gap["actual"] == taken["base_sequence"] + taken["record_count"]
    producer = analysis.producers(tables).set_index("producer_id").loc[taken["producer_id"]]
    assert (producer["gaps"], producer["missing"]) == (1, taken["record_count"])


def numbered(sequence: int, count: int, at: int) -> dict[str, object]:
    numbers = {"base_sequence": sequence % (1 << 31), "record_count": count}
    return batch("Produce", at, producer_id=7, producer_epoch=0) | numbers


@pytest.mark.slow
@settings(max_examples=15)
@given(
    st.integers((1 << 31) - 200, (1 << 31) - 1),
    st.lists(st.tuples(st.integers(1, 50), st.sampled_from(["good", "lost", "twice"]))),
)
def test_gaps_are_found_where_numbers_begin_again(first: int, sent: list[tuple[int, str]]) -> None:
    """Consecutive batches with the counts of `sent`; batches may be lost or sent twice."""
    sent = [(1, "good"), *sent, (1, "good")]
    rows: list[dict[str, object]] = []
    missing, sequence = 0, first
    for count, fate in sent:
        rows += [numbered(sequence, count, len(rows))] * {"good": 1, "lost": 0, "twice": 2}[fate]
        missing += count if fate == "lost" else 0
        sequence += count
    gaps = analysis.producers(made(batches=rows), show="gaps")
    assert ((gaps["actual"] - gaps["expected"]) % (1 << 31)).sum() == missing
    fates = [fate for _, fate in sent]
    runs = sum(fate != "lost" == next_fate for fate, next_fate in pairwise(fates))
    assert len(gaps) == runs
