"""Rules on made rows: cases that no recording has, and small samples."""

from __future__ import annotations

from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

import analysis
from analysis.diagnosis.case import Case
from analysis.diagnosis.rules import queueing
from analysis.diagnosis.rules.growing_lag import FETCHING
from analysis.diagnosis.run import DIAGNOSIS_TABLES, diagnose
from analysis.diagnosis.words import ms
from analysis.input.filters import Filter
from analysis.sql import query as sql_query
from analysis.sql.query import connected, fetch, no_tables
from dissector.errors import DissectorError
from tests.analysis.answering import capture, made
from tests.analysis.diagnosis.diagnosing import findings_of, rules, times_of_clients
from tests.analysis.made_rows import (
    MS,
    SECOND,
    START,
    connection,
    error,
    exchange,
    exchange_at,
    fetched,
)

YEAR = pd.Timedelta(days=365)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(35_900, "35.9 s"), (120_000, "2.0 min"), (7_190_000, "119.8 min"), (137_490_000, "38.2 h")],
)
def test_a_duration_has_a_readable_unit(milliseconds: float, text: str) -> None:
    assert ms(milliseconds) == text


def test_an_empty_capture_has_no_findings() -> None:
    empty = diagnose(no_tables(DIAGNOSIS_TABLES))
    assert len(empty) == 0
    rows = made(exchanges=[exchange(latency_ms=-1.5)], connections=[connection()])
    full = diagnose(rows)
    assert len(full)
    assert empty.dtypes.drop(["clients", "numbers"]).equals(
        full.dtypes.drop(["clients", "numbers"])
    )


@pytest.mark.parametrize(
    ("kind", "count", "sentence"),
    [
        ("unreadable_file", 1, "The findings do not cover 1 file that could not be read"),
        ("unreadable_file", 2, "The findings do not cover 2 files that could not be read"),
        ("truncated_file", 1, "1 file is truncated: requests are missing"),
        ("damaged_file", 3, "Files are damaged in 3 places: requests are missing"),
        ("damaged_stream", 2, "2 files are truncated or damaged inside the compression: "
         "requests are missing"),
        ("fragment", 1, None),
    ],
)  # fmt: skip
def test_files_that_could_not_be_read(kind: str, count: int, sentence: str | None) -> None:
    problem = {"stage": "packets", "kind": kind, "capture": "x.pcap", "count": 1}
    problem["detail"] = "x.pcap is empty" if kind == "unreadable_file" else "is empty"
    findings = findings_of("coverage", made(exchanges=[exchange()], problems=[problem] * count))
    assert [each.sentence for each in findings] == ([sentence] if sentence else [])
    assert [each.evidence for each in findings] == (
        [f"The first: x.pcap{'' if kind == 'unreadable_file' else ':'} is empty."]
        if sentence
        else []
    )
    numbers = {"flaw": f"problem: packets {kind}", "count": count}
    assert [each.numbers for each in findings] == [numbers] * len(findings)


@pytest.mark.parametrize(
    ("streams", "sentence"),
    [
        (0, []),
        (1, ["only the first bytes of packets in 1 stream: fields and records are missing"]),
        (2, ["only the first bytes of packets in 2 streams: fields and records are missing"]),
    ],
)
def test_a_snap_length_hides_fields(streams: int, sentence: list[str]) -> None:
    problem = {"stage": "streams", "kind": "cut_packets", "count": 1, "bytes": 600, "detail": "x"}
    problems = [problem | {"connection_id": n} for n in range(streams)]
    findings = findings_of("coverage", made(exchanges=[exchange()], problems=problems))
    assert [each.sentence for each in findings] == [f"The capture contains {s}" for s in sentence]


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        ([], []),
        ([1], ["The capture dropped 1 packet: requests may be missing"]),
        ([1000, 200], ["The capture dropped 1,200 packets: requests may be missing"]),
    ],
)
def test_packets_that_the_capture_dropped(counts: list[int], sentence: list[str]) -> None:
    problem = {"stage": "packets", "kind": "dropped_packets", "detail": "eth0: the capture"}
    problems = [problem | {"count": count, "capture": "x.pcapng"} for count in counts]
    findings = findings_of("coverage", made(exchanges=[exchange()], problems=problems))
    assert [each.sentence for each in findings] == sentence


