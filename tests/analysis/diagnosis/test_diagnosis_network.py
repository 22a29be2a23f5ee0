"""Rules on made rows: the network between clients and brokers."""

from __future__ import annotations

import pytest

from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of, rules
from tests.analysis.made_rows import MS, SECOND, START, connection, exchange, exchange_at


@pytest.mark.parametrize("side", ["client", "broker"])
@pytest.mark.parametrize("count", [4, 5])
def test_zero_windows(side: str, count: int) -> None:
    row = connection() | {"client_zero_windows": 0, "broker_zero_windows": 0}
    rows = made(exchanges=[exchange()], connections=[row | {f"{side}_zero_windows": count}])
    assert [each.side for each in findings_of("zero_windows", rows)] == [side] * (count == 5)


@pytest.mark.parametrize(("count", "expected"), [(14, []), (15, ["client"])])
def test_copies_of_a_packet_are_one_zero_window(count: int, expected: list[str]) -> None:
    """The capture contains each packet three times."""
    row = connection(
        client_bytes=90, broker_bytes=180, client_retransmitted=2, client_zero_windows=count,
        broker_zero_windows=0,
    )  # fmt: skip
    rows = made(exchanges=[exchange()], connections=[row])
    assert [each.side for each in findings_of("zero_windows", rows)] == expected


@pytest.mark.parametrize(
    ("replica_id", "setting"),
    [(2, "replica.socket.receive.buffer.bytes"), (None, "receive.buffer.bytes")],
)
def test_zero_windows_of_a_follower_are_those_of_a_broker(
    replica_id: int | None, setting: str
) -> None:
    row = connection() | {"client_zero_windows": 5, "broker_zero_windows": 0}
    fetch = {"api": "Fetch", "client_id": "app", "topic": "t", "partition": 0, "time": START}
    partitions = [fetch | {"replica_id": replica_id}]
    rows = made(exchanges=[exchange()], connections=[row], partitions=partitions)
    assert [each.setting for each in findings_of("zero_windows", rows)] == [setting]


def test_a_throttled_client_explains_zero_windows_of_the_broker() -> None:
    row = connection() | {"client_zero_windows": 0, "broker_zero_windows": 50}
    for wait, expected in ((0, ["zero_windows"]), (5, [])):
        rows = [exchange(throttle_time_ms=wait)]
        assert rules("zero_windows", exchanges=rows, connections=[row]) == expected


@pytest.mark.parametrize(
    ("side", "seconds", "fires"),
    [
        ("broker", 6, False),
        ("broker", 4, True),
        ("client", 6, True),
    ],
)
def test_a_paused_broker_does_not_read(side: str, seconds: int, fires: bool) -> None:
    """Its kernel accepts data of two connections until the buffers are full."""
    links = [
        connection(connection_id=n)
        | {"client_zero_windows": 0, "broker_zero_windows": 0}
        | {f"{side}_zero_windows": 9}
        for n in (0, 1)
    ]
    rows = [
        exchange_at(START + start * SECOND, START + end * SECOND, connection_id=n, api="Produce")
        for n in (0, 1) for start, end in ((0, 0), (1, 1 + seconds))
    ]  # fmt: skip
    assert rules("zero_windows", exchanges=rows, connections=links) == ["zero_windows"] * fires


@pytest.mark.parametrize(("requests", "severity"), [(1, "warning"), (3, "warning"), (4, "note")])
def test_requests_in_flight_fill_the_buffer_of_the_broker(requests: int, severity: str) -> None:
    """It reads a request when it has responded to the one before: the first waits 0 s, and the
    fourth 3 s."""
    rows = [
        exchange_at(START, START + n * SECOND, api="Produce", correlation_id=n,
                    latency_ms=n * 1000.0)
        for n in range(1, requests + 1)
    ]  # fmt: skip
    link = connection() | {"client_zero_windows": 0, "broker_zero_windows": 50}
    (finding,) = findings_of("zero_windows", made(exchanges=rows, connections=[link]))
    assert finding.severity == severity
    assert (finding.setting is None) == (severity == "note")


