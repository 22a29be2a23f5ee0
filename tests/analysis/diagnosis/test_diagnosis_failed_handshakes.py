"""Rules on made rows: TLS handshakes that fail."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.answering import made
from tests.analysis.diagnosis.diagnosing import findings_of, rules
from tests.analysis.made_rows import START, at, connection, exchange


def test_a_single_failed_handshake_has_no_duration() -> None:
    detail = "TLS failed: alert unknown_ca (sent by 10.0.0.1:5000)"
    problem = {"connection_id": 0, "kind": "tls_alert", "detail": detail, "time": START}
    links = [connection(protocol="tls")]
    tables = made(exchanges=[], connections=links, problems=[problem])
    (finding,) = findings_of("failed_handshakes", tables)
    assert finding.evidence == (
        "1 connection from 1 host. The client sent the alert. No other connection to this broker "
        "had data in both directions."
    )


def test_an_alert_after_data_is_a_failed_connection() -> None:
    detail = "TLS failed: alert bad_record_mac after data (sent by 10.0.0.9:9092)"
    problem = {"connection_id": 0, "kind": "tls_aborted", "detail": detail, "time": START}
    tables = made(exchanges=[], connections=[connection(tls_version="1.3")], problems=[problem])
    (finding,) = findings_of("failed_handshakes", tables)
    assert finding.sentence == (
        "TLS connections with 10.0.0.9:9092 fail: alert bad_record_mac after data"
    )
    assert finding.evidence.startswith("1 connection from 1 host. The broker sent the alert.")
    assert finding.side == "network"


def _without_tls(brokers: int) -> dict[str, list[dict[str, Any]]]:
    """30 connections of a client without TLS to the TLS listeners of some brokers."""
    detail = "TLS failed: alert internal_error to a client without TLS (sent by {}:9092)"
    hosts = [f"10.0.0.{7 + n % brokers}" for n in range(30)]
    return {
        "exchanges": [
            exchange(connection_id=n, api="ApiVersions", status="unanswered", broker_ip=host)
            for n, host in enumerate(hosts)
        ],
        "connections": [
            at(n) | {"connection_id": n, "broker_ip": host, "protocol": "kafka"}
            | {"client_bytes": 40, "broker_bytes": 7, "handshake_rtt_ms": 1.0}
            for n, host in enumerate(hosts)
        ],
        "problems": [
            {"connection_id": n, "kind": "tls_alert", "detail": detail.format(host), "time": START}
            for n, host in enumerate(hosts)
        ],
    }  # fmt: skip


def test_handshakes_that_fail_alike_are_one_finding() -> None:
    (finding,) = findings_of("failed_handshakes", made(**_without_tls(2)))
    assert finding.sentence.startswith(
        "TLS handshakes with 2 brokers (10.0.0.7:9092, 10.0.0.8:9092) fail: alert internal_error"
    )
    assert finding.evidence.startswith("30 connections within 29.0 s. The broker sent the alert.")
    assert finding.severity == "critical"


def test_reconnects_after_failed_handshakes_are_part_of_their_finding() -> None:
    tables = _without_tls(1)
    assert rules("failed_handshakes", "connection_churn", **tables) == ["failed_handshakes"]
    assert rules("connection_churn", **tables | {"problems": []}) == ["connection_churn"]


@pytest.mark.parametrize(
    ("version", "setting"),
    [("1.3", "max.connections.per.ip"), (None, "security.protocol=PLAINTEXT")],
)
def test_a_broker_with_tls_that_closes_connections(version: str | None, setting: str) -> None:
    """Another connection shows whether the listener uses TLS."""
    detail = "TLS failed: the connection ended before the ServerHello (sent by 10.0.0.9:9092)"
    kind = {"kind": "tls_closed", "detail": detail, "time": START}
    links = [connection(connection_id=n, protocol="tls", broker_bytes=0) for n in range(3)]
    links.append(connection(connection_id=3, tls_version=version))
    problems = [kind | {"connection_id": n} for n in range(3)]
    tables = made(exchanges=[], connections=links, problems=problems)
    (finding,) = findings_of("failed_handshakes", tables)
    assert finding.setting == setting