@pytest.mark.parametrize("ids", [["a"], ["a", "b"], [None, "a"], ["b", "a", "b"]])
def test_topics_of_several_clusters_are_mixed(ids: list[str | None]) -> None:
    rows = [
        {"topic": "orders", "topic_id": each, "partition": n, "time": START + n * SECOND}
        for n, each in enumerate(ids)
    ]
    findings = findings_of("coverage", made(exchanges=[exchange()], topics=rows))
    assert [each.numbers for each in findings] == [{"topic": "orders", "ids": 2}] * ("b" in ids)


def test_no_query_runs_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """To plan a query takes longer than its rows: those of rules without a candidate do not run."""
    queries: list[str] = []

    def fetched_rows(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
        queries.append(query)
        return fetch(connection, query)

    monkeypatch.setattr(sql_query, "fetch", fetched_rows)
    for name, most in (("kafka-4-franz-go", 55), ("kafka-4-misused", 76)):
        queries.clear()
        diagnose(capture(name, DIAGNOSIS_TABLES))
        assert len({*queries}) == len(queries) <= most


def test_a_clock_that_jumps_by_centuries() -> None:
    """Products of times exceed 64 bits."""
    tables = {
        name: rows.copy() for name, rows in capture("kafka-4-misused", DIAGNOSIS_TABLES).items()
    }
    jump = tables["exchanges"]["request_time"].median()
    for rows in tables.values():
        for name in rows.select_dtypes("datetimetz"):
            rows[name] = rows[name].where(~(rows[name] > jump), rows[name] + 200 * YEAR)
    assert len(diagnose(tables))


def test_different_clocks_of_the_two_directions() -> None:
    exchanges = [exchange(latency_ms=-1.5), exchange(latency_ms=3.0)]
    (finding,) = findings_of("coverage", made(connections=[connection()], exchanges=exchanges))
    assert finding.sentence == (
        "1 of 2 responses has an earlier time than the request: latencies are wrong"
    )
    assert finding.evidence == "50 % of the responses. Up to 1.5 ms earlier."


@pytest.mark.parametrize(
    ("packets", "latency_ms", "capture", "is_set_back"),
    [
        ([(4, 7), (5, 8)], -29_998.0, "made.pcap", True),
        ([(4, 5), (6, 7)], -29_998.0, "made.pcap", False),  # two places
        ([(5, 4), (7, 6)], -29_998.0, "made.pcap", False),  # in order of time: two clocks
        ([(4, 7), (5, 8)], -29_998.0, "other.pcap", False),
        ([(4, 7), (5, 8)], -20.0, "made.pcap", False),
    ],
)
def test_a_clock_that_is_set_back(
    packets: list[tuple[int, int]], latency_ms: float, capture: str, is_set_back: bool
) -> None:
    """Also if the responses are a small part."""
    rows = [
        exchange(latency_ms=latency_ms, request_packet=request, response_packet=response)
        for request, response in packets
    ]
    rows[0]["capture"] = capture
    rows += [exchange(request_packet=10 + n, response_packet=11 + n) for n in range(300)]
    tables = made(connections=[connection()], exchanges=rows)
    sentences = [each.sentence for each in findings_of("coverage", tables)]
    assert sentences == is_set_back * [
        "The clock of the capture was set back: 2 of 302 responses have an earlier time than the "
        "request"
    ]


def leaders(*counts: int) -> list[dict[str, Any]]:
    """Partitions of one topic: broker N leads counts[N] of them, and all brokers have replicas."""
    brokers = [broker for broker, count in enumerate(counts) for _ in range(count)]
    return [
        {"topic": "t", "partition": n, "leader": leader, "leader_epoch": 0, "time": START}
        | {"replicas": list(range(len(counts))), "isr": list(range(len(counts)))}
        for n, leader in enumerate(brokers)
    ]


@pytest.mark.parametrize(
    ("counts", "fires"),
    [((9, 2, 1), True), ((4, 4, 4), False), ((8, 0, 0), False), ((12, 0), False)],
    ids=["skewed", "even", "few partitions", "two brokers"],
)
def test_leaders_of_partitions(counts: tuple[int, ...], fires: bool) -> None:
    findings = rules("leader_skew", exchanges=[exchange()], topics=leaders(*counts))
    assert findings == ["leader_skew"] * fires


@pytest.mark.parametrize(("first", "tool"), [(0, "reassign"), (1, "leader-election")])
def test_the_advice_on_leaders_depends_on_the_preferred_ones(first: int, tool: str) -> None:
    """The first replica is the preferred leader."""
    replicas = [[first, 1 - first, 2]] * 12
    topics = [row | {"replicas": r} for row, r in zip(leaders(12, 0, 0), replicas, strict=True)]
    (finding,) = findings_of("leader_skew", made(exchanges=[exchange()], topics=topics))
    assert f"kafka-{tool}" in finding.change


def test_a_storm_lasts_from_its_first_request_to_its_last() -> None:
    """A client whose requests were rare before."""
    times = [0, 60 * SECOND, *(100 * SECOND + n * SECOND // 10 for n in range(60)), 200 * SECOND]
    exchanges = [exchange(api="Metadata", request_time=START + time) for time in times]
    (finding,) = findings_of("metadata_storm", made(exchanges=exchanges))
    assert finding.first_time == START + 100 * SECOND
    assert finding.last_time == START + 100 * SECOND + 59 * SECOND // 10


@pytest.mark.parametrize(
    ("quick", "last_s", "fires"), [(40, 79, True), (40, 81, False), (100, 79, False)]
)
def test_requests_behind_the_pauses_of_a_broker(quick: int, last_s: int, fires: bool) -> None:
    """In each of four pauses of a second, two requests wait behind a third one: 8 s in all."""
    times = [(10 * n * SECOND + k * MS, 10 * n * SECOND + SECOND + k * MS)
             for n in range(4) for k in range(3)]  # fmt: skip
    starts = [last_s * SECOND + n * 2 * MS for n in range(quick)]
    times += [(start, start + MS // 10) for start in starts]
    rows = [
        exchange_at(START + start, START + end, correlation_id=n, in_flight=1 + (n < 12))
        | {"latency_ms": (end - start) / 1e6}
        for n, (start, end) in enumerate(times)
    ]
    tables = made(exchanges=rows, connections=[connection()])
    assert bool(findings_of("queueing", tables)) == fires


def test_the_time_of_retransmissions_is_that_of_their_connections() -> None:
    links = [
        connection(connection_id=n, protocol="kafka", client_packets=200, client_retransmitted=lost)
        | {"first_time": START + n * SECOND, "last_time": START + (n + 5) * SECOND}
        for n, lost in enumerate([0, 6, 8, 0])
    ]
    exchanges = [exchange(connection_id=n) for n in range(4)]
    (finding,) = findings_of("retransmissions", made(connections=links, exchanges=exchanges))
    assert (finding.first_time, finding.last_time) == (START + SECOND, START + 7 * SECOND)


def test_a_transaction_that_began_before_the_capture_and_is_read() -> None:
    """A reader's batches have the producer id, but nothing else is known of the producer."""
    tables: Any = dict(capture("kafka-4-stuck", DIAGNOSIS_TABLES))
    tables["transactions"] = tables["transactions"][:0]
    tables["batches"] = tables["batches"].query("api == 'Fetch'")
    (finding,) = findings_of("stuck_transactions", tables, open_ms=1000)
    assert finding.sentence == (
        "A transaction that began before the capture holds back partition 0 of topic `ledger`"
    )


@pytest.mark.parametrize(("connections", "fires"), [(1, True), (30, False)])
def test_idle_consumers_with_one_client_id_do_not_fetch_too_often(
    connections: int, fires: bool
) -> None:
    """60 Fetches a second, each without records; with 30 connections, 2 on each of them."""
    rows = [
        exchange_at(
            START + n * SECOND // 60, api="Fetch", api_key=1, correlation_id=n,
            connection_id=n % connections,
            topics=["t"], max_wait_ms=500, min_bytes=1, record_bytes=0,
        )
        for n in range(600)
    ]  # fmt: skip
    assert rules("fetches", exchanges=rows) == ["fetches"] * fires


@pytest.mark.parametrize(
    ("client_id", "fires"),
    [("broker-2-fetcher-0", False), ("raft-client-3", False), ("broker-service", True)],
)
def test_only_the_fetches_of_brokers_are_left_out(client_id: str, fires: bool) -> None:
    """60 Fetches a second, each without records; the ids are those in kafka-4-quorum."""
    rows = [
        exchange_at(
            START + n * SECOND // 60, api="Fetch", api_key=1, correlation_id=n, topics=["t"],
            max_wait_ms=500, min_bytes=1, record_bytes=0, client_id=client_id,
        )
        for n in range(600)
    ]  # fmt: skip
    assert rules("fetches", exchanges=rows) == ["fetches"] * fires


@pytest.mark.parametrize(
    ("size", "limits_of", "waiting", "setting"),
    [
        (16_253, (1_000, 1_000), 5, "max.partition.fetch.bytes=1048576"),
        (16_253, (1_048_576, 1_000), 5, "fetch.max.bytes=52428800"),
        (16_253, (1_000, 1_000), 0, None),
        (16_253, (1_048_576, 52_428_800), 5, None),
        (1_048_576, (1_048_576, 52_428_800), 5, None),
    ],
    ids=["both limits", "limit of the response", "no records wait", "no limit", "default limit"],
)
def test_fetches_that_a_limit_makes_small(
    size: int, limits_of: tuple[int, int], waiting: int, setting: str | None
) -> None:
    """A broker sends the first batch also if it is larger than the limits (KIP-74)."""
    of_partition, of_response = limits_of
    times = [START + n * SECOND // 100 for n in range(100)]
    rows = [
        exchange_at(
            time, api="Fetch", api_key=1, correlation_id=n, topics=["t"], record_bytes=size,
            max_bytes=of_response, max_wait_ms=500, min_bytes=1,
        )
        for n, time in enumerate(times)
    ]  # fmt: skip
    partitions = [
        fetched(0, 0)
        | {"correlation_id": n, "time": time, "response_time": time, "offset": n, "last_offset": n}
        | {"high_watermark": n + 1 + waiting, "bytes": size, "max_bytes": of_partition}
        for n, time in enumerate(times)
    ]
    findings = findings_of("fetches", made(exchanges=rows, partitions=partitions))
    assert [each.setting for each in findings] == ([setting] if setting else [])


@pytest.mark.parametrize(("seconds", "fires"), [(9, False), (10, True)])
def test_a_transaction_that_began_before_the_capture(seconds: int, fires: bool) -> None:
    rows = [fetched(0, 5), fetched(seconds, 5)]
    findings = findings_of("stuck_transactions", made(exchanges=[exchange()], partitions=rows))
    assert [each.subject for each in findings] == ["topic `t`"] * fires
    assert [each.numbers["held"] for each in findings] == [5] * fires


@pytest.mark.parametrize("raises", [False, True], ids=["one epoch", "KIP-890"])
@pytest.mark.parametrize("has_markers", [False, True])
@pytest.mark.parametrize(
    ("has_coordinator", "lost_bytes"), [(False, 0), (True, 0), (True, 90)],
    ids=["leader", "coordinator", "lost packets"],
)  # fmt: skip
def test_the_end_of_a_transaction_is_at_its_coordinator(
    has_coordinator: bool, lost_bytes: int, has_markers: bool, raises: bool
) -> None:
    """The producer aborts a transaction each second. The capture was taken at the leader, and also
    contains the first request to the coordinator, or not."""
    rows: dict[str, list[dict[str, Any]]] = {"batches": [], "transactions": []}
    producer = {"connection_id": 0, "client_id": "eos", "producer_id": 7, "error_code": 0}
    for n in range(20):
        time, epoch = START + n * SECOND, n if raises else 0
        sent = producer | {"time": time, "response_time": time + MS, "producer_epoch": epoch}
        batch = {"api": "Produce", "is_transactional": True, "topic": "t", "partition": 0}
        rows["batches"].append(sent | batch | {"record_count": 2, "base_sequence": 2 * n})
        if has_markers:
            marker = {"api": "WriteTxnMarkers", "client_id": "marker", "committed": False}
            times = {"time": time + SECOND // 2, "response_time": time + SECOND * 6 // 10}
            rows["transactions"].append(sent | marker | times | {"producer_epoch": epoch + raises})
    if has_coordinator:
        given = {"given_producer_id": 7, "given_producer_epoch": 0, "producer_id": None}
        first = producer | given | {"api": "InitProducerId", "time": START - 1}
        rows["transactions"].append(first | {"response_time": START - 1})
    requests = [exchange_at(START + n * SECOND) for n in (0, 30)]
    link = connection(client_lost_bytes=lost_bytes)
    tables = made(exchanges=requests, connections=[link], **rows)
    outcomes = set(analysis.producers(tables, show="transactions")["outcome"])
    if has_markers:
        assert outcomes == {"aborted by the broker" if has_coordinator else "aborted"}
    else:
        assert outcomes == {"open"}
    findings = findings_of("stuck_transactions", tables)
    assert bool(findings) == (has_coordinator and not lost_bytes)


@pytest.mark.parametrize(
    ("closed", "end_s", "has_stopped"),
    [("rst", 2, True), ("fin", 2, True), (None, 2, False), ("fin", 30, False)],
    ids=["killed", "ended", "open", "later"],
)
def test_a_producer_that_stops_inside_a_transaction(
    closed: str | None, end_s: int, has_stopped: bool
) -> None:
    """The broker writes markers after 25 s."""
    sent = {"connection_id": 0, "client_id": "eos", "producer_id": 7, "error_code": 0}
    sent |= {"time": START, "response_time": START, "producer_epoch": 0}
    batch = {"api": "Produce", "is_transactional": True, "topic": "t", "partition": 0}
    given = {"given_producer_id": 7, "given_producer_epoch": 0, "producer_id": None}
    end = START + 25 * SECOND
    marker = {"api": "WriteTxnMarkers", "client_id": "broker", "committed": False, "time": end}
    marker |= {"connection_id": 1, "response_time": end, "producer_epoch": 1}
    tables = made(
        exchanges=[
            exchange(api="Produce", client_id="eos"),
            exchange_at(START + 40 * SECOND, client_id="broker", connection_id=1),
        ],
        connections=[
            connection(closed=closed, last_time=START + end_s * SECOND),
            connection(connection_id=1, closed=None),
        ],
        batches=[sent | batch | {"record_count": 1, "base_sequence": 0}],
        transactions=[sent | given | {"api": "InitProducerId"}, sent | marker],
    )
    (finding,) = findings_of("stuck_transactions", tables)
    assert ("ended 2.0 s after the start" in finding.evidence) == has_stopped
    assert finding.cause.startswith("the producer stopped") == has_stopped


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ({}, "A transaction that began before the capture holds back"),
        ({"client_id": "eos"}, "A transaction of client `eos` holds back"),
    ],
)
def test_the_last_stable_offset_shows_a_transaction_without_its_coordinator(
    names: dict[str, str], sentence: str
) -> None:
    batch = {
        "connection_id": 0, "api": "Produce", "topic": "t", "partition": 0, "base_offset": 5,
        "producer_id": 7, "producer_epoch": 0, "is_transactional": True, "is_control": False,
        "time": START, "error_code": 0, "record_count": 5,
    }  # fmt: skip
    tables = made(
        exchanges=[exchange()], partitions=[fetched(0, 5), fetched(30, 5)],
        batches=[batch | names] if names else [],
    )  # fmt: skip
    (finding,) = findings_of("stuck_transactions", tables)
    assert finding.sentence == f"{sentence} partition 0 of topic `t`"


def test_sums_of_times_do_not_depend_on_the_order_of_rows() -> None:
    """The sum of ten floats 0.1 is not 1."""
    for query, api, column in (
        (FETCHING, "Fetch", "fetch_ms"),
        (queueing.waits(), "Metadata", "latency_ms"),
    ):
        rows = [exchange(api=api, latency_ms=0.1, correlation_id=n) for n in range(10)]
        with connected(made(exchanges=rows), DIAGNOSIS_TABLES) as tables:
            (row,) = Case(tables).rows(query)
        assert row[column] == 1.0


def test_a_missing_table_is_named() -> None:
    with pytest.raises(DissectorError, match="the table partitions is missing"):
        analysis.diagnose(capture("kafka-4-quotas"))


def test_a_request_that_a_quota_leaves_unread_takes_no_time_of_the_broker() -> None:
    """The second request is sent before the response that begins the wait of 500 ms (KIP-219)."""
    start, end = START + MS, START + SECOND // 2 + 7 * MS
    waiting = exchange_at(start, end, correlation_id=8, latency_ms=506.0, in_flight=2)
    link = connection() | {"client_rtt_ms": 0.5, "broker_rtt_ms": 0.0}
    rows = made(exchanges=[exchange(throttle_time_ms=500), waiting], connections=[link])
    (client,) = times_of_clients(rows)
    assert client["broker_ms"] == pytest.approx(2 + 5)
    assert client["queue_ms"] == pytest.approx(1 + 500)


def throttled(at_ms: int, **columns: Any) -> dict[str, Any]:
    """An exchange without a duration, which asks the client to wait for 500 ms."""
    return exchange_at(START + at_ms * MS, **{"throttle_time_ms": 500, **columns})


def test_a_client_of_a_quota_is_throttled_in_every_part_of_the_capture() -> None:
    """Each response asks `chatty` for one second. Its connection lasts longer than the part."""
    tables = capture("kafka-4-quotas", DIAGNOSIS_TABLES)
    start = tables["connections"]["first_time"].min().value
    part = Filter(client=["chatty"], since="17s", until="22s", start=start).apply(tables)
    (finding,) = findings_of("throttling", part)
    assert finding.severity == "critical"
    assert finding.sentence == "Client `chatty` spends 99 % of its time throttled by a quota"


@pytest.mark.parametrize(
    ("throttles", "cause"),
    [
        ([("Produce", 900), ("Produce", 800)], "producer_byte_rate or request_percentage"),
        ([("Produce", 1001)], "producer_byte_rate"),
        ([("Produce", 1000), ("Metadata", 200)], "request_percentage"),
        ([("Produce", 3000), ("Metadata", 200)], "producer_byte_rate, request_percentage"),
    ],
)
def test_the_quota_that_a_client_exceeds(throttles: list[tuple[str, int]], cause: str) -> None:
    """A throttle time of request_percentage is at most a second, and in all APIs (KIP-124)."""
    rows = [
        throttled(n * 5000, correlation_id=n, api=api, throttle_time_ms=wait)
        for n, (api, wait) in enumerate(throttles)
    ]
    (finding,) = findings_of("throttling", made(exchanges=rows, connections=[connection()]))
    assert finding.cause == f"the client exceeds {cause}"


def test_topics_that_a_controller_does_not_create_because_of_a_quota() -> None:
    refused = {"error": "THROTTLING_QUOTA_EXCEEDED", "error_code": 89, "api": "CreateTopics"}
    rows = [throttled(0, api="CreateTopics", throttle_time_ms=8000)]
    tables = made(exchanges=rows, errors=[error(**refused)], connections=[connection()])
    (finding,) = findings_of("throttling", tables)
    assert finding.evidence.endswith("1 request failed with THROTTLING_QUOTA_EXCEEDED.")


def test_the_time_in_a_quota_is_that_of_the_throttled_connections() -> None:
    """Ten instances with one client id wait at the same time, each for a tenth of its time."""
    rows = [
        throttled(at_ms, connection_id=n, throttle_time_ms=wait)
        for n in range(10)
        for at_ms, wait in ((0, 500), (5000, None))
    ]
    links = [connection(connection_id=n) for n in range(10)]
    (finding,) = findings_of("throttling", made(exchanges=rows, connections=links))
    assert finding.severity == "warning"
    assert finding.sentence == "Client `app` spends 10 % of its time throttled by a quota"


def test_a_client_that_does_not_wait_is_throttled_for_as_long() -> None:
    """The broker reads its next request when the throttle time of 4 of 5 s has passed (KIP-219)."""
    rows = [
        throttled(at_ms, correlation_id=at_ms, throttle_time_ms=wait)
        for at_ms, wait in ((0, 4000), (1000, 0), (5000, 0))
    ]
    tables = made(exchanges=rows, connections=[connection()])
    (finding,) = findings_of("throttling", tables)
    assert finding.sentence == "Client `app` spends 80 % of its time throttled by a quota"
    (client,) = times_of_clients(tables)
    assert client["quota_ms"] == pytest.approx(1000)


def test_waits_that_overlap_count_once() -> None:
    rows = [throttled(n, correlation_id=n) for n in range(2)] + [throttled(600, throttle_time_ms=0)]
    (client,) = times_of_clients(made(exchanges=rows, connections=[connection()]))
    assert client["quota_ms"] == pytest.approx(1 + 500)


@pytest.mark.parametrize(("client_ip", "quota_ms"), [("10.0.0.1", 500 + 100), ("10.0.0.2", 1000)])
def test_waits_of_a_host_at_two_brokers_count_once(client_ip: str, quota_ms: float) -> None:
    other = {"connection_id": 1, "broker_ip": "10.0.0.8", "client_ip": client_ip}
    rows = [throttled(0), throttled(100, **other), throttled(5000, throttle_time_ms=0, **other)]
    links = [connection(), connection(**other)]
    (client,) = times_of_clients(made(exchanges=rows, connections=links))
    assert client["quota_ms"] == pytest.approx(quota_ms)


def test_the_share_of_a_quota_is_that_of_all_hosts_with_the_client_id() -> None:
    """Each of 6 hosts waits for 1 of 25 s."""
    hosts = [{"connection_id": n, "client_ip": f"10.0.0.{n}"} for n in range(6)]
    links = [connection(last_time=START + 25 * SECOND, **host) for host in hosts]
    requests = [
        exchange(throttle_time_ms=ms, request_time=at, response_end_time=at + 1, **host)
        for host in hosts for ms, at in ((1000, START), (0, START + 25 * SECOND))
    ]  # fmt: skip
    (quota,) = findings_of("throttling", made(exchanges=requests, connections=links))
    assert quota.severity == "warning"
    assert quota.sentence == "Client `app` spends 4 % of its time throttled by a quota"


@pytest.mark.parametrize(
    ("records", "requests", "fires"), [(99, 20, False), (100, 20, True), (1000, 19, False)]
)
def test_a_few_records_or_batches_in_one_of_many_partitions_are_chance(
    records: int, requests: int, fires: bool
) -> None:
    """The busiest partition gets its records in several requests."""
    counts = [records, *[10] * 99]
    rows = [
        fetched(n, 0) | {"api": "Produce", "partition": partition, "client_id": "writer"}
        | {"record_count": count, "bytes": 100 * count}
        for partition, total in enumerate(counts)
        for n, count in enumerate([1] * (requests - 1) + [total - requests + 1]
                                  if partition == 0 else [total])
    ]  # fmt: skip
    fired = rules(
        "partition_skew", exchanges=[exchange()], connections=[connection()], partitions=rows
    )
    assert fired == ["partition_skew"] * fires


def test_a_client_id_may_contain_a_comma() -> None:
    rows = [
        fetched(time, 0) | {"api": "Produce", "partition": n, "client_id": name}
        | {"record_count": count, "bytes": 100 * count}
        for n, count in enumerate((1000, 10, 10, 10)) for name in ("a, b", "c", None)
        for time in range(10)
    ]  # fmt: skip
    tables = made(exchanges=[exchange()], connections=[connection()], partitions=rows)
    (finding,) = findings_of("partition_skew", tables)
    assert finding.clients == ("a, b", "c")
    closed = {"broker_bytes": 0, "last_time": START + MS}
    links = [connection(connection_id=n, **closed) for n in range(3)]
    names = [exchange(connection_id=n, client_id=f"{n % 2}, x") for n in range(3)]
    (finding,) = findings_of("failed_connections", made(exchanges=names, connections=links))
    assert finding.clients == ("0, x", "1, x")


def started(seconds: float, client: str, epoch: int) -> dict[str, Any]:
    """An InitProducerId with transactional id ``billing``."""
    time = START + int(seconds * SECOND)
    return {
        "connection_id": int(client[-1]), "client_id": client, "api": "InitProducerId",
        "transactional_id": "billing", "time": time, "response_time": time, "error_code": 0,
        "given_producer_id": 7, "given_producer_epoch": epoch,
    }  # fmt: skip


def of_producer(seconds: float, api: str, epoch: int, **columns: Any) -> dict[str, Any]:
    time = START + int(seconds * SECOND)
    return {
        "connection_id": 1, "client_id": "app-1", "api": api, "producer_id": 7, "error_code": 0,
        "producer_epoch": epoch, "time": time, "response_time": time,
    } | columns  # fmt: skip


def test_a_producer_that_is_fenced_without_an_epoch() -> None:
    refused = {"error_code": 90, "error": "PRODUCER_FENCED", "producer_epoch": None}
    row = of_producer(0, "InitProducerId", 0, **refused)
    tables = made(exchanges=[exchange()], transactions=[row])
    (finding,) = findings_of("fenced_producers", tables)
    assert finding.evidence == "1 response reported an outdated epoch."
    assert (finding.numbers["first_epoch"], finding.numbers["last_epoch"]) == (None, None)


@pytest.mark.parametrize("starts", [("app-1", "app-2"), ("app-1", "app-2", "app-1", "app-2")])
def test_instances_that_share_a_transactional_id(starts: tuple[str, ...]) -> None:
    """The broker aborts the transaction of the fenced instance (KIP-98): it is the same cause."""
    refused = {"error_code": 90, "error": "PRODUCER_FENCED", "committed": True}
    transactions = [
        *(started(2 * n, name, 2 * n) for n, name in enumerate(starts)),
        of_producer(1, "AddPartitionsToTxn", 0, topic="t", partition=0),
        of_producer(2.1, "WriteTxnMarkers", 1, committed=False),
        of_producer(2.2, "EndTxn", 0, **refused),
    ]
    links = [connection(connection_id=1), connection(connection_id=2, client_ip="10.0.0.2")]
    fenced = error(time=START + 22 * SECOND // 10, error="PRODUCER_FENCED", client_id="app-1")
    tables = made(
        exchanges=[exchange()], transactions=transactions, connections=links, errors=[fenced]
    )
    (finding,) = findings_of("fenced_producers", tables)
    assert finding.first_time == finding.last_time == fenced["time"]
    assert finding.clients == ("app-1", "app-2")
    assert ("fence each other" in finding.sentence) == (len(starts) == 4)
    assert "Brokers aborted 1 transaction." in finding.evidence
    each = len(starts) // 2
    assert f"`app-1` on 10.0.0.1 ({each}), client `app-2` on 10.0.0.2 ({each})" in finding.evidence
    assert findings_of("stuck_transactions", tables) == []