@pytest.mark.parametrize(
    ("side", "ends", "sentence"),
    [
        ("broker", [("a", "1"), ("b", "1"), ("c", "1")],
         "3 clients (`c`, `b`, `a`) send faster than 10.0.0.1:9092 reads"),
        ("broker", [("a", "1"), ("a", "2")],
         "Client `a` sends faster than 2 brokers (10.0.0.2:9092, 10.0.0.1:9092) read"),
        ("client", [("a", "1"), ("b", "1")],
         "2 clients (`b`, `a`) do not read the responses of 10.0.0.1:9092 fast enough"),
        ("client", [("a", "1"), ("a", "2")],
         "Client `a` does not read the responses of 2 brokers (10.0.0.2:9092, 10.0.0.1:9092) fast "
         "enough"),
    ],
)  # fmt: skip
def test_zero_windows_at_one_end_are_one_finding(
    side: str, ends: list[tuple[str, str]], sentence: str
) -> None:
    """The later ones have more zero windows."""
    links, rows = [], []
    for number, (client_id, host) in enumerate(ends):
        windows = dict.fromkeys(("client_zero_windows", "broker_zero_windows"), 0)
        windows |= {f"{side}_zero_windows": 10 + number}
        links.append(connection(connection_id=number, broker_ip=f"10.0.0.{host}") | windows)
        rows.append(exchange(connection_id=number, broker_ip=f"10.0.0.{host}", client_id=client_id))
    (finding,) = findings_of("zero_windows", made(exchanges=rows, connections=links))
    assert finding.sentence == sentence
    assert finding.numbers[f"{side}_zero_windows"] == 9 + len(ends)
    total = sum(10 + number for number in range(len(ends)))
    assert f"a window of 0 in {total} of {11 * len(ends)} packets. Most: " in finding.evidence
    assert finding.requests == len(ends)


@pytest.mark.parametrize("others", [4, 5])
def test_a_refused_request_explains_zero_windows_of_the_broker(others: int) -> None:
    """A broker does not read a request above socket.request.max.bytes (SocketServer)."""
    windows = {"client_zero_windows": 0, "broker_zero_windows": 0}
    size = 200_000_000
    refused = exchange(api="Produce", api_key=0, status="unanswered", request_bytes=size)
    connections = [
        connection(connection_id=n, last_time=START, closed="rst")
        | windows
        | {"broker_zero_windows": 9}
        for n in (1, 2, 3)
    ]
    names = rules(
        exchanges=[exchange(), *(refused | {"connection_id": n} for n in (1, 2, 3))],
        connections=[connection() | windows | {"broker_zero_windows": others}, *connections],
    )
    assert sorted(names) == sorted(["no_response", *["zero_windows"] * (others == 5)])


@pytest.mark.parametrize(("handshake_ms", "fires"), [(0.04, False), (6.0, True), (None, True)])
def test_a_busy_end_is_not_a_long_way(handshake_ms: float | None, fires: bool) -> None:
    """The round trip is the sum of two, each of which may be too long for the handshake."""
    link = connection(handshake_rtt_ms=handshake_ms, client_rtt_ms=0.6, broker_rtt_ms=9.8)
    rows = [exchange(latency_ms=0.5, correlation_id=n) for n in range(20)]
    assert rules("network_time", exchanges=rows, connections=[link]) == ["network_time"] * fires


@pytest.mark.parametrize(("measured", "fires"), [(1, False), (19, False), (20, True)])
@pytest.mark.parametrize("name", ["it's", None])
def test_a_round_trip_is_that_of_several_requests(
    measured: int, fires: bool, name: str | None
) -> None:
    """The other requests are on a connection that began before the capture."""
    trips = {"client_rtt_ms": 0.1, "broker_rtt_ms": 42.0}
    links = [
        connection(connection_id=n, opened=False, handshake_rtt_ms=None, **trips if n == 0 else {})
        for n in range(2)
    ]
    rows = [
        exchange(connection_id=int(n >= measured), correlation_id=n, latency_ms=46, client_id=name)
        for n in range(measured + 19)
    ]
    assert rules("network_time", exchanges=rows, connections=links) == ["network_time"] * fires


