"""Timestamps of producers, as made rows."""

from __future__ import annotations

import pytest

from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of
from tests.analysis.made_rows import SECOND, START, batch, error, exchange, partition

HOUR = 3600 * SECOND
LATEST = 2**63 // 10**6 * 10**6
"""In ns: the latest timestamp of the tables, in 2262."""
IN_2011 = 1_293_840_000 * SECOND


@pytest.mark.parametrize(
    ("first", "last", "dates"),
    [
        (START, START, []),
        (None, None, []),  # magic 0, or no timestamp
        (START, START + HOUR, []),
        (START, START + 3 * HOUR, ["up to 3.0 h in the future"]),
        (START, LATEST, ["up to 2089825.6 h in the future"]),
        (IN_2011, START, []),
        (IN_2011 - 1, START, ["2010-12-31"]),
        (0, START, ["1970-01-01"]),
        (-START, START + 10**6 * HOUR, ["up to 1000000.0 h in the future", "1916-02-18"]),
    ],
)
@pytest.mark.parametrize("api", ["Produce", "Fetch"])
def test_dates_of_records(api: str, first: int | None, last: int | None, dates: list[str]) -> None:
    batch = {"api": api, "time": START, "client_id": "app", "topic": "t", "record_count": 1}
    batches = [batch | {"base_timestamp": first, "max_timestamp": last}]
    sentences = [
        finding.sentence for finding in findings_of("wrong_timestamps", made(batches=batches))
    ]
    expected = [f"Client `app` writes records to topic `t` that are dated {date}" for date in dates]
    assert sentences == (expected if api == "Produce" else [])


def test_libraries_that_set_0() -> None:
    """As KafkaJS 1.4.0 and kafka-node do."""
    batch = {"api": "Produce", "time": START, "client_id": "app", "topic": "t"}
    batches = [batch | {"base_timestamp": 0, "max_timestamp": 0}]
    (finding,) = findings_of("wrong_timestamps", made(batches=batches))
    assert "its library sets the timestamp 0" in finding.cause


@pytest.mark.parametrize("time", [-START, 0])
def test_a_capture_whose_clock_was_not_set(time: int) -> None:
    batches = [{"api": "Produce", "time": time, "client_id": "app", "topic": "t"}
               | {"base_timestamp": START, "max_timestamp": LATEST}]  # fmt: skip
    (finding,) = findings_of("wrong_timestamps", made(batches=batches))
    assert "that of the capture is behind" in finding.cause


@pytest.mark.parametrize(("error_code", "count"), [(0, 1), (None, 1), (32, 0)])
def test_batches_that_the_broker_refuses(error_code: int | None, count: int) -> None:
    """INVALID_TIMESTAMP: the topic does not have these records."""
    batch = {"api": "Produce", "time": START, "client_id": "app", "topic": "t"}
    dates = {"base_timestamp": START, "max_timestamp": START + 3 * HOUR}
    batches = [batch | dates | {"error_code": error_code}]
    assert len(findings_of("wrong_timestamps", made(batches=batches))) == count


NAMES = [None, 'it\'s a "name"', "n" * 300]


@pytest.mark.parametrize("client_id", NAMES, ids=["null", "quotes", "long"])
@pytest.mark.parametrize(
    ("first", "last", "dates"),
    [
        (START, START + 3 * HOUR, " The records are dated up to 3.0 h in the future."),
        (START - 2 * HOUR, START - HOUR, " The records are dated up to 2.0 h in the past."),
        (None, None, ""),  # out of the range of the tables
    ],
)
def test_dates_of_batches_that_the_broker_refuses(
    client_id: str | None, first: int | None, last: int | None, dates: str
) -> None:
    dated = {"base_timestamp": first, "max_timestamp": last, "error_code": 32}
    tables = made(
        exchanges=[exchange(api="Produce", client_id=client_id)],
        errors=[error(api="Produce", client_id=client_id, error_code=32, retriable=False,
                      error="INVALID_TIMESTAMP", correlation_id=n) for n in range(3)],
        batches=[batch("Produce", client_id=client_id) | dated],
    )  # fmt: skip
    (finding,) = findings_of("recurring_errors", tables)
    assert dates in finding.evidence
    assert ("dated" in finding.evidence) == bool(dates)


@pytest.mark.parametrize("client_id", NAMES, ids=["null", "quotes", "long"])
@pytest.mark.parametrize(
    ("age", "offset", "is_old"),
    [(2 * HOUR, 50, True), (60 * SECOND, 50, False), (2 * HOUR, 500, False)],
    ids=["old", "new", "not skipped"],
)
def test_skipped_records_that_were_old_when_they_were_produced(
    client_id: str | None, age: int, offset: int, is_old: bool
) -> None:
    """Retention deletes them at once. The consumer continues at offset 100."""
    dated = {"base_timestamp": START - age, "max_timestamp": START - age, "error_code": 0}
    place = {"base_offset": offset, "last_offset": offset + 9}
    refused = {"offset": 3, "error_code": 1, "error": "OFFSET_OUT_OF_RANGE"}
    tables = made(
        exchanges=[exchange(api="Fetch")],
        errors=[error(error_code=1, error="OFFSET_OUT_OF_RANGE", api="Fetch", retriable=True)],
        batches=[batch("Produce", client_id=client_id) | dated | place],
        partitions=[
            partition("Fetch") | refused, partition("Fetch", START + SECOND, offset=100),
        ],
    )  # fmt: skip
    (finding,) = findings_of("recurring_errors", tables)
    assert "skipped up to 97 records" in finding.evidence
    assert ("2.0 h or more in the past" in finding.evidence) == is_old
