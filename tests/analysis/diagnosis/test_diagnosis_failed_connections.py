"""Rules on made rows: connections that fail."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.diagnosis.run import diagnose
from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of, rules
from tests.analysis.made_rows import (
    ATTEMPT,
    SECOND,
    START,
    advertised,
    at,
    connection,
    exchange,
    exchange_at,
    partition,
)

SYN = ATTEMPT | {"closed": None, "broker_packets": 0}
REPEATED_SYN = SYN | {"client_packets": 4}
HALF_OPEN = ATTEMPT | {"client_packets": 2}
"""A SYN, and a RST after the SYN/ACK."""


REFUSED = "10.0.0.9:9092 refuses connections"
NO_REPLY = "10.0.0.9:9092 does not reply to connection attempts"


@pytest.mark.parametrize(
    ("connections", "severity", "sentence"),
    [
        ([at(n) for n in range(3)], "critical", REFUSED),
        ([at(n, REPEATED_SYN) for n in range(3)], "critical", NO_REPLY),
        ([at(0, connection()), *(at(n) for n in (1, 2, 3))], "critical", REFUSED),
        ([at(0, connection()), at(1), at(2)], None, None),
        ([*(at(n) for n in (1, 2, 3)), at(4, connection())], None, None),
        ([*(at(n) for n in (1, 5, 12)), at(13, connection())], "warning",
         "10.0.0.9:9092 refused connections for 11.0 s"),
        ([*(at(n) for n in (1, 5, 31)), at(32, connection())], "critical",
         "10.0.0.9:9092 refused connections for 30.0 s"),
        ([*(at(n) for n in (1, 8)), at(9, connection()), *(at(n) for n in (40, 46)),
          at(47, connection())],
         "warning", "10.0.0.9:9092 refused connections for 13.0 s"),
        ([at(1), at(2), at(3, connection()), at(40), at(41), at(42, connection())], None, None),
        ([connection(), *(at(n) | {"broker_port": 80} for n in (1, 2, 3))], None, None),
        ([connection(broker_packets=0), *(at(n, REPEATED_SYN) for n in (1, 2, 3))], None, None),
        ([at(n, HALF_OPEN) for n in range(3)], None, None),
        ([at(n, HALF_OPEN | {"last_time": START + SECOND}) for n in range(3)], "critical", REFUSED),
        ([*(at(n, REPEATED_SYN) for n in (1, 2, 13)), at(14, SYN)], "critical", NO_REPLY),
        ([connection(broker_packets=0, opened=False), *(at(n, REPEATED_SYN) for n in (1, 2, 3))],
         "critical", NO_REPLY),
    ],
    ids=["refused", "no reply", "stopped", "two attempts", "started", "was down",
         "was down for long", "two outages", "two starts", "another service", "one direction",
         "half-open scan", "lost SYN, then refused", "attempt at the end", "dead host"],
)  # fmt: skip
def test_connections_that_fail(
    connections: list[dict[str, Any]], severity: str | None, sentence: str | None
) -> None:
    failed = findings_of("failed_connections", made(exchanges=[], connections=connections))
    assert [each.severity for each in failed] == [severity] * (severity is not None)
    assert [each.sentence for each in failed] == [sentence] * (sentence is not None)


@pytest.mark.parametrize(
    ("other", "brokers"),
    [({}, 1), ({"broker_packets": 0, "client_packets": 4, "closed": None}, 2)],
    ids=["alike", "another failure"],
)
def test_brokers_that_fail_alike_are_one_finding(other: dict[str, Any], brokers: int) -> None:
    links = [
        at(n + late) | {"broker_ip": f"10.0.0.{late}"} | (other if late == 8 else {})
        for late in (7, 8) for n in range(5 if late == 7 else 4)
    ]  # fmt: skip
    findings = findings_of("failed_connections", made(exchanges=[], connections=links))
    assert len(findings) == brokers
    assert findings[0].severity == "critical"
    if brokers == 1:
        failing = "2 brokers (10.0.0.7:9092, 10.0.0.8:9092)"
        assert findings[0].sentence == f"{failing} refuse connections"
        assert findings[0].evidence.startswith("10.0.0.7:9092: 5 attempts from 1 host ")
        assert findings[0].evidence.endswith(" Others: 10.0.0.8:9092 with 4.")
        assert (findings[0].first_time, findings[0].last_time) == (
            START + 7 * SECOND,
            START + 11 * SECOND,
        )


def test_brokers_that_were_down_are_one_finding() -> None:
    links = [
        row | {"broker_ip": f"10.0.0.{7 + n}"}
        for n in (0, 1)
        for row in (at(10 * n), at(10 * n + 1), at(10 * n + 15 + n), at(40, connection()))
    ]
    (finding,) = findings_of("failed_connections", made(exchanges=[], connections=links))
    assert finding.sentence == (
        "2 brokers (10.0.0.7:9092, 10.0.0.8:9092) refused connections for up to 16.0 s"
    )
    assert (finding.first_time, finding.last_time) == (START, START + 26 * SECOND)


@pytest.mark.parametrize(
    ("worked", "attempts", "last_request", "host", "severity"),
    [
        (True, (1, 2, 3), 33, "10.0.0.1", "warning"),
        (True, (1, 2, 3), 32, "10.0.0.1", "critical"),
        (True, (1, 2, 11), 41, "10.0.0.1", "critical"),
        (True, (1, 2, 3), 33, "10.0.0.2", "critical"),
        (False, (1, 2, 3), 33, "10.0.0.1", "critical"),
    ],
    ids=["go on", "end soon", "try for long", "another host", "an address that never worked"],
)
def test_clients_that_go_on_with_other_brokers(
    worked: bool, attempts: tuple[int, ...], last_request: int, host: str, severity: str
) -> None:
    """After an orderly restart, its partitions have leaders on other brokers."""
    links = [at(0, connection())] * worked + [at(n) for n in attempts]
    request = exchange_at(START + last_request * SECOND, client_ip=host, broker_ip="10.0.0.8")
    (finding,) = findings_of("failed_connections", made(exchanges=[request], connections=links))
    assert finding.severity == severity
    assert ("no client tried again" in finding.sentence) == (severity == "warning")


@pytest.mark.parametrize(
    ("fetched_s", "replica_id", "severity"),
    [(13, 1, "warning"), (12, 1, "critical"), (13, 2, "critical"), (13, None, "critical")],
    ids=["runs again", "soon", "another broker", "a consumer"],
)
def test_a_broker_that_fetches_as_a_follower_runs_again(
    fetched_s: int, replica_id: int | None, severity: str
) -> None:
    """Clients do not connect to it as long as it leads no partition."""
    fetch = {"api": "Fetch", "connection_id": 5, "correlation_id": 9}
    follows = exchange_at(START + fetched_s * SECOND, broker_ip="10.0.0.8", **fetch)
    tables = made(
        exchanges=[follows, exchange_at(START + 14 * SECOND, broker_ip="10.0.0.8")],
        connections=[at(0, connection()), *(at(n) for n in (1, 2, 3))],
        partitions=[partition(replica_id=replica_id, **fetch)],
        brokers=[advertised("10.0.0.9")],
    )  # fmt: skip
    (finding,) = findings_of("failed_connections", tables)
    assert finding.severity == severity
    assert ("It runs again" in finding.evidence) == (severity == "warning")


@pytest.mark.parametrize(
    ("changed", "role"),
    [
        ({"api": "Vote"}, "controller"), ({"api": "BrokerHeartbeat"}, "controller"),
        ({"api": "Fetch", "topics": ["__cluster_metadata"]}, "controller"),
        ({"api": "Fetch", "topics": ["orders"]}, "broker"),
        ({"api": "Vote", "broker_port": 9093}, "broker"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("quiet", [0, 60])
def test_a_controller_that_is_down(changed: dict[str, Any], role: str, quiet: int) -> None:
    rows = [exchange(**changed), exchange_at(START + quiet * SECOND, broker_ip="10.0.0.8")]
    links = [at(0, connection()), *(at(n) for n in (1, 2, 3))]
    (finding,) = findings_of("failed_connections", made(exchanges=rows, connections=links))
    assert finding.subject == f"{role} 10.0.0.9:9092"
    assert finding.sentence.startswith("Controller 10.0.0.9:9092 ") == (role == "controller")
    assert f"the {role} " in finding.cause
    assert ("controller.quorum.voters" in finding.change) == (role == "controller" and not quiet)
    assert ("leaders" in finding.change) == (role == "broker" and quiet > 0)


@pytest.mark.parametrize(
    ("seconds", "hosts", "sender", "is_long"),
    [
        (11, ["10.0.0.8"], "10.0.0.7", True),
        (10, ["10.0.0.8"], "10.0.0.7", False),
        (11, ["10.0.0.8", "10.0.0.9"], "10.0.0.7", False),
        (41, ["10.0.0.8"], "10.0.0.7", False),
        (11, ["10.0.0.8"], "10.0.0.6", False),
    ],
    ids=["gone", "back", "not gone", "later", "another cluster"],
)
def test_clients_forget_a_broker_that_is_down(
    seconds: int, hosts: list[str], sender: str, is_long: bool
) -> None:
    """They connect for 8 s, until its session ends, and again after 40 s."""
    responses = [(1, "10.0.0.7", 0, ["10.0.0.8", "10.0.0.9"]), (2, sender, seconds, hosts)]
    brokers = [
        advertised(host, connection_id=n, broker_id=number, time=START + time * SECOND)
        for n, _, time, named in responses for number, host in enumerate(named)
    ]  # fmt: skip
    links = [connection(connection_id=n, broker_ip=ip) for n, ip, *_ in responses]
    links += [at(n, ATTEMPT | {"connection_id": 10 + n}) for n in (1, 5, 9)]
    links.append(at(40, connection(connection_id=9)))
    failed = findings_of(
        "failed_connections", made(exchanges=[], connections=links, brokers=brokers)
    )
    assert [each.sentence for each in failed] == (
        ["10.0.0.9:9092 refused connections for 8.0 s"] * is_long
    )
    for each in failed:
        assert each.severity == "warning"
        assert "It was down for 10.0 s or longer: Metadata lacked it." in each.evidence


def test_an_endpoint_that_fails_names_the_clients_of_the_hosts_that_tried() -> None:
    """Their ids are those of other connections: with this endpoint, or on which they got its
    address.
    """
    links = [
        connection(connection_id=0, broker_ip="10.0.0.8"),
        connection(connection_id=1),
        connection(connection_id=2, client_ip="10.0.0.2"),
        connection(connection_id=3, broker_ip="10.0.0.8"),
        *(at(n, ATTEMPT | {"connection_id": n}) for n in (11, 12, 13)),
    ]
    names = ("informed", "connected", "elsewhere", "uninformed")
    requests = [exchange(connection_id=n, client_id=name) for n, name in enumerate(names)]
    tables = made(exchanges=requests, connections=links, brokers=[advertised("10.0.0.9")])
    (failed,) = findings_of("failed_connections", tables)
    assert failed.clients == ("connected", "informed")
    assert "Clients on this host that use the address: `connected`, `informed`." in failed.evidence


def closed(seconds: float, **columns: Any) -> dict[str, Any]:
    """A connection that the broker closes before it sends a byte."""
    start = START + int(seconds * SECOND)
    return connection(
        client_bytes=72, broker_bytes=0, broker_lost_bytes=None,
        first_time=start, last_time=start + 10_000_000,
    ) | columns  # fmt: skip


@pytest.mark.parametrize(
    ("connections", "severity"),
    [
        ([connection(), *map(closed, (1, 2, 3))], "critical"),
        ([*map(closed, (1, 2, 13)), at(14, connection())], "warning"),
        ([*map(closed, (1, 2, 3)), at(14, connection())], None),
        ([*map(closed, range(1, 10)), at(14, connection())], None),
        ([*map(closed, range(1, 11)), at(14, connection())], "warning"),
        ([closed(n, protocol="tls") for n in (1, 2, 3)], None),
        ([closed(n, last_time=START + 40 * SECOND) for n in (1, 2, 3)], None),
        ([closed(n, closed=None) for n in (1, 2, 3)], None),
    ],
    ids=["limit", "limit at times", "start", "few", "many", "TLS", "timeout", "open"],
)  # fmt: skip
def test_connections_that_the_broker_closes(
    connections: list[dict[str, Any]], severity: str | None
) -> None:
    failed = findings_of("failed_connections", made(exchanges=[], connections=connections))
    sentence = "10.0.0.9:9092 closes new connections without a response"
    assert [each.severity for each in failed] == [severity] * (severity is not None)
    assert [each.sentence for each in failed] == [sentence] * (severity is not None)


@pytest.mark.parametrize(
    ("api", "expected"),
    [("ApiVersions", ["failed_connections"]), ("Produce", ["failed_connections", "no_response"])],
)
def test_the_first_request_of_a_connection_that_the_broker_closes(
    api: str, expected: list[str]
) -> None:
    rows = [
        exchange(api=api, connection_id=n, request_end_time=START + n * SECOND, status="unanswered")
        for n in (1, 2, 3)
    ]
    links = [closed(n, connection_id=n, closed="rst") for n in (1, 2, 3)]
    names = ("failed_connections", "no_response")
    assert rules(*names, exchanges=rows, connections=links) == expected


@pytest.mark.parametrize(
    ("served", "cause"),
    [
        ([connection()], "a limit of connections is reached, or a proxy closes them"),
        ([], "a limit of connections is reached, the listener expects TLS, or a proxy has no "
         "broker behind it"),
    ],
)  # fmt: skip
def test_a_broker_at_its_limit_of_connections(served: list[dict[str, Any]], cause: str) -> None:
    """A client opens a connection each second; the broker closes all of them (KIP-308)."""
    links = [closed(n, connection_id=n, closed="rst") for n in range(1, 41)]
    rows = [
        exchange_at(
            link["first_time"], api="ApiVersions", client_id="leak", status="unanswered",
            connection_id=link["connection_id"],
        )
        for link in links
    ]  # fmt: skip
    tables = made(exchanges=rows, connections=links + served)
    (finding,) = findings_of("failed_connections", tables)
    assert (finding.clients, finding.cause) == (("leak",), cause)
    assert findings_of("connection_churn", tables) == []


@pytest.mark.parametrize(
    ("number", "later", "failures"),
    [(3, 10, ["refused"]), (3, 12, ["closed before a response", "refused"]),
     (10, 10, ["closed before a response", "refused"])],
    ids=["it stops", "later", "many"],
)  # fmt: skip
def test_a_broker_that_stops_closes_connections(
    number: int, later: int, failures: list[str]
) -> None:
    """The kernel resets those that the broker has not accepted, and refuses others."""
    links = [closed(1, connection_id=n, closed="rst") for n in range(number)]
    links += [at(later, ATTEMPT | {"connection_id": 20 + n}) for n in range(3)]
    findings = findings_of("failed_connections", made(exchanges=[], connections=links))
    assert sorted(str(each.numbers["failure"]) for each in findings) == failures


@pytest.mark.parametrize(
    ("refused", "accepted", "stopped"),
    [
        ([6, 7, 8], [], True),
        ([6, 7], [], False),
        ([6, 7, 16], [17], True),
        ([6, 7, 8], [17], False),
    ],
    ids=["stopped", "two attempts", "started again", "started again soon"],
)
def test_resets_of_a_broker_that_stops(
    refused: list[int], accepted: list[int], stopped: bool
) -> None:
    rows = [exchange(api="Produce", correlation_id=n, status="unanswered") for n in range(3)]
    links = [connection(closed="rst"), *(at(n, ATTEMPT | {"connection_id": n}) for n in refused)]
    links += [at(n, connection(connection_id=n)) for n in accepted]
    tables = made(exchanges=rows, connections=links)
    assert len(findings_of("no_response", tables)) == (not stopped)
    failed = findings_of("failed_connections", tables)
    assert len(failed) == stopped
    assert all("3 requests of client `app` got no response." in each.evidence for each in failed)


@pytest.mark.parametrize(("broker_ip", "side"), [("10.0.0.9", "broker"), ("10.0.0.8", "client")])
def test_a_broker_that_was_down_comes_before_its_effects(broker_ip: str, side: str) -> None:
    """A group rebalances for most of the time. Its coordinator, or another broker, is down for 40 s
    of it."""
    member = {"group_id": "g", "group_type": "classic", "client_id": "app", "member_id": "m"}
    joins = [
        member | {"api": "JoinGroup", "time": START + start * SECOND, "generation": n + 1}
        | {"response_time": START + end * SECOND, "error_code": 0, "error": "NONE"}
        | {"connection_id": 7}
        for n, (start, end) in enumerate([(0, 43), (44, 45), (45, 46), (46, 47), (47, 48)])
    ]  # fmt: skip
    link = connection(connection_id=7, broker_ip=broker_ip, opened=False)
    links = [*(at(n) for n in (1, 9, 41)), at(42, connection()), link]
    rows = diagnose(made(exchanges=[exchange()], connections=links, memberships=joins))
    assert rows["rule"].tolist()[:2] == ["failed_connections", "rebalances"]
    assert rows["severity"].tolist()[:2] == ["critical", "critical"]
    assert rows["side"][1] == side
    evidence = " Meanwhile, 10.0.0.9:9092 accepted no connection for 40.0 s."
    assert rows["evidence"][1].endswith(evidence) == (side == "broker")
