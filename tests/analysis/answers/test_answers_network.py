"""Network time is the delay that was configured, and broker time is that of the broker's log."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import analysis
from dissector.errors import DissectorError
from tests.analysis import made_rows
from tests.analysis.answering import broker_log, capture, made
from tests.analysis.made_rows import SECOND, START, exchange
from tools.record.kafka.truth import read

NEEDS = ("connections", "exchanges", "batches", "problems", "brokers")
LOG_MS = 1.0
"""The broker's log begins when it has read a request, and ends when it has written the response."""


def test_the_way_is_the_delay_that_was_made() -> None:
    """kafka-4-net-delay: 80 ms each way, captured at the broker (scenarios/hard.py)."""
    far = analysis.network(capture("kafka-4-net-delay", NEEDS))
    assert far["client_rtt_ms"].between(160, 165).all()
    assert far["broker_rtt_ms"].between(0, 1).all()
    assert far["handshake_rtt_ms"].between(160, 165).all()
    assert far["network_percent"].between(50, 100).all()
    near = analysis.network(capture("kafka-4-followed", NEEDS))
    assert near["rtt_ms"].between(0, 1).all()
    assert near["network_percent"].median() < 5


@pytest.mark.parametrize("name", ["kafka-4-net-delay", "kafka-4-followed"])
def test_the_time_of_the_broker_is_that_of_its_log(name: str) -> None:
    """Of producers: nothing that they ask for waits by design."""
    log = broker_log(name).query("client_id == 'producer' or client_id == 'copier'")
    clients = analysis.network(capture(name, NEEDS), by=["client_id"]).set_index("client_id")
    for client, rows in log.groupby("client_id"):
        own = rows["total_ms"] - rows["throttle_ms"]
        assert clients.loc[client, "requests"] == len(rows)
        assert abs(clients.loc[client, "broker_p50_ms"] - own.median()) < LOG_MS


def test_retransmissions_are_where_packets_were_lost() -> None:
    lossy = analysis.network(capture("kafka-4-net-loss", NEEDS))
    good = analysis.network(capture("kafka-4-net-delay", NEEDS))
    assert (lossy["retransmitted_percent"] > 1).all()
    assert (good["retransmitted"] == 0).all()


def test_delayed_acknowledgements_are_not_the_network() -> None:
    """Clients on the host of the broker acknowledged after 40 ms; a handshake took 0.03 ms."""
    delayed = analysis.network(capture("kafka-3-java-0-10", NEEDS))
    assert delayed["rtt_ms"].between(0, 1).all()


def connection(**columns: object) -> dict[str, object]:
    return {
        "connection_id": 0, "client_ip": "10.0.0.1", "client_port": 1, "broker_ip": "10.0.0.9",
        "broker_port": 9092, "protocol": "kafka",
    } | columns  # fmt: skip


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"client_rtt_ms": 3.0, "broker_rtt_ms": 2.0, "handshake_rtt_ms": 9.0}, (3, 2, 5)),
        ({"client_rtt_ms": 3.0, "handshake_rtt_ms": 9.0}, (3, 6, 9)),
        ({"broker_rtt_ms": 2.0, "handshake_rtt_ms": 9.0}, (7, 2, 9)),
        ({"broker_rtt_ms": 2.0, "handshake_rtt_ms": 1.0}, (0, 2, 2)),
        ({"client_rtt_ms": 16.0, "broker_rtt_ms": 2.0, "handshake_rtt_ms": 3.0}, (16, 2, 18)),
        ({"client_rtt_ms": 40.0, "broker_rtt_ms": 2.0, "handshake_rtt_ms": 3.0}, (1, 2, 3)),
        ({"client_rtt_ms": 1.0, "broker_rtt_ms": 40.0, "handshake_rtt_ms": 3.0}, (1, 2, 3)),
        ({"client_rtt_ms": 40.0, "broker_rtt_ms": 2.0}, (40, 2, 42)),
        ({"client_rtt_ms": 1.0, "broker_rtt_ms": 84.0, "handshake_rtt_ms": 45.0}, (1, 44, 45)),
        ({"client_rtt_ms": 84.0, "broker_rtt_ms": 1.0, "handshake_rtt_ms": 45.0}, (44, 1, 45)),
    ],
)
def test_missing_round_trips_follow_from_the_handshake(
    known: dict[str, float], expected: tuple[float, float, float]
) -> None:
    (row,) = analysis.network(made(connections=[connection(**known)])).to_dict("records")
    assert (row["client_rtt_ms"], row["broker_rtt_ms"], row["rtt_ms"]) == expected


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        # The broker delayed its acknowledgements by 40 ms; the handshake is the way to the client.
        ({"client_rtt_ms": 44.0, "broker_rtt_ms": 40.0, "handshake_rtt_ms": 45.0}, (44, 1, 45)),
        # The broker was too busy to accept the connection at once.
        ({"client_rtt_ms": 1.0, "handshake_rtt_ms": 400.0}, (1, 5, 6)),
        ({"client_rtt_ms": 1.0}, (1, None, None)),
    ],
)
def test_no_response_is_faster_than_the_round_trip(
    known: dict[str, float], expected: tuple[float | None, ...]
) -> None:
    """One in ten seems faster, because the capture lost the first copy of the request."""
    latencies = [0.5, *[5.0] * 10]
    requests = [exchange(correlation_id=n, latency_ms=ms) for n, ms in enumerate(latencies)]
    tables = made(connections=[connection(**known)], exchanges=requests)
    (row,) = analysis.network(tables).astype(object).to_dict("records")
    trips = (row["client_rtt_ms"], row["broker_rtt_ms"], row["rtt_ms"])
    assert tuple(None if ms != ms else ms for ms in trips) == expected


