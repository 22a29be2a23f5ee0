"""Quantiles are exact; latency excluding wait time is the processing time in the broker's log."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import analysis
from analysis.sql.expressions import sum_of_ms
from tests.analysis import made_rows
from tests.analysis.answering import broker_log, capture, latency_parts, made
from tests.analysis.made_rows import START, batch, exchange, exchange_at
from tests.captures.truth import facts

MS = 1_000_000


def beside_the_log(name: str) -> pd.DataFrame:
    """The exchanges in the broker's log, with its columns and their wait times."""
    tables = capture(name)
    rows = tables["exchanges"].join(latency_parts(tables))
    log = broker_log(name)
    log["client_port"] = log["client"].str.rpartition(":")[2].astype("int32")
    return rows.merge(
        log[["client_port", "correlation_id", "api_key", "total_ms", "remote_ms"]],
        on=["client_port", "correlation_id", "api_key"],
    )


def beyond_the_log(name: str) -> pd.Series[float]:
    """The differences between net latencies and the times that the broker logged, in ms."""
    rows = beside_the_log(name)
    rows = rows[rows["net_ms"].notna()]
    purgatory = rows["remote_ms"].where(rows["max_wait_ms"].notna(), 0)
    return (rows["net_ms"] - (rows["total_ms"] - purgatory)).abs()


@pytest.mark.parametrize(
    "name",
    [
        "kafka-4-java",
        "kafka-4-net-delay",
        "kafka-4-group-consumer",
        "kafka-4-quotas",
        "kafka-4-tuned",
    ],
)
def test_net_of_wait_is_the_time_that_the_broker_worked(name: str) -> None:
    off = beyond_the_log(name)
    # The capture and the broker's log differ by the sockets, and by whole milliseconds.
    assert off.median() < 1
    assert off.max() < 15


def test_a_request_that_a_quota_leaves_unread_is_not_slow() -> None:
    """A producer has five requests in flight. The broker reads them after the throttle time."""
    off = beyond_the_log("kafka-4-steady-quota")
    assert off.median() < 1
    assert off.quantile(0.99) < 10


def test_a_fetch_that_waited_for_data_differs_from_a_slow_fetch() -> None:
    rows = beside_the_log("kafka-4-quorum")
    fetches = rows[(rows["api"] == "Fetch") & (rows["error_count"] == 0)]
    waited = fetches[fetches["remote_ms"] > 300]
    assert len(waited) > 300
    # A record has its timestamp before it is written, so that the wait is a little underrated.
    share = waited["poll_ms"] / waited["remote_ms"]
    assert share.median() > 0.9
    assert share.min() > 0.6
    assert share.max() < 1.1


def test_a_request_behind_a_long_poll_is_not_slow() -> None:
    """On leaving its group the Java client sent a Fetch behind one that was waiting."""
    tables = capture("kafka-4-java")
    rows = tables["exchanges"].join(latency_parts(tables))
    behind = rows[(rows["api"] == "Fetch") & (rows["in_flight"] == 2)]
    assert behind["latency_ms"].tolist() == [pytest.approx(432, abs=1)]
    log = beside_the_log("kafka-4-java").set_index("request_packet")
    assert log.loc[behind["request_packet"].iloc[0], "total_ms"] < 3
    assert behind["net_ms"].iloc[0] < 15


END = START + 600 * MS
"""The time of the response of most Fetches below."""


def at(start: float, end: float, **columns: Any) -> dict[str, Any]:
    """A request and its response, at these times in ms from the start."""
    times = START + int(start * MS), START + int(end * MS)
    return exchange_at(*times, latency_ms=end - start, **columns)


