"""Timestamps of producers, as made rows."""

from __future__ import annotations

import pytest

from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of
from tests.analysis.made_rows import SECOND, START

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
