"""Duplicates agree with the records that a reader of the whole log printed."""

from __future__ import annotations

from functools import cache
from typing import Any

import pandas as pd
import pytest

import analysis
from analysis.answers import ANSWERS
from tests.analysis.answering import capture, made
from tests.analysis.made_rows import SECOND, START, batch
from tools.record.kafka.truth import read

NAME = "kafka-4-resent"


def rows(name: str = NAME, **options: Any) -> pd.DataFrame:
    return analysis.duplicates(capture(name, ANSWERS["duplicates"].tables), **options)


@cache
def log(topic: str) -> pd.Series:
    """The number of the record at each offset: the producer numbered its records."""
    facts = read(NAME)
    records = [f for f in facts if f.get("event") == "received" and f["topic"] == topic]
    values = {record["offset"]: int(record["value"].split()[1]) for record in records}
    return pd.Series(values).sort_index()


def test_records_that_a_reader_had_twice() -> None:
    copies = log("twice").index[log("twice").duplicated()]
    (row,) = rows().query("topic == 'twice'").to_dict("records")
    assert (row["duplicate_records"], row["evidence"]) == (len(copies), "inferred")
    batches = rows(show="batches").query("stored > 1")
    offsets = [
        int(first) + number
        for batch in batches.to_dict("records")
        for first in batch["offsets"].split(", ")[1:]
        for number in range(batch["records"])
    ]
    assert sorted(offsets) == copies.tolist()


def test_batches_that_a_reader_had_out_of_order() -> None:
    once = log("twice").drop_duplicates()
    is_late = once < once.cummax()
    (row,) = rows().query("topic == 'twice'").to_dict("records")
    batch_size = 3
    assert row["out_of_order"] * batch_size == is_late.sum()


def test_an_idempotent_producer_sends_again_without_effect() -> None:
    assert log("once").is_unique
    assert log("once").is_monotonic_increasing
    (row,) = rows().query("topic == 'once'").to_dict("records")
    assert (row["idempotent"], row["evidence"]) == (True, "seen")
    assert row["resent"] > 0
    assert (row["duplicate_records"], row["out_of_order"], row["epochs"]) == (0, 0, 1)


@pytest.mark.parametrize("name", ["kafka-4-java", "chatter-mock", "kafka-4-net-loss"])
def test_no_duplicates(name: str) -> None:
    assert rows(name).empty


def sent(at: int, connection_id: int = 0, **columns: Any) -> dict[str, Any]:
    row = batch(
        "Produce", START + at * SECOND, connection_id=connection_id, crc=1, record_count=2,
        bytes=90, base_timestamp=START, timestamp_type="create_time", truncated=False,
        error_code=0, base_offset=at,
    )  # fmt: skip
    return row | columns


@pytest.mark.parametrize(
    ("second", "resent", "duplicates"),
    [
        ({"connection_id": 1}, 1, 2),
        ({}, 0, 0),  # equal records, each acknowledged
        ({"error_code": None, "base_offset": None}, 0, 0),
        ({"crc": 2, "connection_id": 1}, 0, 0),
        ({"connection_id": 1, "error_code": None, "base_offset": None}, 1, 0),
        ({"connection_id": 1, "error_code": 6, "base_offset": None}, 1, 0),
        ({"producer_id": 3, "base_sequence": 0}, 1, 2),
    ],
)
def test_two_copies(second: dict[str, Any], resent: int, duplicates: int) -> None:
    keys = ("producer_id", "base_sequence")
    first = {name: value for name, value in second.items() if name in keys}
    table = analysis.duplicates(made(batches=[sent(0, **first), sent(5, **second)]))
    assert table["resent"].sum() == resent
    assert table["duplicate_records"].sum() == duplicates


@pytest.mark.parametrize(("error_code", "resent"), [(None, 0), (6, 1)])
def test_a_producer_retries_on_the_same_connection_only_after_an_error(
    error_code: int | None, resent: int
) -> None:
    """With acks=0 no response comes, and equal batches are equal records."""
    batches = [sent(at, base_offset=None, error_code=error_code) for at in (0, 5)]
    assert analysis.duplicates(made(batches=batches))["resent"].sum() == resent


def test_a_batch_of_unknown_place_is_not_out_of_order() -> None:
    """It was sent first, and its response is missing, so it may not be in the log at all."""
    later = {"crc": 2, "base_timestamp": START + SECOND}
    unanswered = {"base_offset": None, "error_code": None, "base_timestamp": START + 2 * SECOND}
    batches = [sent(0, **unanswered), sent(1, **later)]
    batches.append(sent(2, crc=3, **unanswered) | {"base_timestamp": START})
    assert analysis.duplicates(made(batches=batches)).empty


@pytest.mark.parametrize("log", ["new", "old"])
def test_a_topic_that_was_created_again_has_another_log(log: str) -> None:
    """The producer gets an error for the old topic, and sends its batch to the new one."""
    refused = sent(20, base_offset=None, error_code=100, crc=2, topic_id="old")
    later = {"crc": 2, "topic_id": log, "base_offset": 0, "base_timestamp": START + 20 * SECOND}
    rows = [sent(10, topic_id="old"), sent(15, topic_id="old", crc=3)]
    rows += [refused | {"base_timestamp": later["base_timestamp"]}, sent(30, **later)]
    (row,) = analysis.duplicates(made(batches=rows)).to_dict("records")
    assert (row["batches"], row["resent"]) == (3, 1)
    assert row["out_of_order"] == (2 if log == "old" else 0)


def test_fetches_show_the_log_of_a_batch_if_produce_requests_have_no_topic_ids() -> None:
    """Fetch 13 has ids, but Produce only since version 13."""
    later = {"crc": 2, "base_timestamp": START + SECOND, "base_offset": 0}
    rows = [sent(10), sent(20, **later)]
    rows += [
        row | {"api": "Fetch", "time": row["time"] + 15 * SECOND, "topic_id": log}
        for row, log in zip(rows, ("1st", "2nd"), strict=True)
    ]
    assert analysis.duplicates(made(batches=rows)).empty


def test_a_log_that_begins_again_shows_a_topic_that_was_created_again() -> None:
    """No message has the id of the topic."""
    rows = [
        sent(at, base_offset=offset, crc=at) | {"base_timestamp": START + at * SECOND}
        for at, offset in ((0, 0), (1, 1), (20, 0), (21, 1))
    ]
    assert analysis.duplicates(made(batches=rows)).empty


def test_a_fetch_shows_a_copy_without_a_response() -> None:
    lost = sent(0, base_offset=None, error_code=None)
    fetched = [sent(9, api="Fetch", base_offset=offset) for offset in (3, 5, 3)]
    table = made(batches=[lost, sent(5, 1), *fetched])
    (row,) = analysis.duplicates(table, show="batches").to_dict("records")
    assert (row["sent"], row["stored"], row["offsets"]) == (2, 2, "3, 5")