@pytest.mark.parametrize(
    ("row", "poll", "net"),
    [
        ({}, 600, None),  # a snap length cut the request before max_wait_ms
        ({"api": "ShareFetch"}, 600, None),
        ({"api": "Produce"}, 0, 600),
        ({"max_wait_ms": 500, "record_bytes": 0}, 500, 100),
        ({"max_wait_ms": 700, "record_bytes": None}, 600, 0),
        ({"max_wait_ms": 500, "record_bytes": 9}, 0, 600),  # old records end no wait
        ({"max_wait_ms": 500, "record_bytes": 9, "min_bytes": 10}, 500, 100),
        ({"max_wait_ms": 500, "min_bytes": 0}, 0, 600),
        ({"max_wait_ms": 500, "min_bytes": 0, "topics": ["__cluster_metadata"]}, 500, 100),
        ({"max_wait_ms": 500, "record_bytes": 9, "topics": ["__cluster_metadata"]}, 600, None),
        ({"max_wait_ms": 500, "error_count": 1}, 500, 100),
        ({"max_wait_ms": 500, "throttle_time_ms": 9}, 600, None),  # over its quota
        ({"max_wait_ms": 500, "throttle_time_ms": 9, "record_bytes": 9}, 0, 600),
        ({"api": "JoinGroup"}, 600, None),
    ],
)
def test_polls_and_net_latencies(row: dict[str, Any], poll: float, net: float | None) -> None:
    parts = latency_parts(made(exchanges=[at(0, 600, **({"api": "Fetch"} | row))])).iloc[0]
    assert parts["poll_ms"] == poll
    assert parts["net_ms"] == net or (net is None and np.isnan(parts["net_ms"]))


@pytest.mark.parametrize(("written", "poll"), [(-50, 0), (0, 0), (300, 300), (900, 500)])
def test_a_fetch_with_data_waited_until_its_first_batch_was_written(
    written: int, poll: float
) -> None:
    times = [written, written + 200]
    tables = made(
        exchanges=[at(0, 600, api="Fetch", max_wait_ms=500, record_bytes=9)],
        batches=[batch("Fetch", END, max_timestamp=START + time * MS) for time in times],
    )
    assert latency_parts(tables)["poll_ms"].tolist() == [poll]


@pytest.mark.parametrize(
    ("batches", "poll"),
    [
        ([(0, 0, 60, 100), (0, 1, 60, 300), (0, 2, 60, 400)], 300),
        ([(0, 0, 60, 300), (1, 0, 60, 100)], 300),
        ([(0, 0, 120, 100), (0, 1, 60, 300)], 100),
        ([(0, 0, 60, 300), (0, 1, 60, 100), (1, 0, 60, 400)], 300),  # in order of the log
        ([(0, 0, 60, 100), (0, 1, 30, 200)], 200),  # a snap length cut the last batch
        ([(0, 0, 60, -200), (0, 1, 60, -100)], 0),
    ],
)
def test_a_fetch_waited_until_min_bytes_were_written(
    batches: list[tuple[int, int, int, int]], poll: float
) -> None:
    """Batches: partition, offset, size, time in ms."""
    tables = made(
        exchanges=[at(0, 600, api="Fetch", max_wait_ms=500, min_bytes=100, record_bytes=180)],
        batches=[
            batch(
                "Fetch", END, partition=partition, base_offset=offset, bytes=size,
                max_timestamp=START + time * MS,
            )
            for partition, offset, size, time in batches
        ],
    )  # fmt: skip
    assert latency_parts(tables)["poll_ms"].tolist() == [poll]


@pytest.mark.parametrize(("replied", "poll"), [(-50, 0), (300, 300), (900, 500)])
def test_a_batch_is_written_when_its_produce_is_answered(replied: int, poll: float) -> None:
    """The producer kept the batch since long before."""
    place = {"base_offset": 7, "max_timestamp": START - 1000 * MS}
    sent = START - 100 * MS
    fetched = batch("Fetch", END, **place)
    produced = batch("Produce", sent, connection_id=1, **place)
    produce = exchange(
        connection_id=1, api="Produce", request_time=sent, request_end_time=sent,
        response_time=START + replied * MS, latency_ms=float(replied + 100),
    )  # fmt: skip
    fetch = at(0, 600, api="Fetch", max_wait_ms=500, record_bytes=9)
    for batches in ([fetched, produced], [fetched]):
        tables = made(exchanges=[fetch, produce], batches=batches)
        assert latency_parts(tables)["poll_ms"].iloc[0] == (poll if len(batches) == 2 else 0)


