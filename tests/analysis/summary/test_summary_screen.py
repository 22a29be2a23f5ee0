"""The output of a summary is safe and fits the screen."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import analysis
from analysis.display.summary_screen import screen
from dissector.problems import LATE_SECRETS, UNUSED_SECRETS
from tests.analysis.answering import path_of
from tests.analysis.made_rows import SECOND, START, connection, error, exchange
from tests.analysis.printing import printed
from tests.analysis.summary.summing import (
    ATTEMPT,
    ONE_SIDED,
    REPEATED_SYN,
    SILENT,
    TLS,
    UNKNOWN,
    Rows,
    joined,
    recorded,
    shown,
    summed,
)


def test_a_capture_without_anything() -> None:
    text = shown(summed())
    assert "No Kafka request or response was found." in text
    assert "No packet contains TCP" in text
    assert "What is wrong" not in text


def test_a_capture_without_tcp_lists_what_its_packets_contain() -> None:
    layers = {f"EtherType 0x{number:04x}": 1 for number in range(0x9A00, 0x9A0B)}
    parts = screen(summed(), "x", 16, str, without_tcp=layers | {"IP protocol 50 (ESP)": 5})
    text = printed(parts)
    assert "contains TCP, directly or in a supported encapsulation.\n  5 packets: IP pro" in text
    assert "\n  1 packet: EtherType 0x9a08\n  2 packets: others\n" in text
    assert "interface of the tunnel" in text
    assert "tunnel" not in printed(screen(summed(), "x", 11, str, without_tcp=layers))


def test_a_capture_without_kafka_names_the_ports_to_try() -> None:
    text = shown(summed(connections=[connection(protocol="unknown", broker_port=29092)]))
    assert "port 29092" in text
    assert "--port" in text


@pytest.mark.parametrize(
    ("others", "expected", "hint"),
    [
        ([TLS] * 3, "Only 1 of 4 connections could be read", "use --keylog FILE"),
        ([UNKNOWN] * 2, "Only 1 of 3 connections could be read", "port 29092"),
        ([TLS, UNKNOWN], "Only 1 of 3 connections could be read", "use --port PORT"),
        (
            [SILENT],
            "In the 1 of 2 connections that were read: no error",
            "1 connection without any payload",
        ),
        ([ONE_SIDED], "1 connection with packets in only one direction", ""),
    ],
)
def test_unread_connections_are_counted(others: Rows, expected: str, hint: str) -> None:
    text = shown(summed(exchanges=[exchange()], connections=[connection(), *others]))
    assert expected in text
    assert hint in text
    assert "No error" not in text
    text = shown(
        summed(exchanges=[exchange()], errors=[error()], connections=[connection(), *others])
    )
    assert "1 error in responses" in text
    assert hint in text


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([ATTEMPT] * 3, [(9092, 3, 0)]),
        ([REPEATED_SYN], [(9092, 0, 1)]),
        ([ATTEMPT, ATTEMPT | {"broker_port": 80}], [(9092, 1, 0)]),
        ([REPEATED_SYN, ONE_SIDED], []),
        ([REPEATED_SYN | {"client_packets": 1}], []),
        ([ATTEMPT | {"opened": False}], []),
        ([ATTEMPT | {"handshake_rtt_ms": 0.1}], []),
        ([ATTEMPT | {"client_packets": 2}], []),
        ([ATTEMPT | {"client_packets": 2, "last_time": START + SECOND}], [(9092, 1, 0)]),
        ([REPEATED_SYN, ONE_SIDED | {"opened": False}], [(9092, 0, 1)]),
        ([REPEATED_SYN, ONE_SIDED | {"protocol": "tls"}], []),
        ([REPEATED_SYN | {"closed": "rst"}], []),
    ],
    ids=[
        "refused",
        "no reply",
        "another service",
        "one direction",
        "one SYN",
        "RST only",
        "probe",
        "half-open scan",
        "lost SYN, then refused",
        "dead host",
        "one direction of TLS",
        "probe of one direction",
    ],
)
def test_connections_that_could_not_be_established(
    others: Rows, expected: list[tuple[int, int, int]]
) -> None:
    summary = summed(exchanges=[exchange()], connections=[connection(), *others])
    rows = summary.failed_connections()
    names = ("broker_port", "refused", "without_reply")
    assert [tuple(row[name] for name in names) for row in rows] == expected
    text = shown(summary)
    assert ("could not be established" in text) == bool(expected)
    assert ("no error" in text or "Nothing else" in text) == (not expected)


@pytest.mark.parametrize("is_first", [True, False], ids=["connection first", "request first"])
@pytest.mark.parametrize(
    ("lacks", "text"),
    [
        ({"broker_lost_bytes": 9}, "1 request without a response; the capture may lack 1 response"),
        ({"broker_packets": 0}, "1 request without a response; the capture may lack 1 response"),
        ({}, "1 request without a response\n"),
    ],
    ids=["lost bytes", "one direction", "whole"],
)
def test_responses_that_the_capture_may_lack(
    lacks: dict[str, Any], text: str, is_first: bool
) -> None:
    silent = exchange(status="unanswered")
    tables = {"exchanges": [silent], "connections": [connection(responses=0, **lacks)]}
    summary = summed(**(dict(reversed(tables.items())) if is_first else tables))
    lines = [line.strip() for line in shown(summary).splitlines()]
    assert text.strip() in lines


def test_a_capture_of_refused_connections_only() -> None:
    text = shown(summed(connections=[ATTEMPT] * 5))
    assert "No Kafka request or response was found." in text
    assert "5 connections could not be established" in text
    assert "more: kafka-dissector network --show failures" in text


@pytest.mark.parametrize(
    ("kind", "detail", "count", "expected"),
    [
        ("unreadable_file", "x.pcap is empty", 1, "1 file not read: x.pcap is empty"),
        ("truncated_file", "it ends", 1, "Part of a file could not be read: x.pcap: it ends"),
        ("damaged_stream", "it ends", 3, "3 parts of files could not be read; the first: x.pcap: "
         "it ends"),
    ],
)  # fmt: skip
def test_files_that_could_not_be_read_come_first(
    kind: str, detail: str, count: int, expected: str
) -> None:
    problem = {"stage": "packets", "kind": kind, "detail": detail, "count": 1, "capture": "x.pcap"}
    problems = [problem] * count
    text = shown(summed(exchanges=[exchange()], connections=[connection()], problems=problems))
    lines = [line.strip() for line in text.splitlines()]
    assert lines[lines.index("What is wrong") + 1] == expected
    assert "no error" not in text
    text = shown(summed(problems=problems))
    assert text.index(expected) < text.index("What could not be read")


def test_packets_that_the_capture_dropped() -> None:
    problem = {"stage": "packets", "kind": "dropped_packets", "detail": "lo: it dropped some"}
    problems = [{**problem, "count": count, "capture": "x.pcapng"} for count in (1200, 34)]
    text = shown(summed(exchanges=[exchange()], connections=[connection()], problems=problems))
    lines = [line.strip() for line in text.splitlines()]
    expected = "1,234 packets dropped by the capture: requests may be missing"
    assert lines[lines.index("What is wrong") + 1] == expected
    assert "every request answered" not in text


def test_the_verdict_has_the_reason_if_nothing_could_be_read() -> None:
    text = shown(summed(connections=[TLS, TLS]))
    assert "0 of 2 connections could be read" in text
    assert "2 are encrypted with TLS: use --keylog FILE" in text
    assert "What is wrong" not in text


@pytest.mark.parametrize(
    ("kinds", "reason"),
    [
        ([], "the key log has no secrets for them"),
        (["tls_no_handshake"], "their handshakes are not in the capture"),
    ],
)
def test_a_key_log_without_effect_is_not_requested_again(kinds: list[str], reason: str) -> None:
    problems = [{"stage": "tls", "kind": kind, "detail": "", "count": 1} for kind in kinds]
    summary = summed(connections=[TLS], problems=problems)
    text = printed(screen(summary, "x", 1, lambda arguments: arguments, has_keylog=True))
    assert reason in text
    assert "use --keylog" not in text


@pytest.mark.parametrize("others", [0, 2])
def test_connections_whose_handshake_failed_are_not_encrypted(others: int) -> None:
    """They have no keys. An alert may also precede a connection without TLS."""
    failed = [{"connection_id": n, "stage": "tls", "kind": "tls_alert", "detail": "", "count": 1}
              for n in range(3)]  # fmt: skip
    connections = [TLS | {"connection_id": n} for n in range(3 + others)]
    connections[0] |= {"protocol": "kafka"}
    text = shown(summed(connections=connections, problems=failed))
    assert "2 did not complete the TLS handshake" in text
    assert "3 TLS handshakes failed" in text
    assert "more: kafka-dissector network --show failures" in text
    assert ("2 are encrypted with TLS" in text) == bool(others)
    assert ("encrypted with TLS" in text) == bool(others)


@pytest.mark.parametrize("detail", [UNUSED_SECRETS, LATE_SECRETS])
def test_secrets_that_are_not_used_need_no_key_log(detail: str) -> None:
    problem = {"stage": "tls", "kind": "tls_unsupported", "detail": detail, "count": 1}
    text = shown(summed(connections=[TLS], problems=[problem]))
    hint = next(line for line in text.splitlines() if "encrypted with TLS" in line)
    assert detail in hint
    assert "--keylog" not in hint


def test_a_summary_without_a_capture_names_no_command() -> None:
    summary = summed(exchanges=[exchange(status="unanswered")], connections=[connection()])
    text = printed(screen(summary, "lo", 1, lambda _: None))
    assert "more:" not in text
    assert "kafka-dissector" not in text


def test_sections_without_rows_have_no_heading() -> None:
    lonely = exchange(status="request_missing", api=None, api_key=None, client_id=None)
    text = shown(summed(exchanges=[lonely], connections=[connection()]))
    assert "1 response to a request that is not in the capture" in text
    assert "Clients" not in text
    assert "Requests" not in text


def test_a_healthy_capture_has_a_healthy_verdict() -> None:
    text = shown(summed(exchanges=[exchange()], connections=[connection()]))
    assert "No error, no throttling, every request answered. Requests may still be slow; " in text
    assert "apache-kafka-java 4.4.0" in text
    assert "What could not be read" not in text


@pytest.mark.parametrize(
    "name", ["kafka-4-group-consumer", "kafka-4-group-eager", "kafka-4-group-cooperative"]
)
def test_a_healthy_group_has_no_problems(name: str) -> None:
    """Members join and leave; a leaving member has polls in flight."""
    text = shown(recorded(name))
    wrong, normal = text.split("Normal unless frequent")
    assert "No error, no throttling, every request answered." in wrong
    assert "COORDINATOR_LOAD_IN_PROGRESS" in normal


def test_requests_in_flight_at_the_end_are_not_problems() -> None:
    """The capture ends 5 s after these requests."""
    fetch = exchange(status="unanswered", api="Fetch", max_wait_ms=500)
    for connection_columns, is_fault in (
        ({"closed": None}, False),
        ({"closed": None, "broker_lost_bytes": 9}, True),
        ({"closed": None, "broker_packets": 0}, True),
        ({"closed": None, "last_time": START + 40 * SECOND}, True),
        ({"closed": "fin"}, True),
        ({"closed": "fin", "last_time": START + SECOND // 4}, False),
    ):
        summary = summed(exchanges=[fetch], connections=[connection(**connection_columns)])
        assert (summary.in_flight, len(summary.never_answered())) == (
            int(not is_fault),
            int(is_fault),
        )
        assert ("1 request without a response" in shown(summary)) == is_fault


def test_problems_name_the_command_that_shows_more() -> None:
    rows = [
        exchange(error_count=1),
        exchange(throttle_time_ms=250),
        exchange(status="unanswered"),
        exchange(status="undecoded"),
        exchange(status="request_missing", api=None, api_key=None, client_id=None),
    ]
    problem = {"stage": "frames", "kind": "lost_bytes", "detail": "9 bytes are lost", "bytes": 9}
    text = shown(
        summed(
            exchanges=rows,
            errors=[error()],
            connections=[connection(client_lost_bytes=9)],
            problems=[problem, problem | {"detail": "another"}],
            memberships=[joined("g", 1), joined("g", 1), joined("g", 2), joined("once", 7)],
        )
    )
    for phrase in (
        "1 error in responses",
        "1 response throttled by a quota, the longest for 250 ms",
        "1 request without a response",
        "1 exchange that could not be decoded",
        "1 response to a request that is not in the capture",
        "9 bytes missing from the capture, in 1 connection",
        "      2     18  frames  lost_bytes  9 bytes are lost",
        "kafka-dissector errors\n",
        "kafka-dissector throttle\n",
        "kafka-dissector unanswered\n",
        "2 rebalances of groups that rebalanced more than once",
        "      2  g      classic",
        "kafka-dissector groups\n",
        "kafka-dissector show --only undecoded",
        "kafka-dissector show --only request_missing",
        "kafka-dissector quality\n",
        "kafka-dissector export --table problems",
        "kafka-dissector clients\n",
        "kafka-dissector latency --by api,api_version\n",
    ):
        assert phrase in text


@settings(max_examples=25)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_control_characters_and_markup_of_a_capture_are_escaped(text: str) -> None:
    hostile = f"[red]\x1b[2J{text}[/nonsense]"
    summary = summed(
        exchanges=[exchange(client_id=hostile)],
        errors=[error(client_id=hostile, topic=hostile, error=None, error_code=-7)],
        connections=[connection(software_name=hostile)],
        problems=[{"stage": "frames", "kind": "kind", "detail": hostile}],
    )
    lines = shown(summary).split("\n")
    assert all(line.isprintable() for line in lines)
    assert sum("[red]\\x1b[2J" in line for line in lines) == 3


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_summary_fits_the_terminal_without_truncated_numbers(width: int) -> None:
    rows = [
        exchange(
            api_key=23, api="OffsetForLeaderEpoch", latency_ms=1.234, client_id="a-long-client-id"
        )
    ]
    summary = summed(exchanges=rows, connections=[connection(software_name="x" * 30)])
    lines = shown(summary, width).split("\n")
    assert width < 60 or all(len(line) <= width for line in lines)
    assert "1.234" in "\n".join(lines)
    assert "…" not in "\n".join(lines)


def test_long_lists_show_the_number_of_omitted_items() -> None:
    rows = [error(topic=f"topic-{number}") for number in range(14)]
    assert "and 4 more" in shown(summed(exchanges=[exchange()], errors=rows))


def test_only_the_most_frequent_requests_are_listed() -> None:
    """A rolling upgrade doubles the versions. The note about waits is about listed requests."""
    rows = [exchange(api_version=version) for version in range(14) for _ in range(14 - version)]
    text = shown(summed(exchanges=[*rows, exchange(api="JoinGroup", api_key=11)]))
    versions = [int(line.split()[1]) for line in text.splitlines() if line.startswith("  Metadata")]
    assert versions == list(range(10))
    assert "and 5 more" in text
    assert "includes waiting" not in text


def test_times_have_dates_where_the_capture_spans_days() -> None:
    for days, expected in ((0, False), (246, True)):
        end = START + days * 86_400 * SECOND
        rows = [connection(connection_id=0, first_time=START, last_time=end + SECOND)]
        text = shown(
            summed(
                connections=rows,
                exchanges=[exchange()],
                errors=[error(time=START), error(time=end)],
            )
        )
        line = next(line for line in text.splitlines() if "Produce" in line or "UNKNOWN" in line)
        assert (pd.Timestamp(end).strftime("%Y-%m-%d") in line) == expected


@pytest.mark.parametrize("name", ["kafka-4-followed", "kafka-4-quotas", "kafka-4-errors"])
def test_the_command_for_clients_lists_them(name: str) -> None:
    summary = recorded(name)
    text = shown(summary)
    _, _, clients = text.partition("\nClients\n")
    hint = clients.partition("more: kafka-dissector ")[2].splitlines()[0]
    rows = (
        getattr(analysis, hint)(path_of(name))[["client_id", "software"]]
        .astype("object")
        .fillna("")
    )
    listed = {(client, each) for client, names in rows.to_numpy() for each in names.split(", ")}
    unnamed = {(client, "") for client, _ in listed}  # some of its connections have no software
    assert {(c.client_id or "", c.software or "") for c in summary.clients()} <= listed | unnamed
