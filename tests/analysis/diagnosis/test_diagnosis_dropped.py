"""Rules on made rows: connections that a device on the path drops."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of
from tests.analysis.made_rows import MS, SECOND, START, connection, exchange_at

Row = dict[str, Any]
RESET: Row = {"closed": "rst"}
SILENT: Row = {"closed": None, "client_retransmitted": 3}
WAIT_S = 20.0


def tables(
    link: Row, waits: float | None = None, *, idle: tuple[float, ...] = (50, 50, 50),
    period: int = 40, until: int = 200, largest: int = 300, retransmitted: int = 0, **request: Any,
) -> Any:  # fmt: skip
    """Connections that are idle for some seconds after one exchange. They end then, or after
    another request, whose client waits for `waits` seconds.

    Another connection between the hosts has an exchange each `period` seconds, and `retransmitted`
    packets.
    """
    links = [connection(connection_id=99, client_packets=100, client_retransmitted=retransmitted)]
    rows = [
        exchange_at(START + at * SECOND, connection_id=99, nth=at, request_bytes=largest)
        for at in range(0, until, period)
    ]
    for n, seconds in enumerate(idle):
        end = START + int(seconds * SECOND)
        rows.append(exchange_at(START, connection_id=n))
        if waits is not None:
            last = {"connection_id": n, "api": "Produce", "nth": 1, "status": "unanswered"}
            rows.append(exchange_at(end, **last, **request))
            end += int(waits * SECOND)
        size = {"client_packets": 50, "client_bytes": 60}
        links.append(connection(connection_id=n, last_time=end, **size, **link))
    return made(exchanges=rows, connections=links)


NO_REPLY = (
    "On 3 connections, the next request got no reply, although the client sent it again for up to "
    "20.0 s."
)


@pytest.mark.parametrize(
    ("link", "waits", "evidence"),
    [
        (RESET, None, "3 connections were reset (RST) while idle."),
        (RESET, 0.01, "3 connections were reset (RST) at the next request."),
        (SILENT, WAIT_S, NO_REPLY),
        (SILENT | {"closed": "fin"}, WAIT_S, NO_REPLY),
        (SILENT | {"closed": "rst"}, WAIT_S, NO_REPLY),
    ],
    ids=["reset", "reset at a request", "silence", "silence and FIN", "silence and RST"],
)
def test_idle_connections_that_are_dropped(link: Row, waits: float | None, evidence: str) -> None:
    (finding,) = findings_of("no_response", tables(link, waits))
    assert finding.evidence == (
        f"{evidence} They had been idle for 50.0 s. No connection between these hosts continued "
        "after more than 40.0 s without a message."
    )
    assert (finding.severity, finding.side, finding.setting) == ("warning", "network", None)
    assert finding.requests == (0 if waits is None else 3)


@pytest.mark.parametrize(
    ("link", "waits", "options"),
    [
        (RESET, None, {"idle": (50, 50)}),
        (RESET, None, {"period": 60}),
        (RESET, None, {"idle": (0.9, 0.9, 0.9), "period": 250}),
        (RESET, None, {"idle": (50, 70, 90)}),
        ({"closed": "fin"}, None, {}),
        (RESET | {"broker_lost_bytes": 9}, None, {}),
        (SILENT | {"client_retransmitted": 2}, WAIT_S, {}),
        (SILENT | {"broker_zero_windows": 1}, WAIT_S, {}),
        (SILENT, WAIT_S, {"until": 50}),
    ],
    ids=["two", "others continue", "short", "killed at times", "FIN", "lost bytes",
         "few retransmissions", "broker does not read", "broker is down"],
)  # fmt: skip
def test_connections_that_no_device_dropped(link: Row, waits: float | None, options: Row) -> None:
    assert findings_of("no_response", tables(link, waits, **options)) == []


@pytest.mark.parametrize(
    ("size", "largest", "count"),
    [(15_000, 300, 1), (15_000, 15_000, 0), (1000, 300, 0), (1001, 300, 1)],
    ids=["too large", "others arrive", "small", "larger"],
)
def test_large_requests_that_do_not_arrive(size: int, largest: int, count: int) -> None:
    """They follow the first exchange of a connection at once."""
    lost = tables(SILENT, WAIT_S, idle=(0, 0, 0), largest=largest, request_bytes=size)
    findings = findings_of("no_response", lost)
    assert len(findings) == count
    for finding in findings:
        assert finding.severity == "critical"
        assert "sent its packets again for up to 20.0 s" in finding.evidence
        assert "a smaller MTU" in finding.cause


@pytest.mark.parametrize(
    ("number", "others", "count"), [(3, 8, 0), (3, 9, 1), (1, 4, 0), (1, 5, 1)]
)
def test_packets_sent_in_vain_are_no_faulty_link(number: int, others: int, count: int) -> None:
    """Each dropped connection has three of them. Others may be of one that the capture cuts off."""
    made_tables = tables(SILENT, WAIT_S, idle=(50,) * number, retransmitted=others)
    assert len(findings_of("retransmissions", made_tables)) == count


@pytest.mark.parametrize(("size", "largest", "count"), [(15_000, 300, 0), (15_000, 15_000, 1)])
def test_no_packet_counts_as_lost_on_a_path_that_drops_large_ones(
    size: int, largest: int, count: int
) -> None:
    """The large packets of other connections between the hosts do not arrive, either."""
    lost = tables(
        SILENT, WAIT_S, idle=(0, 0, 0), largest=largest, request_bytes=size, retransmitted=9
    )
    assert len(findings_of("retransmissions", lost)) == count


@pytest.mark.parametrize(
    ("missing", "retransmitted", "is_blocked"),
    [(100_000, 0, True), (99_500, 0, True), (90_000, 2, False), (90_000, 3, True)],
    ids=["nothing", "a small packet", "slow", "the same packets"],
)
def test_responses_that_are_too_large_for_the_path(
    missing: int, retransmitted: int, is_blocked: bool
) -> None:
    requests, problems, links = [], [], []
    for n in range(3):
        row = {
            "stage": "frames",
            "kind": "cut_message",
            "detail": "x",
            "bytes": missing,
            "count": 1,
        }
        problems.append(row | {"connection_id": n, "time": START + SECOND})
        requests.append(exchange_at(START, START + SECOND, connection_id=n, response_bytes=100_000))
        links.append(connection(connection_id=n, broker_retransmitted=retransmitted))
    broken = made(exchanges=requests, problems=problems, connections=links)
    (finding,) = findings_of("no_response", broken)
    assert ("a smaller MTU" in finding.cause) == is_blocked
    assert ("too slow" in finding.cause) == (not is_blocked)
    assert ("received at most" in finding.evidence) == (retransmitted > 0)
    is_lossy = retransmitted > 0 and not is_blocked
    assert len(findings_of("retransmissions", broken)) == is_lossy


@pytest.mark.parametrize(("waited_ms", "count"), [(999, 0), (1000, 1)])
def test_a_client_that_stops_leaves_a_response_behind(waited_ms: int, count: int) -> None:
    """The broker writes the beginning of a response, and the client closes the connection."""
    links = [connection(connection_id=n, last_time=START + waited_ms * MS) for n in range(3)]
    requests = [exchange_at(START, connection_id=n, response_bytes=253) for n in range(3)]
    problems = [
        {"stage": "frames", "kind": "cut_message", "detail": "x", "bytes": 180, "count": 1}
        | {"connection_id": n, "time": START}
        for n in range(3)
    ]
    cut = made(exchanges=requests, problems=problems, connections=links)
    assert len(findings_of("no_response", cut)) == count


@pytest.mark.parametrize(
    ("lost", "links", "silent_s", "responds", "is_path"),
    [
        (14_480, 3, 20, False, True),
        (14_480, 2, 20, False, False),
        (900, 3, 20, False, False),
        (14_480, 3, 0.5, False, False),
        (14_480, 3, 20, True, False),
    ],
    ids=["the path", "few connections", "small", "the end", "the broker responds"],
)
def test_a_capture_at_the_broker_does_not_have_large_requests_that_the_path_drops(
    lost: int, links: int, silent_s: float, responds: bool, is_path: bool
) -> None:
    """The small last packet of a request arrives, and the broker waits for the others. If only the
    capture lacks them, the broker responds."""
    rows = [exchange_at(START + 9 * SECOND, connection_id=99, request_bytes=300)]
    connections = [connection(connection_id=99, last_time=START + 9 * SECOND)]
    problems = []
    for n in range(links):
        end = START + SECOND + int(silent_s * SECOND)
        rows.append(exchange_at(START, connection_id=n, correlation_id=n))
        if responds:
            rows.append(exchange_at(START + 2 * SECOND, connection_id=n, correlation_id=9))
        connections.append(connection(connection_id=n, client_lost_bytes=lost, last_time=end))
        problems.append(
            {"stage": "streams", "kind": "lost_bytes", "detail": "x", "bytes": lost, "count": 1}
            | {"connection_id": n, "time": START + SECOND}
        )
    tables = made(exchanges=rows, connections=connections, problems=problems)
    findings = findings_of("no_response", tables)
    assert [each.sentence for each in findings] == [
        "Large requests of client `app` do not arrive at 10.0.0.9:9092"
    ] * is_path
    holes = [each for each in findings_of("coverage", tables) if "lost bytes" in each.sentence]
    assert len(holes) == (not is_path)