@pytest.mark.parametrize(
    ("columns", "poll"),
    [
        ({}, 300),
        ({"crc": 6}, 0),
        ({"crc": 6, "codec": "zstd"}, 300),
        ({"crc": 6, "timestamp_type": "log_append_time"}, 300),
        ({"crc": 6, "magic": 1}, 300),
    ],
    ids=["same", "other", "compressed", "dated", "converted"],
)
def test_another_batch_has_the_offset_in_another_topic_of_the_same_name(
    columns: dict[str, Any], poll: float
) -> None:
    """A broker that stores a batch as it is does not change its checksum."""
    content = {
        "base_offset": 7, "crc": 5, "magic": 2, "codec": "none", "timestamp_type": "create_time",
        "max_timestamp": START - 1000 * MS,
    }  # fmt: skip
    produced = batch("Produce", connection_id=1, **content)
    fetched = batch("Fetch", END) | content | columns
    produce = at(0, 300, connection_id=1, api="Produce")
    fetch = at(0, 600, api="Fetch", max_wait_ms=500, record_bytes=9)
    tables = made(exchanges=[fetch, produce], batches=[fetched, produced])
    assert latency_parts(tables)["poll_ms"].iloc[0] == poll


@pytest.mark.parametrize(
    ("columns", "poll"),
    [({"client_rack": "b"}, 600), ({}, 300), ({"client_rack": "b", "broker_port": 9092}, 300)],
    ids=["follower", "no rack", "leader"],
)
def test_a_follower_returns_records_when_it_knows_that_they_are_replicated(
    columns: dict[str, Any], poll: float
) -> None:
    """How much of its latency a follower works is unknown."""
    produced = batch("Produce", connection_id=1, base_offset=7)
    fetched = batch("Fetch", END, base_offset=7)
    produce = at(0, 300, connection_id=1, api="Produce", broker_port=9092)
    fetch = {"api": "Fetch", "max_wait_ms": 500, "record_bytes": 9, "broker_port": 9093}
    tables = made(exchanges=[at(0, 600, **fetch | columns), produce], batches=[fetched, produced])
    parts = latency_parts(tables).iloc[0]
    assert parts["poll_ms"] == poll
    assert pd.isna(parts["net_ms"]) == (poll == 600)


def test_the_wait_at_a_follower_is_no_time_of_the_broker() -> None:
    """The broker works for a few ms, and waits for 100 to 300 ms for its leader."""
    rows = beside_the_log("kafka-4-racks").query("client_id == 'close-reader' and record_bytes > 0")
    followed = rows[rows["broker_port"] == 9093]
    assert (followed["total_ms"] - followed["remote_ms"]).max() < 10
    assert len(followed) == 8
    assert followed["net_ms"].isna().all()


@pytest.mark.parametrize(("crcs", "poll"), [((5,), 300), ((6,), 0), ((5, 5), 0)])
def test_the_batch_of_a_fetch_with_only_the_id_of_its_topic(
    crcs: tuple[int, ...], poll: float
) -> None:
    """Produce requests before version 13 name the topic. Brokers do not change the checksum."""
    topic_id = "3DxzU8YPSKiTJaxSRfhNyA"
    place = {"base_offset": 7, "max_timestamp": START - 1000 * MS}
    sent = [
        batch("Produce", connection_id=n, topic=f"t{n}", crc=crc, **place)
        for n, crc in enumerate(crcs, 1)
    ]
    fetched = batch("Fetch", END, topic=topic_id, topic_id=topic_id, crc=5, **place)
    fetch = at(0, 600, api="Fetch", max_wait_ms=500, record_bytes=9)
    produces = [at(0, 300, connection_id=n, api="Produce") for n, _ in enumerate(crcs, 1)]
    tables = made(exchanges=[fetch, *produces], batches=[fetched, *sent])
    assert latency_parts(tables)["poll_ms"].iloc[0] == poll


@pytest.mark.parametrize("is_transactional", [True, False])
def test_a_transaction_can_be_read_when_its_marker_is_written(is_transactional: bool) -> None:
    written = batch(
        "Fetch", END, producer_id=5, is_control=False, is_transactional=is_transactional
    )
    tables = made(
        exchanges=[at(0, 600, api="Fetch", max_wait_ms=500, record_bytes=9)],
        batches=[
            written | {"base_offset": 3, "max_timestamp": START - 900 * MS},
            written | {"base_offset": 4, "max_timestamp": START - 800 * MS, "producer_id": 6},
            written | {"base_offset": 5, "max_timestamp": START + 400 * MS, "is_control": True},
        ],
    )
    assert latency_parts(tables)["poll_ms"].tolist() == [400 if is_transactional else 0]


