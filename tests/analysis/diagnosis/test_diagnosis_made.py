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
from analysis.sql import query as sql_query
from analysis.sql.query import connected, fetch, no_tables
from dissector.errors import DissectorError
from tests.analysis.answering import capture, made
from tests.analysis.diagnosis.diagnosing import findings_of, rules
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


def test_failures_come_before_advice_on_clients() -> None:
    """All clients use SASL/PLAIN, and one of them fails."""
    rows = [exchange(correlation_id=n) for n in range(50)]
    rows += [exchange(client_id="lost", api="Produce", correlation_id=n) for n in range(10)]
    errors = [
        error(client_id="lost", api="Produce", error="INVALID_RECORD", error_code=87,
              correlation_id=n, retriable=False)
        for n in range(10)
    ]  # fmt: skip
    links = [connection(sasl_mechanism="PLAIN")]
    findings = diagnose(made(exchanges=rows, errors=errors, connections=links))
    critical = findings[findings["severity"] == "critical"]
    assert critical["rule"].tolist() == ["recurring_errors", "plain_credentials"]
    shares = critical["share_percent"].tolist()
    assert shares == sorted(shares)


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
    for name, most in (("kafka-4-franz-go", 61), ("kafka-4-misused", 90)):
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


def test_messages_that_do_not_follow_the_definitions() -> None:
    """kfake sends null for the records of a ShareFetch response, which Kafka's reader refuses."""
    exchanges = [exchange(status="undecoded"), exchange()]
    (finding,) = findings_of("coverage", made(connections=[connection()], exchanges=exchanges))
    assert finding.sentence == "1 of 2 exchanges could not be decoded"
    assert "software that does not follow them" in finding.cause
    assert "the table problems names" in finding.change


def test_different_clocks_of_the_two_directions() -> None:
    exchanges = [exchange(latency_ms=-1.5), exchange(latency_ms=3.0)]
    (finding,) = findings_of("coverage", made(connections=[connection()], exchanges=exchanges))
    assert finding.sentence == (
        "1 of 2 responses has an earlier time than the request: latencies are wrong"
    )
    assert finding.evidence == "50 % of the responses. Up to 1.5 ms earlier."


def test_both_sides_of_a_proxy() -> None:
    rows = [exchange(api="Produce", connection_id=each) for each in (0, 1)]
    names = ("connection_id", "correlation_id", "client_id", "api")
    batches = [{name: row[name] for name in names} | {"crc": 7} for row in rows]
    tables = made(connections=[connection()], exchanges=rows, batches=batches)
    (finding,) = findings_of("coverage", tables)
    assert finding.sentence == (
        "1 of 2 requests was also captured in another connection: answers count each copy"
    )
    assert finding.evidence == "50 % of the requests. Produce requests, most to 10.0.0.9:9092."


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


