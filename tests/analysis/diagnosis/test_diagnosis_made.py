"""Rules on made rows: cases that no recording has, and small samples."""

from __future__ import annotations

from collections.abc import Iterable
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
from tests.analysis.made_rows import SECOND, START, connection, error, exchange, exchange_at

YEAR = pd.Timedelta(days=365)
MS = 1_000_000


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
    problem = {"stage": "packets", "kind": kind, "detail": "x.pcap is empty", "count": 1}
    findings = findings_of("coverage", made(exchanges=[exchange()], problems=[problem] * count))
    assert [each.sentence for each in findings] == ([sentence] if sentence else [])
    assert [each.evidence for each in findings] == (
        ["The first: x.pcap is empty."] if sentence else []
    )
    numbers = {"flaw": f"problem: packets {kind}", "count": count}
    assert [each.numbers for each in findings] == [numbers] * len(findings)


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
    for name, most in (("kafka-4-franz-go", 49), ("kafka-4-misused", 65)):
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


@pytest.mark.parametrize(("quick", "fires"), [(40, True), (100, False)])
def test_requests_behind_the_pauses_of_a_broker(quick: int, fires: bool) -> None:
    """In each of four pauses of a second, two requests wait behind a third one."""
    times = [(10 * n * SECOND + k * MS, 10 * n * SECOND + SECOND + k * MS)
             for n in range(4) for k in range(3)]  # fmt: skip
    times += [(time, time + MS // 10) for n in range(quick) for time in [100 * SECOND + n * 2 * MS]]
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


def timed(count: int, broker: str, latency_ms: float) -> list[dict[str, Any]]:
    """Produce requests one after the other."""
    return [
        exchange_at(
            time, time + int(latency_ms * 1e6), api="Produce", api_key=0, broker_ip=broker,
            correlation_id=n, latency_ms=latency_ms, connection_id=int(broker[-1]),
        )
        for n in range(count) for time in [START + n * SECOND]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("count", "first", "second", "fires"),
    [
        (100, 100.0, None, True),
        (99, 100.0, None, False),
        (100, 99.0, None, False),
        (100, 30.0, 3.0, True),
        (100, 30.0, 20.0, False),
        (100, 15.0, 1.0, False),
    ],
)
def test_slow_brokers(count: int, first: float, second: float | None, fires: bool) -> None:
    rows = timed(count, "10.0.0.1", first)
    rows += timed(count, "10.0.0.2", second) if second else []
    findings = findings_of("slow_broker", made(exchanges=rows))
    assert [each.subject for each in findings] == ["broker 10.0.0.1:9092"] * fires


@pytest.mark.parametrize(
    ("requests", "fires"),
    [
        ([(0, 0, 6), (1, 0, 6)], True),
        ([(0, 0, 6), (0, 0, 6)], False),  # of one connection
        ([(0, 0, 6), (1, 4, 6)], False),  # sent at the end of the pause
        ([(0, 0, 6), (1, 0, 6), (2, 3, 3)], False),  # a response meanwhile
        ([(0, 0, 4), (1, 0, 4)], False),
    ],
)
@pytest.mark.parametrize(
    "changed", [{}, {"api": "Fetch", "max_wait_ms": 6000}, {"api": "JoinGroup"}]
)
def test_a_broker_that_pauses(
    requests: list[tuple[int, int, int]], changed: dict[str, Any], fires: bool
) -> None:
    """Requests of connections, with the seconds at which they are sent and answered."""
    rows = [exchange(correlation_id=n, connection_id=n) for n in range(3)]
    rows += [
        exchange_at(
            START + start * SECOND + 3 * MS, START + end * SECOND + 3 * MS, connection_id=link,
            correlation_id=10 + n, latency_ms=(end - start) * 1000.0,
        )
        | changed
        for n, (link, start, end) in enumerate(requests)
    ]  # fmt: skip
    findings = findings_of("slow_broker", made(exchanges=rows))
    expected = ["Broker 10.0.0.9:9092 sent no response for 6.0 s"] * (fires and not changed)
    assert [each.sentence for each in findings] == expected


@pytest.mark.parametrize(("error_code", "fires"), [(58, False), (0, True)])
def test_failed_logins_are_late_on_purpose(error_code: int, fires: bool) -> None:
    login = {"api": "SaslAuthenticate", "api_key": 36, "error_code": error_code}
    rows = [row | login for row in timed(100, "10.0.0.1", 150.0)]
    assert rules("slow_broker", exchanges=rows) == ["slow_broker"] * fires


@pytest.mark.parametrize(
    ("count", "first", "second", "setting"),
    [
        (10, 900.0, 2.0, ["max.connection.creation.rate"]),
        (100, 900.0, 2.0, ["max.connection.creation.rate"]),
        (9, 900.0, 2.0, []),
        (10, 900.0, 91.0, []),  # the round trip, or a slow broker
        (10, 99.0, 2.0, []),
    ],
)
def test_a_broker_that_accepts_connections_late(
    count: int, first: float, second: float, setting: list[str]
) -> None:
    rows = [row | {"api": "ApiVersions"} for row in timed(count, "10.0.0.1", first)]
    rows += [row | {"api": "Metadata"} for row in timed(count, "10.0.0.1", second)]
    findings = findings_of("slow_broker", made(exchanges=rows))
    assert [each.setting for each in findings] == setting
    assert [each.first_time for each in findings] == [START] * len(setting)


@pytest.mark.parametrize(
    ("latencies", "subjects"),
    [
        ((150.0, 120.0), ["brokers 10.0.0.1:9092, 10.0.0.2:9092"]),
        ((150.0, 120.0, 2.0), ["brokers 10.0.0.1:9092, 10.0.0.2:9092"]),
        ((900.0, 120.0), ["broker 10.0.0.1:9092", "broker 10.0.0.2:9092"]),
    ],
)
def test_brokers_that_are_equally_slow_have_a_cause_in_common(
    latencies: tuple[float, ...], subjects: list[str]
) -> None:
    rows = [row for n, ms in enumerate(latencies, 1) for row in timed(100, f"10.0.0.{n}", ms)]
    findings = findings_of("slow_broker", made(exchanges=rows))
    assert [each.subject for each in findings] == subjects
    assert [each.requests for each in findings] == [200 // len(subjects)] * len(subjects)


@pytest.mark.parametrize(("latencies", "fires"), [((150.0,), False), ((20.2, 300.0), True)])
def test_the_round_trip_is_no_time_of_the_broker(latencies: tuple[float, ...], fires: bool) -> None:
    """The round trip of 20 or 149 ms is most of the median latency, not of the slow tail."""
    rtt = 149.0 if len(latencies) == 1 else 20.0
    rows = [timed(100, "10.0.0.1", latencies[n % 8 // 7 % len(latencies)])[n] for n in range(100)]
    link = connection(connection_id=1, broker_ip="10.0.0.1", handshake_rtt_ms=rtt)
    link |= {"client_rtt_ms": 0.0, "broker_rtt_ms": rtt}
    assert bool(findings_of("slow_broker", made(exchanges=rows, connections=[link]))) == fires


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


@pytest.mark.parametrize(("ids", "fires"), [((1, 2), True), ((1, 1), False)])
def test_endpoints_with_one_id_are_one_broker(ids: tuple[int, int], fires: bool) -> None:
    rows = timed(100, "10.0.0.1", 30.0) + timed(100, "10.0.0.2", 3.0)
    brokers = [
        {"broker_id": number, "host": host, "port": 9092, "time": START}
        for number, host in zip(ids, ("10.0.0.1", "10.0.0.2"), strict=True)
    ]
    assert rules("slow_broker", exchanges=rows, brokers=brokers) == ["slow_broker"] * fires


def test_the_listener_of_a_controller_is_not_judged() -> None:
    rows = timed(100, "10.0.0.1", 150.0)
    rows += [exchange(api="BrokerHeartbeat", api_key=63, broker_ip="10.0.0.1", connection_id=2)]
    assert rules(exchanges=rows) == []


def fetched(seconds: int, stable: int) -> dict[str, Any]:
    """A partition in a Fetch response."""
    return {
        "connection_id": 0, "correlation_id": seconds, "time": START + seconds * SECOND,
        "response_time": START + seconds * SECOND, "api": "Fetch", "api_version": 13,
        "client_id": "reader", "topic": "t", "partition": 0, "error_code": 0, "error": "NONE",
        "high_watermark": 10, "last_stable_offset": stable, "log_start_offset": 0,
    }  # fmt: skip


@pytest.mark.parametrize(("seconds", "fires"), [(9, False), (10, True)])
def test_a_transaction_that_began_before_the_capture(seconds: int, fires: bool) -> None:
    rows = [fetched(0, 5), fetched(seconds, 5)]
    findings = findings_of("stuck_transactions", made(exchanges=[exchange()], partitions=rows))
    assert [each.subject for each in findings] == ["topic `t`"] * fires
    assert [each.numbers["held"] for each in findings] == [5] * fires


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


@pytest.mark.parametrize("reason", ["consumer poll timeout has expired.", "the consumer is closed"])
def test_one_member_that_did_not_poll_in_time(reason: str) -> None:
    """The reason is that of Kafka's class ConsumerCoordinator (KIP-800)."""
    group = {"group_id": "g", "group_type": "classic", "client_id": "c"}
    done = group | {"error_code": 0, "error": "NONE", "response_time": START + SECOND}
    left = done | {"api": "LeaveGroup", "time": START, "member_id": "m", "reason": reason}
    joined = done | {"api": "JoinGroup", "time": START + 1, "member_id": "n", "generation": 2}
    later = done | {"api": "Heartbeat", "time": START, "response_time": START + 9 * SECOND}
    for rows, severity in (([left, joined], "critical"), ([left, joined, later], "warning")):
        findings = findings_of("rebalances", made(exchanges=[exchange()], memberships=rows))
        assert [each.setting for each in findings] == ["max.poll.interval.ms"] * ("poll" in reason)
        assert [each.severity for each in findings] == [severity] * ("poll" in reason)


@pytest.mark.parametrize(
    ("protocol", "span", "setting"),
    [("sessioned", 60, []), ("cooperative-sticky", 60, []), ("range", 60, [""]),
     ("sessioned", 6, [""])],
    ids=["Connect", "cooperative", "eager", "most of the time"],
)  # fmt: skip
def test_members_that_rejoin(protocol: str, span: int, setting: list[str]) -> None:
    """A member of Connect rejoins when a connector changes (KIP-415)."""
    member = {"group_id": "g", "group_type": "classic", "client_id": "c", "member_id": "m"}
    done = member | {"error_code": 0, "error": "NONE", "protocol": protocol}
    joins = [
        done | {"api": "JoinGroup", "time": START + n * SECOND, "generation": n + 1}
        | {"response_time": START + (n + 1) * SECOND}
        for n in range(5)
    ]  # fmt: skip
    last = START + span * SECOND
    alive = done | {"api": "Heartbeat", "time": last, "response_time": last}
    rows = made(exchanges=[exchange()], memberships=[*joins, alive])
    findings = findings_of("rebalances", rows)
    assert [each.setting for each in findings] == setting
    assert all("subscription" in each.cause for each in findings)


def test_a_member_that_leaves_an_empty_group_behind_because_it_did_not_poll() -> None:
    """Its return is no reaction to its leave."""
    member = {"group_id": "g", "group_type": "classic", "client_id": "c", "error": "NONE"}
    steps = [
        ("JoinGroup", "m", 1, "need to re-join with the given member-id"),
        ("LeaveGroup", "m", None, "consumer poll timeout has expired."),
        ("JoinGroup", "n", 3, "need to re-join with the given member-id"),
    ]
    rows = [
        member | {"api": api, "member_id": name, "generation": generation, "reason": reason}
        | {"time": START + n * SECOND, "response_time": START + n * SECOND + MS, "error_code": 0}
        for n, (api, name, generation, reason) in enumerate(steps)
    ]  # fmt: skip
    (finding,) = findings_of("rebalances", made(exchanges=[exchange()], memberships=rows))
    assert finding.setting == "max.poll.interval.ms"
    assert "Reasons: consumer poll timeout has expired" in finding.evidence
    assert "the longest takes 1 ms" in finding.evidence


@pytest.mark.parametrize(
    ("lasts", "last_join", "clients", "setting"),
    [
        (9, 8, [], []),
        (10, 8, [("late",)], ["max.poll.records"]),
        (60, 2, [("early",)], ["max.poll.interval.ms"]),  # a third member did not come
        (None, 2, [("early",)], ["max.poll.interval.ms"]),  # at the end of the capture
    ],
)
def test_a_rebalance_that_takes_long(
    lasts: int | None, last_join: int, clients: list[tuple[str]], setting: list[str]
) -> None:
    member = {"group_id": "g", "group_type": "classic", "api": "JoinGroup", "protocol": "range"}
    ended = {"error_code": 0, "error": "NONE", "generation": 2} if lasts else {}
    if lasts:
        ended["response_time"] = START + lasts * SECOND
    joins = [
        member | ended | {"client_id": name, "member_id": name, "time": START + second * SECOND}
        for name, second in (("early", 0), ("late", last_join))
    ]
    requests = [exchange(), exchange_at(START + 30 * SECOND)]
    findings = findings_of("rebalances", made(exchanges=requests, memberships=joins))
    assert [each.clients for each in findings] == clients
    assert [each.setting for each in findings] == setting


@pytest.mark.parametrize(
    ("error", "lasts", "fires"),
    [
        ("NOT_COORDINATOR", 30, True),
        ("NOT_COORDINATOR", 0, False),
        ("UNKNOWN_MEMBER_ID", 30, False),
    ],
)
def test_a_rebalance_that_ends_when_the_coordinator_stops(
    error: str, lasts: int, fires: bool
) -> None:
    join = {"group_id": "g", "group_type": "classic", "api": "JoinGroup", "client_id": "c"}
    ended = {"member_id": "m", "error_code": 16, "error": error, "time": START}
    rows = [join | ended | {"response_time": START + lasts * SECOND}]
    findings = findings_of("rebalances", made(exchanges=[exchange()], memberships=rows))
    sentence = "A rebalance of group `g` ended after 30.0 s without an assignment"
    assert [each.sentence for each in findings] == [sentence] * fires
    assert all("Client `c` sent the first JoinGroup." in each.evidence for each in findings)


def test_a_request_that_a_quota_leaves_unread_takes_no_time_of_the_broker() -> None:
    """The second request is sent before the response that begins the wait of 500 ms (KIP-219)."""
    start, end = START + MS, START + SECOND // 2 + 7 * MS
    waiting = exchange_at(start, end, correlation_id=8, latency_ms=506.0, in_flight=2)
    link = connection() | {"client_rtt_ms": 0.5, "broker_rtt_ms": 0.0}
    rows = made(exchanges=[exchange(throttle_time_ms=500), waiting], connections=[link])
    (client,) = times_of_clients(rows)
    assert client["broker_ms"] == pytest.approx(2 + 5)
    assert client["queue_ms"] == pytest.approx(1)


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


@pytest.mark.parametrize("again", [2, 3])
def test_a_group_that_does_not_get_past_a_record(again: int) -> None:
    """A record is produced each second; the group fetches from its committed offset `again` times,
    and then from the next ones."""
    starts = [20] * again + [400 + n for n in range(20)]
    rows = [
        fetched(n, 0) | {"offset": start, "last_offset": start + 100, "high_watermark": 600 + n}
        for n, start in enumerate(starts, 1)
    ]
    commit = fetched(0, 0) | {"api": "OffsetCommit", "group_id": "g", "offset": 20}
    exchanges = [
        exchange(
            api="OffsetCommit", client_id="reader", group_id="g", topics=["t"],
            request_time=START, response_time=START,
        )
    ]  # fmt: skip
    tables = made(exchanges=exchanges, partitions=[commit, *rows])
    (finding,) = findings_of("growing_lag", tables)
    if again == 3:
        assert (
            finding.sentence == "Group `g` does not get past offset 20 of partition 0 of topic `t`"
        )
    else:
        assert finding.sentence == "Group `g` falls behind in topic `t`"


def test_a_slow_group_has_no_event_in_a_quarter_of_its_time() -> None:
    """It fetches once, works, and commits after 1, 9 and 12 s; 50 records a second are produced."""
    produced = [
        fetched(n, 0)
        | {"api": "Produce", "offset": 50 * n, "last_offset": 50 * n + 49, "high_watermark": None}
        for n in range(14)
    ]
    commits = [
        fetched(n, 0)
        | {"api": "OffsetCommit", "group_id": "g", "offset": n, "high_watermark": None}
        for n in (1, 9, 12)
    ]
    fetch = fetched(0, 0) | {"offset": 0, "last_offset": 20, "high_watermark": 50}
    exchanges = [
        exchange_at(
            START + n * SECOND, api=api, client_id="reader", topics=["t"],
            group_id="g" if api == "OffsetCommit" else None,
        )
        for n, api in ((0, "Fetch"), (1, "OffsetCommit"), (9, "OffsetCommit"), (12, "OffsetCommit"))
    ]  # fmt: skip
    tables = {"exchanges": exchanges, "partitions": [*produced, *commits, fetch]}
    (finding,) = findings_of("growing_lag", made(**tables))
    assert "quarter of its time: 199, 349, 491, 638; at the end 688 records" in finding.evidence
    assert finding.cause.startswith("the consumer is the bottleneck")
    errors = [
        error(time=START + n * SECOND, error="COORDINATOR_NOT_AVAILABLE", client_id="reader")
        for n in range(20)
    ]
    (finding,) = findings_of("growing_lag", made(**tables, errors=errors))
    assert "20 responses with COORDINATOR_NOT_AVAILABLE" in finding.evidence
    assert finding.side == "broker"


@pytest.mark.parametrize("seconds", [5, 13])
def test_a_group_without_members_falls_behind(seconds: int) -> None:
    """Its member fetches and commits for some seconds; an administrator reads its offset at the
    end, after 16 s. 50 records are produced each second."""
    produced = [
        fetched(n, 0)
        | {"api": "Produce", "offset": 50 * n, "last_offset": 50 * n + 49, "high_watermark": None}
        for n in range(17)
    ]
    offset = {"group_id": "g", "offset": 20, "high_watermark": None}
    commit = fetched(1, 0) | {"api": "OffsetCommit"} | offset
    read = fetched(16, 0) | {"api": "OffsetFetch", "connection_id": 1} | offset
    reads = [
        fetched(n, 0) | {"offset": 20, "last_offset": None, "high_watermark": 50 * n}
        for n in range(seconds)
    ]
    exchanges = [
        exchange(
            api=api, client_id=name, group_id="g", topics=["t"], connection_id=link,
            request_time=START + n * SECOND, response_time=START + n * SECOND,
        )
        for n, api, name, link in (
            (1, "OffsetCommit", "reader", 0), (seconds, "Fetch", "reader", 0),
            (16, "OffsetFetch", "admin", 1),
        )
    ]  # fmt: skip
    tables = made(exchanges=exchanges, partitions=[*produced, commit, *reads, read])
    (finding,) = findings_of("growing_lag", tables)
    is_gone = finding.cause == "the group has no members any more: they left, or crashed"
    assert is_gone == (seconds == 5)


@pytest.mark.parametrize(("records", "fires"), [(99, False), (100, True)])
def test_a_few_records_in_one_of_many_partitions_are_chance(records: int, fires: bool) -> None:
    counts = [records, *[10] * 99]
    rows = [
        fetched(1, 0) | {"api": "Produce", "partition": n, "offset": 0, "last_offset": count - 1}
        | {"record_count": count, "bytes": 100 * count, "client_id": "writer"}
        for n, count in enumerate(counts)
    ]  # fmt: skip
    fired = rules(
        "partition_skew", exchanges=[exchange()], connections=[connection()], partitions=rows
    )
    assert fired == ["partition_skew"] * fires


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


def test_a_follower_that_is_gone() -> None:
    """Its last Fetch was long before the end, and no record was confirmed late."""
    row = {"connection_id": 0, "topic": "t", "partition": 0, "error_code": 0}
    fetch = row | {"api": "Fetch", "time": START, "offset": 0, "replica_id": 2}
    produced = [
        row | {"api": "Produce", "time": START + n * SECOND, "last_offset": n, "correlation_id": n}
        | {"response_time": START + n * SECOND + 1}
        for n in range(1, 12)
    ]  # fmt: skip
    exchanges = [
        exchange(api="Produce", acks=-1, correlation_id=n, request_time=START + n * SECOND)
        for n in range(1, 12)
    ]
    tables = made(
        exchanges=exchanges, partitions=[fetch | {"correlation_id": 99}, *produced],
        connections=[connection()],
    )  # fmt: skip
    (finding,) = findings_of("late_followers", tables)
    assert finding.evidence.endswith("Its last Fetch was 11.0 s before the end of the capture.")


@pytest.mark.parametrize(
    ("wait", "fetches", "acks", "setting"),
    [
        (6, range(12), -1, ["leader.replication.throttled.rate"]),
        (6, (0,), -1, ["num.replica.fetchers"]),
        (4, range(12), -1, []),
        (6, range(12), 1, []),
    ],
    ids=["throttled", "paused", "soon", "acks=1"],
)
def test_producers_wait_for_a_follower_in_sync(
    wait: int, fetches: Iterable[int], acks: int, setting: list[str]
) -> None:
    """Two fetch from offset 0 every half second, and get the record after `wait` seconds."""
    row = {"connection_id": 0, "topic": "t", "error_code": 0}
    end = START + wait * SECOND
    moves = [(START - SECOND + n * SECOND // 2, 0) for n in fetches if n < 2 * wait + 2]
    partitions = [
        row | {"api": "Fetch", "time": time, "offset": offset, "replica_id": replica}
        | {"correlation_id": 100 * replica + n, "partition": partition}
        for n, (time, offset) in enumerate([*moves, (end, 1)])
        for replica in (2, 3) for partition in (0, 1)
    ]  # fmt: skip
    exchanges = [
        exchange(api="Fetch", request_time=each["time"], correlation_id=each["correlation_id"])
        for each in partitions
    ]
    produced = {"api": "Produce", "time": START, "last_offset": 0, "response_time": end + 1}
    partitions += [row | produced | {"correlation_id": 1, "partition": n} for n in (0, 1)]
    exchanges.append(
        exchange_at(START, end + 1, api="Produce", acks=acks, topics=["t"], correlation_id=1)
        | {"latency_ms": wait * 1000.0}
    )
    tables = made(exchanges=exchanges, partitions=partitions, connections=[connection()])
    findings = findings_of("late_followers", tables)
    assert [each.setting for each in findings] == setting * 2
    assert all(f"by up to {wait}.0 s" in each.sentence for each in findings)


@pytest.mark.parametrize(("starts", "is_rolling"), [((0, 30), True), ((0, 5), False)])
def test_followers_that_are_out_of_sync_one_after_the_other(
    starts: tuple[int, ...], is_rolling: bool
) -> None:
    """Each sends no Fetch for 20 s; meanwhile eleven records to its partition are acknowledged."""
    partitions, exchanges = [], []
    for broker, start in enumerate(starts):
        row = {"connection_id": broker, "topic": "t", "partition": broker, "error_code": 0}
        for seconds, offset in ((start, 0), (start + 20, 12)):
            ids = {"correlation_id": 100 + seconds, "connection_id": broker}
            time = START + seconds * SECOND
            fetch = {"api": "Fetch", "time": time, "offset": offset, "replica_id": broker}
            partitions.append(row | fetch | ids)
            exchanges.append(exchange(api="Fetch", request_time=time, **ids))
        for n in range(1, 12):
            time = START + (start + n) * SECOND
            ids = {"correlation_id": start + n, "connection_id": broker}
            produced = {"api": "Produce", "time": time, "last_offset": n, "response_time": time + 1}
            partitions.append(row | produced | ids)
            exchanges.append(exchange(api="Produce", acks=-1, request_time=time, **ids))
    links = [connection(connection_id=n) for n in range(len(starts))]
    tables = made(exchanges=exchanges, partitions=partitions, connections=links)
    (finding,) = findings_of("late_followers", tables)
    assert finding.subject == "broker 0, broker 1"
    assert finding.sentence == (
        "2 followers were out of sync" + ", one after the other" * is_rolling
    )
    assert "Broker 1, from 2023-11-14 22:13" in finding.evidence


def test_a_follower_of_several_partitions_is_one_finding() -> None:
    """Of each partition, eleven records were acknowledged before broker 2 had them."""
    row = {"connection_id": 0, "topic": "t", "error_code": 0}
    partitions = [
        row | {"partition": p, "api": "Fetch", "time": START, "offset": 0, "replica_id": 2}
        | {"correlation_id": 99}
        for p in range(3)
    ] + [
        row | {"partition": p, "api": "Produce", "time": START + n * SECOND, "last_offset": n}
        | {"correlation_id": n, "response_time": START + n * SECOND + 1}
        for p in range(3)
        for n in range(1, 12)
    ]  # fmt: skip
    exchanges = [
        exchange(api="Produce", acks=-1, correlation_id=n, request_time=START + n * SECOND)
        for n in range(1, 12)
    ]
    tables = made(exchanges=exchanges, partitions=partitions, connections=[connection()])
    (finding,) = findings_of("late_followers", tables)
    assert finding.sentence == "Broker 2 is a follower of 3 partitions and was out of sync"
    assert finding.evidence.startswith("Most: 11 Produce requests to t-0 with acks=all")