@pytest.mark.parametrize(
    ("name", "packet", "net"),
    [
        # Its producer kept the records since before the Fetch, and sent them 45 ms before the end.
        ("kafka-4-followed", 193, 45),
        # read_committed: the marker of an abort came 4 ms before the response.
        ("kafka-4-followed", 1735, 10),
        # max_wait_ms is 500; the response has FENCED_LEADER_EPOCH.
        ("kafka-4-quorum", 5528, 10),
    ],
)
def test_long_polls_are_not_slow(name: str, packet: int, net: float) -> None:
    tables = capture(name)
    rows = tables["exchanges"].join(latency_parts(tables)).set_index("request_packet")
    assert rows.loc[packet, "latency_ms"] > 240
    assert 0 <= rows.loc[packet, "net_ms"] < net


def test_requests_of_a_connection_are_served_one_by_one() -> None:
    rows = [at(0, 100), at(10, 103), at(20, 104), at(20, 30, connection_id=1), at(200, 201)]
    parts = latency_parts(made(exchanges=rows))
    assert parts["queue_ms"].tolist() == [0, 90, 83, 0, 0]
    assert parts["net_ms"].tolist() == pytest.approx([100, 3, 1, 10, 1])


# Beside a client with a round trip of 40 ms, each message is at the broker 20 ms later or earlier.
FAR = {"handshake_rtt_ms": 40.0, "client_rtt_ms": 0.0, "broker_rtt_ms": 40.0}
FAR_AWAY = [made_rows.connection(connection_id=number, **FAR) for number in (0, 1)]


@pytest.mark.parametrize(
    ("exchanges", "queue", "net"),
    [
        # The broker works for 1 ms on each, at 20, 30 and 40.
        ([at(0, 41), at(10, 51), at(20, 61)], [0, 0, 0], [41, 41, 41]),
        # The broker works for 30 ms on the first, from 20 to 50. The second one arrives at 30.
        ([at(0, 70), at(10, 71)], [0, 20], [70, 41]),
        # Throttled until 121; the second one arrives at 30.
        ([at(0, 41, throttle_time_ms=100), at(10, 142)], [0, 91], [41, 41]),
    ],
    ids=["in flight", "slow", "throttled"],
)
def test_requests_on_their_way_to_a_distant_broker_do_not_queue(
    exchanges: list[dict[str, Any]], queue: list[float], net: list[float]
) -> None:
    throttled = {"api": "Produce", "api_version": 9}
    parts = latency_parts(made(exchanges=[e | throttled for e in exchanges], connections=FAR_AWAY))
    assert parts["queue_ms"].tolist() == pytest.approx(queue)
    assert parts["net_ms"].tolist() == pytest.approx(net)


def test_the_round_trip_of_a_long_poll_is_no_wait() -> None:
    """A record arrives at the broker at 220 and is written at 221. The Fetch arrived at 20."""
    produced = batch("Produce", START + 200 * MS, connection_id=1, base_offset=7)
    fetched = batch("Fetch", START + 242 * MS, base_offset=7)
    produce = at(200, 241, connection_id=1, api="Produce")
    fetch = at(0, 242, api="Fetch", max_wait_ms=500, record_bytes=9)
    heartbeat = at(900, 940, api="Heartbeat")
    tables = made(
        exchanges=[fetch, produce, heartbeat], batches=[fetched, produced], connections=FAR_AWAY
    )
    parts = latency_parts(tables)
    assert parts["poll_ms"].tolist() == pytest.approx([201, 0, 0])
    assert parts["net_ms"].tolist() == pytest.approx([41, 41, 40])


def test_a_long_poll_without_records_waits_beside_a_round_trip() -> None:
    fetches = [at(0, 541, max_wait_ms=500), at(600, 1120, max_wait_ms=500)]
    heartbeat = at(1200, 1240, api="Heartbeat")
    rows = [fetch | {"api": "Fetch", "record_bytes": 0} for fetch in fetches]
    parts = latency_parts(made(exchanges=[*rows, heartbeat], connections=FAR_AWAY))
    assert parts["poll_ms"].tolist() == pytest.approx([500, 480, 0])