@pytest.mark.parametrize("name", [None, 'it\'s a "name"', "n" * 300])
@pytest.mark.parametrize(
    ("apis", "setting"),
    [(("Produce",), "batch.size"), (("Produce", "Fetch"), "client.rack"),
     (("Metadata", "Fetch"), "client.rack"), (("Metadata",), "client.rack")],
)  # fmt: skip
def test_only_consumers_read_from_the_nearest_replica(
    apis: tuple[str, ...], setting: str, name: str | None
) -> None:
    link = connection(handshake_rtt_ms=80.0, client_rtt_ms=80.0, broker_rtt_ms=0.1)
    rows = [
        exchange(api=api, latency_ms=0.5, correlation_id=n, client_id=name)
        for n in range(20) for api in apis
    ]  # fmt: skip
    (finding,) = findings_of("network_time", made(exchanges=rows, connections=[link]))
    assert finding.setting == setting


def test_retransmissions_concern_at_most_one_request_each() -> None:
    link = connection(client_packets=200, client_retransmitted=5)
    rows = [exchange(correlation_id=n) for n in range(100)]
    (finding,) = findings_of("retransmissions", made(exchanges=rows, connections=[link]))
    assert finding.requests == 5


@pytest.mark.parametrize("is_behind", [False, True], ids=["a part is late", "behind a late one"])
@pytest.mark.parametrize(
    ("late", "delayed", "delay_ms", "fires"),
    [(20, 5, 10, True), (20, 4, 10, False), (20, 5, 9, False), (21, 5, 10, False),
     (9, 5, 10, False)],
    ids=["lost", "few messages", "reordered", "most reordered", "few packets"],
)  # fmt: skip
def test_packets_that_were_lost_before_the_capture_point(
    is_behind: bool, late: int, delayed: int, delay_ms: int, fires: bool
) -> None:
    """The round trip takes 10 ms. A late packet delays the last byte of a request of several
    packets. All bytes of a later request come with it, although its packet is captured before
    another one."""
    link = connection(
        client_packets=1000, client_out_of_order=late, client_rtt_ms=10.0, broker_rtt_ms=0.0
    )
    rows = []
    for n in range(40):
        start = START + n * SECOND
        end = start + delay_ms * MS * (n < delayed)
        numbers = {"request_packet": 10 * n, "response_packet": 10 * n + 2}
        row = exchange_at(start, end, correlation_id=n, **numbers) | {"request_end_time": end}
        rows.append(row | {"request_time": end if is_behind else start})
        numbers = {"request_packet": 10 * n + 1, "response_packet": 10 * n + 1}
        rows.append(exchange_at(start, connection_id=1, correlation_id=n, **numbers))
    links = [link, connection(connection_id=1)]
    findings = findings_of("retransmissions", made(exchanges=rows, connections=links))
    assert [each.sentence for each in findings] == fires * [
        "TCP retransmits 2 % of the packets from client `app` to 10.0.0.9:9092"
    ]
    assert all(
        "20 of them arrived after later ones, and 5 messages waited for them longer than a round "
        "trip, up to 10 ms" in each.evidence
        for each in findings
    )


@pytest.mark.parametrize(("sender", "receiver"), [("client", "broker"), ("broker", "client")])
def test_retransmissions_are_a_share_of_one_direction(sender: str, receiver: str) -> None:
    counts = {f"{sender}_packets": 1000, f"{receiver}_packets": 1000}
    for count, fires in ((9, False), (10, True)):
        link = connection(**counts) | {f"{sender}_retransmitted": count}
        assert rules("retransmissions", exchanges=[exchange()], connections=[link]) == (
            ["retransmissions"] * fires
        )


