"""The rule `slow_broker` about made rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of, rules
from tests.analysis.made_rows import MS, SECOND, START, connection, exchange, exchange_at


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
    ("api", "cause"),
    [
        ("Produce", "the broker or, with acks=all, one of its followers lacks CPU"),
        ("TxnOffsetCommit", "the broker or one of its followers lacks CPU"),
        ("Metadata", "the broker lacks CPU"),
    ],
)
def test_followers_may_delay_what_a_broker_writes(api: str, cause: str) -> None:
    rows = [row | {"api": api} for row in timed(100, "10.0.0.1", 100.0)]
    (finding,) = findings_of("slow_broker", made(exchanges=rows))
    assert finding.cause.startswith(cause)


@pytest.mark.parametrize(
    ("latency_ms", "produced", "end", "fires"),
    [
        (400, [], None, False),
        (400, range(100, 200), None, True),
        (400, range(100, 103), None, False),  # another producer is not in the capture
        (599, range(100, 103), None, False),
        (601, range(100, 103), None, True),
        (400, [], 99, False),
        (400, [], 199, True),  # the log already has all of them
    ],
)
def test_a_fetch_may_have_waited_for_records_with_old_timestamps(
    latency_ms: int, produced: list[int], end: int | None, fires: bool
) -> None:
    """The application dates its records an hour back; fetch.max.wait.ms is 500."""
    fetch = {"api": "Fetch", "api_key": 1, "topics": ["t"], "max_wait_ms": 500, "min_bytes": 1}
    batch = {"topic": "t", "partition": 0, "connection_id": 0}
    times = [START + n * SECOND for n in range(100)]
    rows = [
        exchange_at(
            time, time + latency_ms * MS, correlation_id=n, latency_ms=float(latency_ms),
            record_bytes=100, **fetch,
        )
        for n, time in enumerate(times)
    ]  # fmt: skip
    batches = [
        batch | {"api": "Fetch", "correlation_id": n, "time": time + latency_ms * MS}
        | {"base_offset": 199 - n, "max_timestamp": time - 3600 * SECOND}
        for n, time in enumerate(times)
    ]  # fmt: skip
    batches += [
        batch | {"api": "Produce", "time": START, "base_offset": offset, "error_code": 0}
        for offset in produced
    ]
    log = batch | {"api": "Fetch", "time": START - SECOND, "response_time": START - SECOND}
    log |= {"error_code": 0, "offset": 0, "high_watermark": end and end + 1}
    partitions = [log] * (end is not None)
    tables = made(exchanges=rows, batches=batches, partitions=partitions)
    assert [each.numbers["api"] for each in findings_of("slow_broker", tables)] == ["Fetch"] * fires


@pytest.mark.parametrize(
    ("requests", "fires"),
    [
        ([(0, 0, 6), (1, 0, 6)], True),
        ([(0, 0, 6), (0, 0, 6)], False),  # of one connection
        ([(0, 0, 6), (1, 4, 6)], False),  # sent at the end of the pause
        ([(0, 0, 6), (1, 0, 6), (2, 3, 3)], False),  # a response meanwhile
        ([(0, 0, 4), (1, 0, 4)], False),
        ([(0, 2, 6), (1, 2, 6)], False),  # without requests before
        ([(0, 3, 9), (1, 4, 9)], True),
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


@pytest.mark.parametrize(
    ("seconds", "port", "severity"),
    [(31, 9093, "critical"), (29, 9093, "warning"), (31, None, "warning")],
    ids=["request.timeout.ms", "shorter", "or the clock"],
)
def test_a_broker_that_pauses_longer_than_clients_wait(
    seconds: int, port: int | None, severity: str
) -> None:
    """Another broker responds meanwhile, or there is none."""
    end = START + seconds * SECOND + 3 * MS
    rows = [exchange(correlation_id=n, connection_id=n) for n in range(2)]
    rows += [
        exchange_at(START + 3 * MS, end, connection_id=n, correlation_id=10,
                    latency_ms=seconds * 1000.0)
        for n in range(2)
    ]  # fmt: skip
    rows += [
        exchange_at(START + n * SECOND, connection_id=5, broker_port=port, correlation_id=n)
        for n in range(seconds) if port
    ]  # fmt: skip
    findings = findings_of("slow_broker", made(exchanges=rows))
    assert [each.severity for each in findings if "9092" in each.subject] == [severity]


@pytest.mark.parametrize("name", [None, 'it\'s a "name"', "n" * 300])
@pytest.mark.parametrize(
    ("before", "last_s", "responds", "is_stopped"),
    [(20, 0, True, True), (19, 0, True, False), (20, 5, True, False), (20, 0, False, False)],
    ids=["stopped", "few requests", "continues", "all brokers are silent"],
)
def test_a_producer_that_waits_for_a_paused_broker_sends_nothing_to_others(
    before: int, last_s: int, responds: bool, is_stopped: bool, name: str | None
) -> None:
    """Its buffer.memory is full of batches for the partitions of the paused broker. `last_s`: its
    last request to the other one."""
    end = START + 8 * SECOND
    rows = [exchange_at(START - SECOND, connection_id=n, correlation_id=n) for n in range(2)]
    rows += [
        exchange_at(START, end, connection_id=n, api="Produce", client_id=name, latency_ms=8000.0)
        for n in range(2)
    ]
    other = {"connection_id": 5, "broker_port": 9093}
    times = [START - (n + 1) * MS for n in range(before)] + [START + last_s * SECOND]
    rows += [
        exchange_at(at, api="Produce", client_id=name, correlation_id=n, **other)
        for n, at in enumerate(times)
    ]
    rows.append(exchange(status="unanswered", client_id=name, request_time=None, **other))
    if responds:
        rows.append(exchange_at(START + 6 * SECOND, client_id="other", **other))
    (finding,) = findings_of("slow_broker", made(exchanges=rows))
    assert finding.sentence == "Broker 10.0.0.9:9092 sent no response for 8.0 s"
    assert ("sent nothing to other brokers" in finding.evidence) == is_stopped
    assert (f"`{name}`" in finding.evidence) == (is_stopped and bool(name))


@pytest.mark.parametrize(("other", "is_login"), [("SaslAuthenticate", True), ("Produce", False)])
def test_a_broker_that_is_late_for_logins_only(other: str, is_login: bool) -> None:
    """It resolves a name for each login: `InetAddress.getHostName` in `SaslServerAuthenticator`."""
    rows = [
        exchange_at(START, START + 6 * SECOND, api=api, connection_id=n, correlation_id=n)
        for n, api in enumerate(("SaslHandshake", other))
    ]
    rows.append(exchange_at(START - SECOND, connection_id=2))
    (finding,) = findings_of("slow_broker", made(exchanges=rows))
    assert ("getent hosts" in finding.change) == is_login


def test_a_controller_that_pauses() -> None:
    rows = [
        exchange_at(START + 3 * MS, START + 6 * SECOND, connection_id=n, correlation_id=10,
                    api="BrokerHeartbeat", latency_ms=5997.0)
        for n in range(2)
    ]  # fmt: skip
    rows += [exchange(correlation_id=n, connection_id=n, api="BrokerHeartbeat") for n in range(2)]
    (finding,) = findings_of("slow_broker", made(exchanges=rows))
    assert finding.subject == "controller 10.0.0.9:9092"
    assert finding.sentence == "Controller 10.0.0.9:9092 sent no response for 6.0 s"
    assert finding.cause.startswith("the controller or its host was paused")
    assert "elect" in finding.change


@pytest.mark.parametrize(("port", "is_silent"), [(None, True), (9093, False)])
def test_a_clock_that_is_set_forward_looks_like_a_pause(port: int | None, is_silent: bool) -> None:
    """Not if a broker responds meanwhile."""
    rows = [exchange(correlation_id=n, connection_id=n) for n in range(3)]
    rows += [
        exchange_at(START + 10 * MS, START + 30 * SECOND, connection_id=n, correlation_id=10,
                    latency_ms=29_990.0)
        for n in range(2)
    ]  # fmt: skip
    if port:
        rows.append(exchange_at(START + 15 * SECOND, connection_id=9, broker_port=port))
    (finding,) = findings_of("slow_broker", made(exchanges=rows))
    assert finding.sentence == "Broker 10.0.0.9:9092 sent no response for 30.0 s"
    assert ("the clock of the capture was set forward" in finding.cause) == is_silent


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


def throttled_requests(api: str, throttle_ms: int) -> list[dict[str, Any]]:
    """A client sends each request before the response to the previous one (KIP-219)."""
    return [
        exchange_at(
            START + n * SECOND // 2 - 100 * MS, START + n * SECOND // 2 + 405 * MS, api=api,
            api_version=13, correlation_id=n, latency_ms=505.0, throttle_time_ms=throttle_ms,
        )
        for n in range(120)
    ]  # fmt: skip


@pytest.mark.parametrize(("throttle_ms", "fires"), [(500, False), (0, True)])
def test_a_broker_that_throttles_is_not_slow(throttle_ms: int, fires: bool) -> None:
    rows = throttled_requests("Produce", throttle_ms)
    assert rules("slow_broker", exchanges=rows) == ["slow_broker"] * fires


def test_a_client_that_is_throttled_does_not_delay_its_own_requests() -> None:
    rows = throttled_requests("Metadata", 500)
    assert rules("queueing", "throttling", exchanges=rows) == ["throttling"]


@pytest.mark.parametrize(("refused", "fires"), [(True, False), (False, True)])
def test_a_broker_that_has_just_started_is_not_slow(refused: bool, fires: bool) -> None:
    """It refuses three connections, and then takes 300 ms for each request, for 9 s."""
    attempt = connection(
        protocol="unknown", client_bytes=0, broker_bytes=0, client_packets=1, broker_packets=1,
        closed="rst", handshake_rtt_ms=None, first_time=START - SECOND, last_time=START - SECOND,
    )  # fmt: skip
    rows = [
        exchange_at(time, time + 300 * MS, connection_id=n, latency_ms=300.0)
        for n in range(120) for time in [START + n * 75 * MS]
    ]  # fmt: skip
    links = [connection()] + [attempt | {"connection_id": n} for n in (1, 2, 3)] * refused
    findings = findings_of("slow_broker", made(exchanges=rows, connections=links))
    assert len(findings) == fires


def pausing(
    number: int, pause_ms: int, work_ms: int, *, links: int = 2, port: int = 9092
) -> list[dict[str, Any]]:
    """Two clients send a request each 10 ms. The broker pauses, and works, in turn."""
    period, rows = pause_ms + work_ms, []
    for ms in range(0, number * period, 10):
        end = ms + 1 if ms % period < work_ms else (ms // period + 1) * period
        rows += [
            exchange_at(START + ms * MS, START + end * MS, connection_id=link, broker_port=port,
                        correlation_id=ms, latency_ms=float(end - ms))
            for link in range(links)
        ]  # fmt: skip
    return rows


@pytest.mark.parametrize(
    ("number", "pause_ms", "links", "fires"),
    [(4, 1000, 2, True), (3, 1000, 2, False), (4, 900, 2, False), (4, 1000, 1, False)],
    ids=["several", "two", "short", "one connection"],
)
def test_a_broker_that_collects_garbage_for_a_second(
    number: int, pause_ms: int, links: int, fires: bool
) -> None:
    """Rarely, so that 0.95 of the requests are quick. The capture ends in the last pause."""
    rows = pausing(number, pause_ms, 15_000, links=links)
    rows = [row for row in rows if row["response_time"] < rows[-1]["request_time"]]
    findings = findings_of("slow_broker", made(exchanges=rows))
    assert [each.sentence for each in findings] == [
        "Broker 10.0.0.9:9092 pauses: it sends no response for 1.0 s, again and again"
    ] * fires
    assert all(each.evidence.startswith("3 pauses of 1.0 s (median)") for each in findings)
    assert all("garbage collection" in each.cause for each in findings)


@pytest.mark.parametrize(("slow", "is_slow"), [(0, False), (200, False), (300, True)])
def test_requests_that_wait_for_the_end_of_pauses(slow: int, is_slow: bool) -> None:
    """A tenth of the requests waits for the end of a pause, which has its own finding. Others of
    the API are slow between the pauses."""
    rows = [
        row | {"connection_id": row["correlation_id"] // 10 % 100} for row in pausing(4, 1000, 9000)
    ]
    rows += [
        exchange_at(at, at + 500 * MS, connection_id=100 + n, latency_ms=500.0)
        for n, at in enumerate(START + 2 * SECOND + n * 10 * MS for n in range(slow))
    ]
    rows = [row for row in rows if row["response_time"] < START + 39 * SECOND]
    (finding,) = findings_of("slow_broker", made(exchanges=rows))
    assert ("is slow" in finding.sentence) == is_slow
    assert ("again and again" in finding.sentence) == (not is_slow)


@pytest.mark.parametrize(("work_ms", "severity"), [(50, "critical"), (70, "warning")])
def test_a_broker_that_pauses_for_half_of_the_time(work_ms: int, severity: str) -> None:
    (finding,) = findings_of("slow_broker", made(exchanges=pausing(20, 60, work_ms)))
    assert finding.severity == severity


@pytest.mark.parametrize(
    ("rows", "fires"),
    [
        (pausing(11, 60, 140), True),
        (pausing(10, 60, 140), False),
        (pausing(11, 40, 140), False),
        (pausing(11, 60, 440), False),
        (pausing(11, 60, 140, links=1), False),
        ([row | {"throttle_time_ms": 1} for row in pausing(11, 60, 140)], False),
    ],
    ids=["often", "a few times", "short", "rarely", "one connection", "a quota"],
)
def test_a_broker_that_pauses_again_and_again(rows: list[dict[str, Any]], fires: bool) -> None:
    """With a limit of its CPU, for example. The capture ends in the last pause."""
    rows = [row for row in rows if row["response_time"] < rows[-1]["request_time"]]
    findings = findings_of("slow_broker", made(exchanges=rows))
    assert [each.cause.partition(":")[0] for each in findings] == [
        "the broker is paused again and again"
    ] * fires


def test_a_broker_that_pauses_again_and_again_reads_nothing_meanwhile() -> None:
    windows = {"client_zero_windows": 0, "broker_zero_windows": 50}
    links = [connection(connection_id=n) | windows for n in range(2)]
    names = rules("slow_broker", "zero_windows", exchanges=pausing(12, 60, 140), connections=links)
    assert names == ["slow_broker"]


@pytest.mark.parametrize(("known", "fires"), [(99, False), (100, True)])
def test_the_sample_has_only_requests_whose_time_is_known(known: int, fires: bool) -> None:
    """It is unknown for how long a broker waits for records if max_wait_ms is unknown."""
    rows = [
        exchange_at(at, at + 700 * MS, api="Fetch", correlation_id=n, latency_ms=700.0,
                    max_wait_ms=500 if n < known else None)
        for n, at in enumerate(START + n * SECOND for n in range(600))
    ]  # fmt: skip
    assert rules("slow_broker", exchanges=rows) == ["slow_broker"] * fires


@pytest.mark.parametrize(("late", "fires"), [(9, False), (10, True)])
def test_a_broker_that_accepts_less_than_half_of_the_connections_late(
    late: int, fires: bool
) -> None:
    """With max.connection.creation.rate, those that come after a second without one are quick."""
    first = timed(90, "10.0.0.1", 2.0) + timed(late, "10.0.0.1", 900.0)
    rows = [row | {"api": "ApiVersions"} for row in first]
    rows += [row | {"api": "Metadata"} for row in timed(20, "10.0.0.1", 2.0)]
    findings = findings_of("slow_broker", made(exchanges=rows))
    assert [each.setting for each in findings] == ["max.connection.creation.rate"] * fires
    evidence = f"{late} of 100 ApiVersions requests took 100 ms or more; median 2 ms"
    assert all(each.evidence.startswith(evidence) for each in findings)


@pytest.mark.parametrize("latency_ms", [60, 90])
def test_requests_that_always_take_long_are_no_pauses(latency_ms: int) -> None:
    """Two clients at a distance, or with slow followers, send one request after the other."""
    rows = [
        exchange_at(
            START + n * latency_ms * MS, START + (n + 1) * latency_ms * MS, connection_id=link,
            correlation_id=n, latency_ms=float(latency_ms),
        )
        for link in range(2) for n in range(99)
    ]  # fmt: skip
    assert findings_of("slow_broker", made(exchanges=rows)) == []