def test_requests_without_a_response_do_not_limit_the_round_trip() -> None:
    """Produce with acks=0 has no latency."""
    silent = exchange(api="Produce", api_key=0, acks=0, status="no_reply_expected", latency_ms=None)
    link = connection(client_rtt_ms=3.0, handshake_rtt_ms=9.0)
    (row,) = analysis.network(made(connections=[link], exchanges=[silent])).to_dict("records")
    assert (row["client_rtt_ms"], row["broker_rtt_ms"], row["rtt_ms"]) == (3, 6, 9)


def test_other_protocols_and_columns_are_excluded() -> None:
    assert analysis.network(made(connections=[connection(protocol="tls")])).empty
    for wrong in ("topic", "api", "nonsense"):
        with pytest.raises(DissectorError):
            analysis.network(made(), by=[wrong])


def test_failed_connections_are_those_of_the_clients() -> None:
    """Each case of python/handshakes.py fails at its own broker, or with a failure of its own."""
    cases = [row for row in read("kafka-4-handshakes") if row.get("event") == "handshake"]
    failed = analysis.network(capture("kafka-4-handshakes", NEEDS), show="failures")
    counted = failed.groupby("broker")["connections"].sum().to_dict()
    # The Java client, which fails once at the broker with the expired certificate, has no case.
    counted["127.0.0.1:9093"] -= 1
    assert counted == Counter(row["broker"] for row in cases)
    assert failed["failure"].str.startswith("TLS: ").all()
    assert failed["served"].eq(0).all()


@pytest.mark.parametrize("name", ["kafka-3-java-0-8", "kafka-3-java-0-9"])
def test_an_old_producer_that_requests_no_response_does_not_fail(name: str) -> None:
    """The broker logged its requests. A client of 0.10.2 or later gets versions first."""
    served = {
        row["client"].rpartition(":")[2] for row in read(name)
        if row["source"] == "broker" and row["client_id"].endswith("-0") and row["api_key"] == 0
    }  # fmt: skip
    links = capture(name, NEEDS)["connections"]
    silent = links[(links["broker_bytes"] == 0) & (links["client_bytes"] > 0)]
    assert {*silent["client_port"].astype(str)} <= served
    assert len(silent) == 4
    assert analysis.network(capture(name, NEEDS), show="failures").empty


ATTEMPT = {"client_bytes": 0, "protocol": "unknown"}
SILENT = ATTEMPT | {"handshake_rtt_ms": 0.1}
"""A connection that ends without data."""


@pytest.mark.parametrize(
    ("columns", "failure"),
    [
        (ATTEMPT | {"client_packets": 1, "broker_packets": 1}, "refused"),
        (ATTEMPT | {"broker_packets": 0, "client_packets": 3, "closed": None}, "no reply"),
        ({"handshake_rtt_ms": 0.1}, "closed before a response"),
        (SILENT | {"client_packets": 2, "broker_packets": 2}, "closed before a response"),
        (SILENT | {"client_packets": 3, "broker_packets": 3, "closed": "fin"},
         "closed before a response"),
    ],
)  # fmt: skip
def test_failures_and_the_connection_before_them(columns: dict[str, Any], failure: str) -> None:
    lost = {"broker_bytes": 0, "closed": "rst", "last_time": START + SECOND // 9}
    failed = made_rows.connection(handshake_rtt_ms=None, connection_id=2) | lost | columns
    failed |= {"first_time": START + SECOND // 10}
    links = [
        made_rows.connection(),
        failed,
        made_rows.connection(connection_id=3, first_time=START + SECOND),
    ]
    rows = [exchange(connection_id=2, client_id="app")]
    (row,) = analysis.network(made(connections=links, exchanges=rows), show="failures").to_dict(
        "records"
    )
    assert (row["broker"], row["failure"], row["connections"]) == ("10.0.0.9:9092", failure, 1)
    assert (row["client_ids"], row["served"], row["after"]) == ("app", 2, 0)
    assert row["worked_time"].value == START + SECOND


@pytest.mark.parametrize(
    ("client_packets", "broker_packets", "closed"), [(4, 2, "fin"), (4, 3, "fin"), (3, 1, "rst")]
)
def test_a_client_that_sends_nothing_may_be_a_health_check(
    client_packets: int, broker_packets: int, closed: str
) -> None:
    """The packets of Linux if the client ends the connection: 4 and 3 also if the broker does."""
    check = made_rows.connection(connection_id=1, broker_bytes=0, closed=closed) | SILENT
    check |= {"client_packets": client_packets, "broker_packets": broker_packets}
    check |= {"last_time": START + SECOND // 9}
    tables = made(connections=[made_rows.connection(), check])
    assert not len(analysis.network(tables, show="failures"))