_IN_VAIN = "TCP retransmits packets from {} to {} in vain: no message came back for 26.0 s"


@pytest.mark.parametrize(
    ("retransmitted", "last", "closed", "next_request", "sentence"),
    [
        (8, 26, "rst", None, _IN_VAIN.format("10.0.0.9:9092", "client `app`")),
        (12, 26, "rst", None, _IN_VAIN.format("10.0.0.9:9092", "client `app`")),
        (13, 26, "rst", None, "TCP retransmits 3.2 % of the packets from 10.0.0.9:9092 to client "
                              "`app`"),
        (8, 26, "fin", None, "TCP retransmits 2 % of the packets from 10.0.0.9:9092 to client "
                             "`app`"),
        (8, 4, "rst", None, "TCP retransmits 2 % of the packets from 10.0.0.9:9092 to client "
                            "`app`"),
        (8, 26, "rst", 25, "TCP retransmits 2 % of the packets from 10.0.0.9:9092 to client "
                           "`app`"),
    ],
    ids=["a dead path", "and single losses", "and a lossy one", "idle", "short", "alive"],
)  # fmt: skip
def test_a_broker_that_retransmits_a_response_in_vain(
    retransmitted: int, last: int, closed: str, next_request: int | None, sentence: str
) -> None:
    """In 26 s, Linux sends a tail loss probe, and the response again after 0.2, 0.6, 1.4, 3, 6.2,
    12.6 and 25.4 s."""
    link = connection(
        broker_packets=400, broker_retransmitted=retransmitted, last_time=START + last * SECOND,
        closed=closed,
    )  # fmt: skip
    rows = [exchange_at(START)]
    if next_request:
        rows.append(exchange_at(START + next_request * SECOND, correlation_id=8))
    (finding,) = findings_of("retransmissions", made(exchanges=rows, connections=[link]))
    assert finding.sentence == sentence
    if "in vain" in sentence:
        assert (finding.first_time, finding.last_time) == (START, START + 26 * SECOND)
        assert "up to 8 of them in this time" in finding.evidence


@pytest.mark.parametrize(
    ("columns", "is_in_vain"),
    [({}, True), ({"max_wait_ms": 25_000}, False), ({"api": "JoinGroup"}, False)],
    ids=["a request", "a long poll", "members of a group"],
)
def test_a_client_that_retransmits_a_request_in_vain(
    columns: dict[str, int | str], is_in_vain: bool
) -> None:
    link = connection(client_packets=400, client_retransmitted=8)
    row = exchange_at(START, START + 26 * SECOND, **columns)
    (finding,) = findings_of("retransmissions", made(exchanges=[row], connections=[link]))
    assert ("in vain" in finding.sentence) == is_in_vain


def test_a_capture_of_one_direction_does_not_show_that_nothing_came_back() -> None:
    link = connection(client_packets=400, client_retransmitted=8, broker_packets=0)
    row = exchange_at(START, status="unanswered")
    (finding,) = findings_of("retransmissions", made(exchanges=[row], connections=[link]))
    assert "in vain" not in finding.sentence


@pytest.mark.parametrize(("number", "expected"), [(1, "retransmissions"), (2, "slow_broker")])
def test_requests_that_clients_retransmit_in_vain_show_a_paused_broker(
    number: int, expected: str
) -> None:
    """Requests on two connections wait for a pause."""
    ends = [{"connection_id": n, "client_port": 50000 + n} for n in range(number)]
    links = [connection(client_packets=400, client_retransmitted=8) | end for end in ends]
    rows = [
        exchange_at(START + start * SECOND, START + end * SECOND, correlation_id=end) | ids
        for ids in ends for start, end in ((0, 0), (1, 27))
    ]  # fmt: skip
    assert rules("retransmissions", "slow_broker", exchanges=rows, connections=links) == [expected]


