"""The quality answer counts each flaw of a capture that was cut on purpose."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

import analysis
from analysis.answers import ANSWERS
from dissector.problems import NO_KEY_LOG
from tests.analysis.answering import capture, made
from tests.analysis.made_rows import START, connection, exchange

TABLES = ANSWERS["quality"].tables


def flaws(name: str) -> pd.DataFrame:
    return analysis.quality(capture(name, TABLES)).set_index("flaw")


@pytest.mark.parametrize("name", ["kafka-4-cut", "kafka-4-java"])
def test_a_whole_capture_has_no_flaw(name: str) -> None:
    counts = flaws(name)
    assert counts["count"].sum() == 0
    assert (counts["total"] > 0).all()


@pytest.mark.parametrize(
    ("name", "flaw"),
    [
        ("kafka-4-cut-requests", "connections with one side only"),
        ("kafka-4-cut-responses", "connections with one side only"),
        ("kafka-4-cut-midway", "connections begun before the capture"),
        ("kafka-4-cut-snaplen", "problem: streams cut_packets"),
        ("kafka-4-tls", "connections encrypted"),
    ],
)
def test_the_flaw_of_a_cut_capture_is_counted(name: str, flaw: str) -> None:
    """captures/README.md lists how each capture was cut."""
    counts = flaws(name)
    assert counts.loc[flaw, "count"] > 0
    others = {"connections with one side only", "connections begun before the capture"} - {flaw}
    assert (counts.loc[sorted(others), "count"] == 0).all()


def test_each_request_of_a_one_sided_capture_may_have_been_answered() -> None:
    flaw = flaws("kafka-4-cut-requests").loc[
        "requests whose response may be missing from the capture"
    ]
    assert flaw["count"] == flaw["total"] == 437  # as many as the ledger says the broker logged


def test_responses_without_requests_are_counted() -> None:
    flaw = flaws("kafka-4-cut-responses").loc["responses without their request"]
    assert flaw["count"] == flaw["total"] == 437


@pytest.mark.parametrize(
    ("columns", "ids", "expected"),
    [
        ({"client_ip": "172.17.0.1"}, (7, 8), 2),  # masquerade on a bridge
        ({"client_ip": "172.17.0.1", "client_port": 1024}, (7, 8), 2),  # with a random port
        ({"broker_ip": "127.0.0.1", "broker_port": 15001}, (7, 8), 2),  # redirected to a sidecar
        ({"client_ip": "172.17.0.1", "client_packets": 5}, (7, 8), 1),
        ({"client_ip": "10.0.0.8", "client_port": 1024, "client_packets": 5}, (7, 8), 0),
        ({"client_ip": "172.17.0.1", "client_packets": 5, "broker_packets": 0}, (7, 8), 0),
        ({"client_ip": "172.17.0.1", "broker_ip": "127.0.0.1"}, (7, 8), 0),
        ({"client_ip": "172.17.0.1"}, (7, 9), 0),
        ({"client_ip": "172.17.0.1"}, (7,), 0),
        ({"first_time": START + 10**11, "last_time": START + 2 * 10**11}, (7, 8), 0),
    ],
)
def test_sides_with_different_addresses_are_those_of_nat(
    columns: dict[str, Any], ids: tuple[int, ...], expected: int
) -> None:
    sides = ({"broker_packets": 0}, {"client_packets": 0} | columns)
    connections = [connection(connection_id=number, **row) for number, row in enumerate(sides)]
    rows = [exchange(connection_id=number, correlation_id=each)
            for number, each in [(0, 7), (0, 8), *((1, each) for each in ids)]]  # fmt: skip
    tables = made(connections=connections, exchanges=rows)
    flaw = analysis.quality(tables).set_index("flaw").loc["connections with one side only"]
    assert ("other side under another address" in flaw["detail"]) == bool(expected)
    assert not expected or flaw["detail"].endswith(f"(NAT): {expected}")


def test_made_flaws_are_counted() -> None:
    tables = made(
        connections=[
            connection(connection_id=0, client_lost_bytes=7, broker_lost_bytes=3),
            connection(connection_id=1, protocol="unknown", broker_port=443),
            connection(connection_id=2, protocol="unknown", client_bytes=0, broker_bytes=0),
        ],
        exchanges=[exchange(status="undecoded", api="Fetch", api_version=99), exchange()],
        batches=[
            {"connection_id": 0, "crc_ok": False, "bytes": 70, "topic": "t", "partition": 3},
            {"connection_id": 0, "crc_ok": True},
            {"crc_ok": False, "bytes": 900},  # of a log segment, with a row of `problems`
        ],
        problems=[{"stage": "packets", "kind": "unknown_link", "bytes": 5, "detail": "what"}],
    )
    counts = analysis.quality(tables).set_index("flaw")
    expected = {
        "connections of no known protocol": (1, 3, 1200, "most from 10.0.0.1 to port 443"),
        "connections with holes": (1, 1, 10, "most in connection 0"),
        "exchanges not decoded": (1, 2, None, "Fetch 99"),
        "batches with a wrong checksum": (1, 2, 70, "first in t-3"),
        "problem: packets unknown_link": (1, None, 5, "what"),
    }
    for flaw, row in expected.items():
        actual = counts.loc[flaw].astype("object")
        assert tuple(actual.where(actual.notna(), None)) == row, flaw
    assert counts["count"].sum() == len(expected)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({}, (1, 1, 90, "each byte 2.0 times")),
        ({"client_bytes": 90, "broker_bytes": 180}, (1, 1, 180, "each byte 3.0 times")),
        # A bridge shows only the requests, or the responses, twice.
        ({"broker_bytes": 60, "client_retransmitted": 10}, (1, 1, 30, "each byte 2.0 times")),
        (
            {"client_bytes": 30, "client_retransmitted": 0, "broker_retransmitted": 10},
            (1, 1, 60, "each byte 2.0 times"),
        ),
        # A dead path: the client sends its request again and again.
        ({"client_bytes": 300, "broker_bytes": 60}, (0, 1, 0, None)),
        # A path that drops large packets: parts of the request are sent again and again.
        (
            {"client_bytes": 105, "broker_bytes": 60, "client_retransmitted": 11},
            (0, 1, 0, None),
        ),
        # Skipped bytes of a connection that began before the capture.
        ({"client_retransmitted": 0}, (0, 1, 0, None)),
    ],
)
def test_connections_whose_packets_were_captured_more_than_once(
    columns: dict[str, int], expected: tuple[int, int, int, str | None]
) -> None:
    twice = {"client_bytes": 60, "broker_bytes": 120, "client_retransmitted": 1}
    tables = made(connections=[connection(**twice | columns)], exchanges=[exchange()])
    flaw = analysis.quality(tables).set_index("flaw").loc["connections captured more than once"]
    assert tuple(flaw.astype("object").where(flaw.notna(), None)) == expected


@pytest.mark.parametrize("status", ["answered", "unanswered"])  # or without its responses
@pytest.mark.parametrize(
    ("columns", "crc", "expected"),
    [
        ({}, 7, (1, 2, 30, "Produce requests, most to 172.17.0.2:9092")),
        ({"correlation_id": 8}, 7, (0, 2, 0, None)),
        ({"client_id": "other"}, 7, (0, 2, 0, None)),
        ({}, 8, (0, 2, 0, None)),
    ],
)
def test_requests_captured_on_both_sides_of_a_proxy(
    status: str, columns: dict[str, Any], crc: int, expected: tuple[int, int, int, str | None]
) -> None:
    relayed = {"connection_id": 1, "request_time": START + 1_000_000, "broker_ip": "172.17.0.2"}
    rows = [exchange(api="Produce", status=status), exchange(api="Produce", **relayed | columns)]
    flaw = _copies(rows, (7, crc))
    assert tuple(flaw.astype("object").where(flaw.notna(), None)) == expected


def test_a_request_that_is_sent_again_after_the_response_is_no_copy() -> None:
    again = {"connection_id": 1, "request_time": START + 3_000_000}
    rows = [exchange(api="Produce"), exchange(api="Produce", **again)]
    assert _copies(rows, (7, 7))["count"] == 0


def _copies(rows: list[dict[str, Any]], crcs: tuple[int, int]) -> Any:
    """The row of requests in several connections, for Produce requests with these batches."""
    names = ("connection_id", "correlation_id", "client_id", "api")
    batches = [
        {name: row[name] for name in names} | {"crc": crc}
        for row, crc in zip(rows, crcs, strict=True)
    ]
    tables = made(connections=[connection()], exchanges=rows, batches=batches)
    counts = analysis.quality(tables).set_index("flaw")
    return counts.loc["requests captured in several connections"]


def test_responses_earlier_than_their_requests_are_counted() -> None:
    rows = [exchange(latency_ms=each) for each in (-1.5, -20.25, 0.0, 3.0, None)]
    tables = made(connections=[connection()], exchanges=rows)
    counts = analysis.quality(tables).set_index("flaw")
    flaw = counts.loc["responses with an earlier time than their request"]
    assert (flaw["count"], flaw["total"], flaw["detail"]) == (2, 5, "up to 20.25 ms earlier")


def test_problems_count_the_packets_they_stand_for() -> None:
    rows = [
        {"stage": "packets", "kind": "unknown_link", "detail": "30 packets are", "count": count}
        for count in (30, 12)
    ]
    counts = analysis.quality(made(problems=rows)).set_index("flaw")
    assert counts.loc["problem: packets unknown_link", "count"] == 42


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([], "a key log decrypts them"),
        (["tls_lost_records"], "a key log decrypts them"),
        (["tls_no_keys", "tls_unsupported"], "the key log has no secrets for them"),
        (["tls_no_keys", *["tls_no_handshake"] * 2], "their handshakes are not in the capture"),
        (["tls_wrong_keys"], "the secrets in the key log are wrong"),
        (["tls_unsupported"], "not decrypted: TLS 1.1"),
    ],
)
def test_encrypted_connections_have_the_reason(kinds: list[str], expected: str) -> None:
    problems = [
        {"stage": "tls", "kind": kind, "detail": "not decrypted: TLS 1.1", "count": 1}
        for kind in kinds
    ]
    rows = analysis.quality(made(connections=[connection(protocol="tls")], problems=problems))
    assert rows.set_index("flaw").loc["connections encrypted", "detail"] == expected


def test_a_failed_handshake_is_not_an_encrypted_connection() -> None:
    """captures/README.md: each client with TLS fails in the handshake."""
    counts = flaws("kafka-4-handshakes")
    assert counts.loc["connections encrypted", "count"] == 0
    assert counts.loc["problem: tls tls_alert", "count"] == 19


def test_failed_handshakes_are_no_reason_of_encrypted_connections() -> None:
    problems = [{"stage": "tls", "kind": "tls_alert", "detail": "what", "connection_id": 1}]
    rows = [connection(protocol="tls", connection_id=each) for each in (0, 1)]
    tables = made(connections=rows, problems=problems * 3)
    flaw = analysis.quality(tables).set_index("flaw").loc["connections encrypted"]
    assert (flaw["count"], flaw["total"], flaw["bytes"]) == (1, 2, 1200)
    assert flaw["detail"] == "a key log decrypts them"


def test_a_named_port_without_a_key_log_is_not_a_key_log_without_secrets() -> None:
    problem = {"stage": "tls", "kind": "tls_no_keys", "detail": f"to port 9: {NO_KEY_LOG}"}
    tables = made(connections=[connection(protocol="tls")], problems=[problem])
    rows = analysis.quality(tables).set_index("flaw")
    assert rows.loc["connections encrypted", "detail"] == "a key log decrypts them"