@pytest.mark.parametrize(
    ("columns", "queue"),
    [
        ({"broker_rtt_ms": 80.0}, 0),  # acknowledgements of data were delayed by 40 ms
        ({"handshake_rtt_ms": 400.0}, 0),  # the broker was too busy to accept connections
        ({"handshake_rtt_ms": None}, 31),
        ({"client_rtt_ms": 40.0, "broker_rtt_ms": 0.0}, 31),  # captured at the broker
    ],
)
def test_the_round_trip_to_the_broker_is_no_longer_than_handshake_and_latencies(
    columns: dict[str, Any], queue: float
) -> None:
    link = made_rows.connection(**FAR | columns)
    parts = latency_parts(made(exchanges=[at(0, 41), at(10, 51)], connections=[link]))
    assert parts["queue_ms"].tolist() == pytest.approx([0, queue])


LATENCIES = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.none() | st.floats(0, 1e6)), max_size=30
)


@pytest.mark.slow
@settings(max_examples=12)
@given(LATENCIES)
def test_quantiles_are_exact(rows: list[tuple[str | None, float | None]]) -> None:
    """Each on a connection of its own, so that none waits."""
    exchanges = [
        exchange(client_id=client, latency_ms=ms, connection_id=index, request_packet=index)
        for index, (client, ms) in enumerate(rows)
    ]
    clients = analysis.latency(made(exchanges=exchanges), by=["client_id"])
    seen = {}
    for row in clients.to_dict("records"):
        client = None if pd.isna(row["client_id"]) else row["client_id"]
        seen[client] = row
    answered = [(client, ms) for client, ms in rows if ms is not None]
    assert set(seen) == {client for client, _ in answered}
    for client, row in seen.items():
        part = [ms for each, ms in answered if each == client]
        assert row["count"] == len(part)
        expected = [*np.quantile(part, (0.5, 0.95, 0.99)), max(part)]
        for prefix in ("", "net_"):
            names = [f"{prefix}{name}_ms" for name in ("p50", "p95", "p99", "max")]
            assert [row[name] for name in names] == pytest.approx(expected)
        assert rows[row["slowest_packet"]] == (client, max(part))


def test_the_slowest_requests_exclude_wait_time() -> None:
    rows = [
        at(0, 505, api="Fetch", max_wait_ms=500, request_packet=1),
        at(0, 90, connection_id=1, request_packet=2, topics=["a", "b"]),
        at(0, 40, connection_id=2, request_packet=3),
    ]
    slowest = analysis.latency(made(exchanges=rows), slowest=2)
    assert slowest["request_packet"].tolist() == [2, 3]
    assert slowest["topics"].tolist()[0] == "a, b"
    assert slowest["broker"].tolist() == ["10.0.0.9:9092"] * 2


def test_quantiles_are_those_of_the_round_trips_that_librdkafka_logged() -> None:
    """Of a request on a connection of its own, from one host: the client saw what the capture saw.

    librdkafka begins a round trip when `send` has returned, and gives it in steps of 0.01 ms.
    """
    round_trips = pd.DataFrame([(fact.api, fact.rtt_ms) for fact in facts("chatter-mock")])
    expected = round_trips.set_axis(["api", "ms"], axis=1).dropna().groupby("api")["ms"]
    by_api = analysis.latency(capture("chatter-mock")).set_index("api")
    for api in ("Fetch", "Produce", "OffsetCommit", "ListOffsets", "Metadata"):
        for name, quantile in (("p50_ms", 0.5), ("p95_ms", 0.95)):
            logged = expected.get_group(api).quantile(quantile)
            assert by_api.loc[api, name] == pytest.approx(logged, rel=0.05, abs=0.3), (api, name)


@pytest.mark.parametrize("times", [*permutations((0.1, 0.2, 0.3))])
def test_a_sum_of_times_does_not_depend_on_the_order_of_rows(times: tuple[float, ...]) -> None:
    rows = ", ".join(f"({time}::double)" for time in times)
    ((total,),) = duckdb.sql(f"select {sum_of_ms('ms')} from (values {rows}) as t(ms)").fetchall()
    assert total == 0.6
