"""Rules on made rows: clients that close a connection before a response can arrive."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of, rules
from tests.analysis.made_rows import MS, SECOND, START, connection, exchange_at

Row = dict[str, Any]
RTT_MS = 200


def rows(
    waits: tuple[float, ...], *, to_client: int = RTT_MS, broker_ms: int = 4, **columns: Any
) -> dict[str, list[Row]]:
    """Connections of a client that sends a request and closes each after some ms. Its side of the
    capture point is `to_client` ms away.

    The broker closes its side when it gets the FIN, and the client resets that with the last
    packet.
    """
    to_broker = RTT_MS - to_client
    rows, links = [], []
    for n, wait_ms in enumerate(waits):
        start = START + n * SECOND
        latency_ms = to_broker + broker_ms
        times = {"latency_ms": float(latency_ms), "connection_id": n}
        rows.append(exchange_at(start, start + latency_ms * MS, api="Produce", **times, **columns))
        links.append(
            connection(
                connection_id=n, first_time=start - RTT_MS * MS, handshake_rtt_ms=RTT_MS,
                client_rtt_ms=to_client, broker_rtt_ms=to_broker,
                last_time=start + int((wait_ms + RTT_MS) * MS),
            )
        )  # fmt: skip
    return {"exchanges": rows, "connections": links}


@pytest.mark.parametrize("to_client", [RTT_MS, RTT_MS // 2, 0])
def test_a_client_whose_timeout_is_shorter_than_a_round_trip(to_client: int) -> None:
    """The capture point is at the broker, halfway, or at the client."""
    tables = made(**rows((150, 151, 160, 204, 204), to_client=to_client))
    (finding,) = findings_of("no_response", tables)
    assert finding.sentence == (
        "Client `app` gives up after 151 ms: responses of 10.0.0.9:9092 arrive after 204 ms"
    )
    assert finding.evidence.startswith(
        "Of 5 connections, it closed 3 before the response arrived, and 2 at about that time."
    )
    assert "200 ms of the second is a round trip" in finding.evidence
    assert (finding.side, finding.setting) == ("client", "request.timeout.ms")
    assert (finding.severity, finding.requests) == ("critical", 5)


@pytest.mark.parametrize(
    ("waits", "columns"),
    [
        ((150, 150), {}),
        ((10, 80, 150, 190), {}),  # a process that is stopped at any time
        ((204, 204, 204, 204), {}),  # it closes the connection because of the response
        ((4, 4, 4, 4), {}),  # the last packet is that of a broker that closed with its response
        ((150, 150, 150), {"error_code": 58}),
        ((150, 150, 150), {"broker_ms": 150}),  # the broker reads the FIN after its response
        ((5000, 5000, 5000), {}),
    ],
    ids=["two", "stopped", "closed by the response", "closed by the broker", "error", "busy broker",
         "idle"],
)  # fmt: skip
def test_clients_that_wait_for_their_responses(waits: tuple[float, ...], columns: Row) -> None:
    assert findings_of("no_response", made(**rows(waits, **columns))) == []


@pytest.mark.parametrize(("wait_ms", "rule"), [(150, "no_response"), (500, "connection_churn")])
def test_reconnects_after_timeouts_are_one_finding(wait_ms: int, rule: str) -> None:
    assert rules("no_response", "connection_churn", **rows((wait_ms,) * 25)) == [rule]


def test_clients_of_a_broker_whose_timeouts_are_too_short_are_one_finding() -> None:
    hasty, other = rows((150,) * 4), rows((180,) * 3, client_id="other")
    for row in (*other["exchanges"], *other["connections"]):
        row["connection_id"] += 100
    tables = made(**{name: [*hasty[name], *other[name]] for name in hasty})
    (finding,) = findings_of("no_response", tables)
    assert finding.sentence == (
        "2 clients (`app`, `other`) give up before responses of 10.0.0.9:9092 arrive"
    )
    assert finding.evidence.startswith(
        "Of 7 connections, they closed 7 before the response arrived. Medians of the time until "
        "they give up, and until responses arrive: client `app` 150 and 204 ms, client `other` 180 "
        "and 204 ms. A round trip takes 200 ms."
    )
    assert (finding.severity, finding.requests) == ("critical", 7)
    assert finding.numbers["connections"] == 4
