"""Rules on made rows: addresses that brokers advertise, and that clients do not reach."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of
from tests.analysis.made_rows import (
    ATTEMPT,
    SECOND,
    START,
    advertised,
    at,
    connection,
    exchange,
    exchange_at,
)


@pytest.mark.parametrize(
    ("accepted", "seconds", "others", "fires"),
    [
        ([], 0, [], True),
        ([at(0, connection())], 0, [], False),
        ([at(0, connection())], 4, [], True),
        ([], 4, ["10.0.0.8"], False),
        ([], 22, ["10.0.0.8"], True),
        ([at(0, connection())], 60, ["10.0.0.8"], False),
    ],
    ids=[
        "no other address",
        "before it stopped",
        "after it stopped",
        "session",
        "after session",
        "stopped without a controller",
    ],
)
def test_a_wrong_address_that_a_working_broker_advertises(
    accepted: list[dict[str, Any]], seconds: int, others: list[str], fires: bool
) -> None:
    """A broker that is down leaves Metadata at the end of its session, at most 18 s later."""
    time = START + seconds * SECOND
    brokers = [
        advertised(host, broker_id=number, time=time)
        for number, host in enumerate(["10.0.0.9", *others])
    ]
    links = [*accepted, *(at(n) for n in (1, 2, 3)), connection(broker_ip="10.0.0.7")]
    tables = made(exchanges=[], connections=links, brokers=brokers)
    (failed,) = findings_of("failed_connections", tables)
    assert failed.setting == ("advertised.listeners" if fires else "listeners")


def test_wrong_addresses_are_one_finding() -> None:
    hosts = ("10.0.0.8", "10.0.0.9")
    links = [at(n) | {"broker_ip": host} for host in hosts for n in (1, 2, 3)]
    brokers = [advertised(host, broker_id=n) for n, host in enumerate(hosts)]
    links.append(connection(broker_ip="10.0.0.7"))
    tables = made(exchanges=[], connections=links, brokers=brokers)
    (failed,) = findings_of("failed_connections", tables)
    assert failed.sentence == (
        "2 brokers (10.0.0.8:9092, 10.0.0.9:9092) refuse connections, but a broker advertises "
        "these addresses"
    )


@pytest.mark.parametrize(
    ("host", "sender", "is_named"),
    [("127.0.0.1", {}, True), ("::1", {}, True),
     ("127.0.0.1", {"broker_ip": "127.0.0.2"}, False)],
)  # fmt: skip
def test_localhost_is_a_wrong_address_for_a_client_of_another_host(
    host: str, sender: dict[str, Any], is_named: bool
) -> None:
    """The usual mistake with containers. localhost is 127.0.0.1 (RFC 6761, section 6.3)."""
    links = [connection(**sender), *(at(n) | {"broker_ip": host} for n in (1, 2, 3))]
    brokers = [advertised("localhost" if host == "127.0.0.1" else f"[{host}]")]
    tables = made(exchanges=[], connections=links, brokers=brokers)
    (failed,) = findings_of("failed_connections", tables)
    assert failed.setting == "advertised.listeners"
    assert ("loopback" in failed.cause) == is_named


@pytest.mark.parametrize(
    ("host", "changed", "fires"),
    [
        ("kafka-0.internal", {}, True),
        ("localhost", {}, True),
        ("10.0.0.9", {}, False),
        ("10.7.7.7", {}, True),
        ("kafka-0.internal", {"api": "Produce"}, False),
        ("kafka-0.internal", {"error_count": 1}, False),
        ("kafka-0.internal", {"connection_id": 1}, False),
    ],
    ids=[
        "a name",
        "localhost",
        "its own broker",
        "an address",
        "it works",
        "an error",
        "it lists topics",
    ],
)
def test_clients_that_do_not_reach_advertised_brokers(
    host: str, changed: dict[str, Any], fires: bool
) -> None:
    rows = [exchange(correlation_id=n, request_time=START + n * SECOND) for n in range(10)]
    rows[-1] |= changed
    brokers = [advertised(host, correlation_id=0)]
    tables = made(exchanges=rows, connections=[connection()], brokers=brokers)
    findings = findings_of("failed_connections", tables)
    assert [each.setting for each in findings] == ["advertised.listeners"] * fires
    assert ["loopback" in each.cause for each in findings] == [host == "localhost"] * fires


@pytest.mark.parametrize(
    ("periods", "names"),
    [((1, 3), ("fast", "slow")), ((3, 3), ()), ((1, 1), ("fast", "slow"))],
    ids=["one asks often", "none asks often", "both ask often"],
)
def test_clients_that_do_not_resolve_a_name_fail_together(
    periods: tuple[int, int], names: tuple[str, ...]
) -> None:
    rows = [
        exchange_at(
            START + n * period * SECOND, correlation_id=n, connection_id=number, client_id=name,
            client_ip=f"10.0.0.{number}",
        )
        for number, (name, period) in enumerate(zip(("fast", "slow"), periods, strict=True))
        for n in range(10)
    ]  # fmt: skip
    brokers = [advertised("kafka", connection_id=n, correlation_id=0) for n in (0, 1)]
    findings = findings_of("failed_connections", made(exchanges=rows, brokers=brokers))
    assert [each.clients for each in findings] == [names] * bool(names)


@pytest.mark.parametrize(
    ("host", "after_ms", "api", "count"),
    [
        ("10.0.0.1", 500, "Metadata", 0),
        ("10.0.0.1", 1999, "Metadata", 0),
        ("10.0.0.1", 2000, "Metadata", 1),
        ("10.0.0.1", 500, "Produce", 1),
        ("10.0.0.2", 500, "Metadata", 1),
    ],
    ids=["on the connection", "soon after", "later", "it works", "another host"],
)
def test_a_client_that_connects_to_no_advertised_address(
    host: str, after_ms: int, api: str, count: int
) -> None:
    """It closes its connection of 1 s, and asks for addresses on a new one (KIP-899)."""
    times = [START + n * SECOND * 3 for n in range(30)]
    links = [
        connection(connection_id=n, first_time=time, last_time=time + SECOND)
        for n, time in enumerate(times)
    ]
    attempts = [
        at(0, ATTEMPT | {"broker_ip": "10.0.0.8", "client_ip": host, "connection_id": 100 + n})
        | {"first_time": time + after_ms * 10**6, "last_time": time + after_ms * 10**6}
        for n, time in enumerate(times)
    ]
    requests = [exchange(connection_id=n, request_time=time) for n, time in enumerate(times)]
    requests += [exchange(connection_id=n, api=api, nth=1) for n in range(30)]
    tables = made(exchanges=requests, connections=[*links, *attempts])
    assert len(findings_of("connection_churn", tables)) == count
