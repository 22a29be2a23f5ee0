"""Throttle times are those of the broker's request log; a client that does not wait is reported."""

from __future__ import annotations

import pandas as pd
import pytest

import analysis
from dissector.errors import DissectorError
from dissector.protocol import registry
from tests.analysis.answering import broker_log, capture, made
from tests.analysis.made_rows import START, connection, exchange, exchange_at

MS = 1_000_000


def of_log() -> pd.DataFrame:
    """The throttled requests of the broker's log, each with how long its client then waited."""
    rows = broker_log("kafka-4-quotas")
    rows["received"] = rows["time"] - rows["total_ms"] * MS
    following = rows.groupby("client")["received"].shift(-1)
    rows["waited_ms"] = (following - rows["time"]) / MS
    rows["api"] = rows["api_key"].map(registry.api_name)
    return rows[rows["throttle_time_ms"] > 0]


def test_throttle_times_are_those_of_the_brokers_log() -> None:
    by = ["client_id", "api"]
    throttled = analysis.throttle(capture("kafka-4-quotas"), by=by).set_index(by)
    times = of_log().groupby(by)["throttle_time_ms"]
    expected = pd.DataFrame(
        {"responses": times.size(), "total_ms": times.sum(), "longest_ms": times.max()}
    )
    pd.testing.assert_frame_equal(
        throttled[expected.columns].sort_index(), expected.astype("Int64"), check_index_type=False
    )
    assert throttled["total_ms"].is_monotonic_decreasing


def test_a_client_waited_if_it_is_late_in_the_brokers_log() -> None:
    rows = of_log()
    margin = 3  # the log has whole milliseconds, and is written after the response has left
    waited = rows["waited_ms"] >= rows["throttle_time_ms"] - margin
    clients = analysis.throttle(capture("kafka-4-quotas"), by=["client_id"]).set_index("client_id")
    assert clients["honoured"].to_dict() == waited.groupby(rows["client_id"]).sum().to_dict()
    assert (
        clients["last"].to_dict()
        == rows["waited_ms"].isna().groupby(rows["client_id"]).sum().to_dict()
    )
    assert clients["early"].sum() == clients["held"].sum() == 0


def answered(at: int, **columns: object) -> dict[str, object]:
    """A request at this time in ms, answered 2 ms later."""
    return exchange_at(START + at * MS, START + (at + 2) * MS, **columns)


@pytest.mark.parametrize(
    ("next_at", "verdict"),
    [
        (None, "last"),
        (1, "last"),  # sent before the client could know
        (3, "early"),
        (100, "early"),
        (101, "honoured"),  # the client's clock has whole milliseconds
        (102, "honoured"),
    ],
)
def test_the_next_request_of_the_connection_decides(next_at: int | None, verdict: str) -> None:
    rows = [
        answered(0, throttle_time_ms=100),
        answered(5, connection_id=1),  # of another connection, which is free to go on
    ]
    if next_at is not None:
        rows.append(answered(next_at))
    row = analysis.throttle(made(exchanges=rows)).iloc[0]
    verdicts = {"early": 0, "honoured": 0, "held": 0, "last": 0}
    assert {name: row[name] for name in verdicts} == verdicts | {verdict: 1}


@pytest.mark.parametrize(
    ("next_at", "columns", "verdict"),
    [
        (30, {}, "last"),  # on its way when the response left
        (43, {}, "early"),
        (50, {}, "early"),
        (50, {"in_flight": 2}, "last"),
        (53, {"in_flight": 2}, "early"),
        (50, {"request_end_time": START + 102 * MS}, "honoured"),  # behind a full window
    ],
)
def test_a_request_that_crossed_the_response_is_not_early(
    next_at: int, columns: dict[str, object], verdict: str
) -> None:
    """The client is 40 ms away from the capture point; the response left at 2 ms."""
    link = connection(client_rtt_ms=40.0, broker_rtt_ms=0.0, handshake_rtt_ms=40.0)
    rows = [answered(0, throttle_time_ms=100), answered(next_at, **columns)]
    row = analysis.throttle(made(exchanges=rows, connections=[link])).iloc[0]
    verdicts = {"early": 0, "honoured": 0, "held": 0, "last": 0}
    assert {name: row[name] for name in verdicts} == verdicts | {verdict: 1}


def test_the_request_after_those_that_crossed_decides() -> None:
    rows = [answered(0, throttle_time_ms=100), answered(3, in_flight=2)]
    for next_at, early in ((102, 0), (50, 1)):
        requests = [*rows, answered(next_at)]
        assert analysis.throttle(made(exchanges=requests)).iloc[0]["early"] == early


def test_a_response_that_the_broker_held_asks_nothing_of_the_client() -> None:
    rows = [
        answered(0, api="Produce", api_key=0, api_version=5, throttle_time_ms=2, latency_ms=2.0),
        answered(2, api="Produce", api_key=0, api_version=5),
        answered(9, connection_id=1, throttle_time_ms=50, api_version=5, latency_ms=2.0),
        answered(12, connection_id=1),
    ]
    apis = analysis.throttle(made(exchanges=rows), by=["api"]).set_index("api")
    assert apis["held"].to_dict() == {"Metadata": 0, "Produce": 1}
    assert apis["early"].to_dict() == {"Metadata": 1, "Produce": 0}
    assert apis.loc["Metadata", "earliest_ms"] == pytest.approx(49)


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(
        DissectorError, match=r"no column nonsense to group by; choose from: .*broker"
    ):
        analysis.throttle(made(), by=["nonsense"])


def test_nothing_throttled_is_no_row() -> None:
    assert not len(analysis.throttle(made(exchanges=[exchange(throttle_time_ms=0)])))