def test_programs_on_one_host_lose_no_packets() -> None:
    link = connection(client_packets=2000, client_retransmitted=50)
    for address, fires in ((link["client_ip"], False), (link["broker_ip"], True)):
        row = link | {"broker_ip": address}
        assert rules("retransmissions", exchanges=[exchange()], connections=[row]) == (
            ["retransmissions"] * fires
        )


@pytest.mark.parametrize(("copies", "expected"), [(1, "retransmissions"), (2, "coverage")])
def test_packets_that_were_captured_more_than_once_are_not_retransmissions(
    copies: int, expected: str
) -> None:
    link = connection(
        client_packets=200, client_retransmitted=50, client_bytes=copies * 3000,
        broker_bytes=copies * 6000,
    )  # fmt: skip
    rows = [exchange(correlation_id=n) for n in range(100)]  # of 30 and 60 bytes
    assert rules("retransmissions", "coverage", exchanges=rows, connections=[link]) == [expected]


@pytest.mark.parametrize(
    ("pairs", "ends"),
    [
        ([("a", 1), ("b", 1), ("c", 1)], [("3 clients (`a`, `b`, `c`)", "10.0.1.1:9092")]),
        ([("a", 1), ("a", 2)], [("client `a`", "2 brokers (10.0.1.1:9092, 10.0.1.2:9092)")]),
        ([("a", 1), ("b", 2)], [("client `a`", "10.0.1.1:9092"), ("client `b`", "10.0.1.2:9092")]),
    ],
    ids=["one broker", "one client", "pairs"],
)
@pytest.mark.parametrize("rule", ["retransmissions", "network_time", "no_response"])
def test_the_end_that_connections_share_is_one_finding(
    rule: str, pairs: list[tuple[str, int]], ends: list[tuple[str, str]]
) -> None:
    links, rows = [], []
    for number, (client, broker) in enumerate(pairs):
        common = {"connection_id": number, "broker_ip": f"10.0.1.{broker}"}
        links.append(
            connection(
                client_packets=200, client_retransmitted=9 - number, handshake_rtt_ms=30.0,
                client_rtt_ms=30.0 - number, broker_rtt_ms=0.0, **common,
            )
        )  # fmt: skip
        is_answered = rule != "no_response"
        answered = {"latency_ms": 0.5} if is_answered else {"status": "unanswered"}
        common |= {"client_id": client, "api": "Produce"}
        rows += [exchange(correlation_id=n, **common, **answered) for n in range(20)]
    findings = findings_of(rule, made(exchanges=rows, connections=links))
    named = [each.sentence for each in findings]
    assert len(named) == len(ends)
    assert all(
        client in text and broker in text
        for text, (client, broker) in zip(named, ends, strict=True)
    )


@pytest.mark.parametrize("message", ["request", "response"])
@pytest.mark.parametrize(
    ("transfer_ms", "size", "changed", "throttle_ms", "missing", "fires"),
    [
        (5000, 50_000_000, {}, 0, 0, True),
        (4999, 40_000_000, {}, 0, 0, False),
        (5000, 50_000_001, {}, 0, 0, False),
        (5000, 50_000_000, {"broker_zero_windows": 4, "client_zero_windows": 4}, 0, 0, True),
        (5000, 50_000_000, {"broker_zero_windows": 5, "client_zero_windows": 5}, 0, 0, False),
        (5000, 50_000_000, {"client_lost_bytes": 1}, 0, 0, False),
        (5000, 50_000_000, {}, 1, 0, False),
        (5000, 60_000_000, {}, 0, 10_000_000, True),
        (5000, 60_000_000, {}, 0, 0, False),
    ],
    ids=["a slow link", "half idle", "a fast link", "short peaks", "a slow receiver", "lost bytes",
         "a quota", "a part of a message", "all of it"],
)  # fmt: skip
def test_a_link_at_its_limit(
    message: str, transfer_ms: int, size: int, changed: dict[str, int], throttle_ms: int,
    missing: int, fires: bool,
) -> None:  # fmt: skip
    """A message takes this time of 10 s."""
    request_end = START + transfer_ms * MS * (message == "request")
    end = START + 10 * SECOND
    times = {"request_time": START, "request_end_time": request_end}
    times |= {"response_time": end - transfer_ms * MS, "response_end_time": end}
    if message == "request":
        times["response_time"] = end
    row = exchange(**times, **{f"{message}_bytes": size, "throttle_time_ms": throttle_ms})
    cut = {"stage": "frames", "kind": "cut_message", "detail": "x", "connection_id": 0}
    cut |= {"time": times[f"{message}_time"] - (missing == 0), "bytes": missing}
    tables = made(exchanges=[row], connections=[connection(**changed)], problems=[cut])
    findings = findings_of("network_time", tables)
    ends = {"request": "client `app` to 10.0.0.9:9092", "response": "10.0.0.9:9092 to client `app`"}
    assert [each.sentence for each in findings] == [
        f"The network transfers {message}s from {ends[message]} for 50 % of the time, at 10.0 MB a "
        "second"
    ] * fires
    closed = "only 4 times" if changed else "never closed its window"
    assert all(closed in each.evidence for each in findings)