@pytest.mark.parametrize(("links", "fires"), [(2, False), (1, True)], ids=["a pause", "a request"])
def test_requests_behind_a_long_pause_of_a_broker(links: int, fires: bool) -> None:
    """Ten requests wait for its end, and so does one of another connection; 40 are quick."""
    end = START + 6 * SECOND
    times = [(START - 2 * MS, START - MS)]
    times += [(START + n * SECOND // 2, end + n * MS) for n in range(10)]
    times += [(end + n * SECOND // 10, end + n * SECOND // 10 + MS) for n in range(1, 41)]
    rows = [
        exchange_at(first, last, correlation_id=n, latency_ms=(last - first) / 1e6)
        for n, (first, last) in enumerate(times)
    ]
    other = {"client_id": "other", "connection_id": 1}
    rows += [exchange_at(START, end, latency_ms=6000.0, **other)] * (links - 1)
    assert len(findings_of("queueing", made(exchanges=rows))) == fires


@pytest.mark.parametrize(
    ("api", "name", "fires"),
    [
        ("Produce", "REQUEST_TIMED_OUT", False),
        ("OffsetCommit", "COORDINATOR_NOT_AVAILABLE", False),
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", True),
        ("Produce", "NOT_LEADER_OR_FOLLOWER", True),
    ],
)
def test_requests_behind_one_that_waits_for_replicas(api: str, name: str, fires: bool) -> None:
    """The broker responds when the first request has timed out, and then to the others."""
    end = START + 30 * SECOND
    rows = [exchange_at(START, end, api=api, latency_ms=30_000.0)]
    rows += [
        exchange_at(START + n * SECOND // 2, end + n * MS, correlation_id=10 + n,
                    latency_ms=30_000.0 - 499 * n)
        for n in range(1, 60)
    ]  # fmt: skip
    errors = [error(api=api, error=name, retriable=True)]
    findings = findings_of("queueing", made(exchanges=rows, errors=errors))
    assert len(findings) == fires


def test_the_time_of_retransmissions_is_that_of_their_connections() -> None:
    links = [
        connection(connection_id=n, protocol="kafka", client_packets=200, client_retransmitted=lost)
        | {"first_time": START + n * SECOND, "last_time": START + (n + 5) * SECOND}
        for n, lost in enumerate([0, 6, 8, 0])
    ]
    exchanges = [exchange(connection_id=n) for n in range(4)]
    (finding,) = findings_of("retransmissions", made(connections=links, exchanges=exchanges))
    assert (finding.first_time, finding.last_time) == (START + SECOND, START + 7 * SECOND)


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
    ("max_wait_ms", "min_bytes", "waited_ms", "setting"),
    [
        (10, 1, 10, "fetch.max.wait.ms=500"),
        (500, 1, 10, "min.insync.replicas"),
        (500, 0, 0, "fetch.min.bytes=1"),
    ],
)
def test_why_responses_have_no_records(
    max_wait_ms: int, min_bytes: int, waited_ms: int, setting: str
) -> None:
    """A broker responds before fetch.max.wait.ms if the offset is after the high watermark."""
    rows = [
        exchange_at(
            start := START + n * SECOND // 60, start + waited_ms * MS, latency_ms=waited_ms,
            api="Fetch", api_key=1, correlation_id=n, topics=["t"], max_wait_ms=max_wait_ms,
            min_bytes=min_bytes, record_bytes=0,
        )
        for n in range(600)
    ]  # fmt: skip
    (finding,) = findings_of("fetches", made(exchanges=rows))
    assert finding.setting == setting
    assert f"The broker waited {waited_ms} ms for them (median)." in finding.evidence


def test_small_responses_may_have_several_records() -> None:
    """Their size makes them small: the finding has no statement about their records."""
    rows = [
        exchange_at(
            START + n * SECOND // 60, api="Fetch", api_key=1, correlation_id=n, topics=["t"],
            max_wait_ms=500, min_bytes=1, record_bytes=500, record_count=9,
        )
        for n in range(600)
    ]  # fmt: skip
    (finding,) = findings_of("fetches", made(exchanges=rows))
    assert "gets mostly small responses to its fetches" in finding.sentence
    assert "600 responses with records, the median 500 bytes" in finding.evidence
    assert "record" not in finding.cause


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
    """A broker sends the first batch even if it is larger than the limits (KIP-74)."""
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


@pytest.mark.parametrize(("worker", "fires"), [("worker-configs", False), ("app", True)])
def test_the_offsets_of_kafka_connect_are_skewed_by_design(worker: str, fires: bool) -> None:
    rows = [
        fetched(n, 0) | {"api": "Produce", "partition": partition, "client_id": "worker-offsets"}
        | {"record_count": 50, "bytes": 5000}
        for partition, count in enumerate((30, 1, 1, 1)) for n in range(count)
    ]  # fmt: skip
    fired = rules(
        "partition_skew", exchanges=[exchange(client_id=worker)], connections=[connection()],
        partitions=rows,
    )  # fmt: skip
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
