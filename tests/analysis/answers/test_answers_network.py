"""Network time is the delay that was configured, and broker time is that of the broker's log."""

from __future__ import annotations

import pytest

import analysis
from dissector.errors import DissectorError
from tests.analysis.answering import broker_log, capture, made

NEEDS = ("connections", "exchanges", "batches")
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
    ],
)
def test_what_was_not_measured_follows_from_the_handshake(
    known: dict[str, float], expected: tuple[float, float, float]
) -> None:
    (row,) = analysis.network(made(connections=[connection(**known)])).to_dict("records")
    assert (row["client_rtt_ms"], row["broker_rtt_ms"], row["rtt_ms"]) == expected


def test_other_protocols_and_topics_are_not_asked_for() -> None:
    assert analysis.network(made(connections=[connection(protocol="tls")])).empty
    assert analysis.network(made()).empty
    for wrong in ("topic", "api", "nonsense"):
        with pytest.raises(DissectorError):
            analysis.network(made(), by=[wrong])