@pytest.mark.parametrize(
    ("host", "handshake_ms", "rules_of"),
    [
        ("10.0.0.1", 6.0, ["network transfers"]),
        ("10.0.0.1", 11.0, ["network takes", "network transfers"]),
        ("10.0.0.2", 6.0, ["network takes", "network transfers"]),
    ],
    ids=["behind the transfer", "far away", "another host"],
)
def test_round_trips_behind_the_transfers_of_another_client(
    host: str, handshake_ms: float, rules_of: list[str]
) -> None:
    """A request of 50 MB takes 5 of 10 s, and meanwhile, round trips of `small` take 12 ms."""
    end = START + 10 * SECOND
    large = exchange(
        request_time=START, request_end_time=START + 5 * SECOND, response_time=end,
        response_end_time=end, request_bytes=50_000_000,
    )  # fmt: skip
    own = {"client_ip": host, "connection_id": 1}
    small = [
        exchange(latency_ms=0.5, correlation_id=n, client_id="small", **own) for n in range(20)
    ]
    links = [
        connection(),
        connection(handshake_rtt_ms=handshake_ms, client_rtt_ms=6.0, broker_rtt_ms=6.0, **own),
    ]
    findings = findings_of("network_time", made(exchanges=[large, *small], connections=links))
    assert [" ".join(each.sentence.split()[1:3]) for each in findings] == rules_of
    waits = "wait, too: round trips of client `small` take 12 ms (handshakes: 6 ms)."
    assert (waits in findings[-1].evidence) == (len(rules_of) == 1)


@pytest.mark.parametrize(
    ("longer", "throttle_ms", "rule"),
    [
        ([80.0] * 10, 0, ["network_time"]),
        ([80.0] * 4, 0, []),
        ([80.0, 300.0] * 5, 0, ["slow_broker"]),
        ([80.0, 2.0, 2.0] * 5, 0, []),
        ([80.0] * 10, 80, []),
    ],
    ids=["steady", "short", "unsteady", "pauses", "a quota"],
)
def test_a_round_trip_that_grows_is_not_a_slow_broker(
    longer: list[float], throttle_ms: int, rule: list[str]
) -> None:
    """The handshake came before. 20 requests in each second take 2 ms, and then longer."""
    rows = [
        exchange_at(
            start := START + second * SECOND + n * 40 * MS, start + round((longest + n) * MS),
            latency_ms=longest + n, api="Produce", connection_id=n, correlation_id=second,
            throttle_time_ms=throttle_ms if longest > 2 else 0,
        )
        for second, longest in enumerate([*[2.0] * 30, *longer]) for n in range(20)
    ]  # fmt: skip
    links = [connection(connection_id=n) for n in range(20)]
    fired = rules("network_time", "slow_broker", exchanges=rows, connections=links)
    assert fired == rule
