"""Counts of a summary agree with the rows; its output is safe and fits the screen."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import analysis
import dissector
from analysis.answers import ANSWERS
from analysis.display.summary_screen import screen
from analysis.kafka.normal import NORMAL_ERRORS, NORMAL_FOR_TOPICS, NORMAL_IN_API, are_normal
from analysis.sql.failures import NO_REPLY, REFUSED
from analysis.sql.query import row_dicts
from analysis.summary.counts import Summary
from dissector.problems import UNUSED_SECRETS
from dissector.protocol import registry
from dissector.tables import TABLES
from tests.analysis.answering import capture, made, path_of
from tests.analysis.made_rows import SECOND, START, connection, error, exchange
from tests.analysis.printing import printed

Rows = Sequence[dict[str, Any]]


def batches(size: int, **tables: Rows) -> Iterator[tuple[str, pa.RecordBatch]]:
    for name, rows in tables.items():
        for start in range(0, len(rows), size):
            part = list(rows[start : start + size])
            yield name, pa.RecordBatch.from_pylist(part, TABLES[name].schema)


def summed(size: int = 3, **tables: Rows) -> Summary:
    summary = Summary()
    summary.read(batches(size, **tables))
    return summary


def recorded(name: str) -> Summary:
    """The summary of a committed capture."""
    summary = Summary()
    summary.read(dissector.open_capture(path_of(name)).stream(Summary.TABLES))
    return summary


def joined(group: str, generation: int) -> dict[str, Any]:
    row = {"time": START, "api": "JoinGroup", "group_type": "classic", "error_code": 0}
    return row | {"group_id": group, "generation": generation, "request_generation": -1}


def shown(summary: Summary, width: int = 10_000) -> str:
    parts = screen(summary, "made.pcap", 11, lambda words: f"kafka-dissector {words}")
    return printed(parts, width)


EXCHANGES = st.lists(
    st.builds(
        exchange,
        api_key=st.sampled_from([0, 1, 18]),
        api_version=st.sampled_from([None, 0, 12]),
        api=st.none(),
        connection_id=st.integers(0, 2),
        client_id=st.sampled_from([None, "", "app", "[red]"]),
        status=st.sampled_from(["answered", "unanswered", "undecoded", "request_missing"]),
        latency_ms=st.none() | st.floats(0, 1e6),
        throttle_time_ms=st.none() | st.integers(0, 9),
    ),
    max_size=40,
)


@settings(max_examples=25)
@given(EXCHANGES, st.integers(1, 50))
def test_requests_are_counted_as_pandas_counts_them(rows: Rows, size: int) -> None:
    summary = summed(size, exchanges=rows)
    assert summary.statuses() == Counter(row["status"] for row in rows)
    frame = pd.DataFrame([row for row in rows if row["status"] != "request_missing"])
    if not len(frame):
        assert summary.apis() == []
        return
    expected = {}
    for (key, version), part in frame.groupby(["api_key", "api_version"], dropna=False):
        latency = part["latency_ms"].astype(float)
        expected[f"API {key}", None if pd.isna(version) else version] = (
            len(part),
            0,
            int((part["throttle_time_ms"] > 0).sum()),
            *(pytest.approx(latency.quantile(q), nan_ok=True) for q in (0.5, 0.99, 1)),
        )
    actual = {
        (use.api, use.version): (
            use.count,
            use.errors,
            use.throttled,
            *(float("nan") if ms is None else ms for ms in (use.p50_ms, use.p99_ms, use.max_ms)),
        )
        for use in summary.apis()
    }
    assert actual == expected
    counts = [use.count for use in summary.apis()]
    assert counts == sorted(counts, reverse=True)


@settings(max_examples=25)
@given(EXCHANGES, st.integers(1, 50))
def test_a_client_is_an_id_and_its_software(rows: Rows, size: int) -> None:
    connections = [
        connection(connection_id=1, software_name="librdkafka", software_version="2"),
        connection(connection_id=2, software_name=None, software_version=None),
    ]
    software = {1: "librdkafka 2"}
    requests = Counter(
        (row["client_id"], software.get(row["connection_id"]))
        for row in rows
        if row["status"] != "request_missing"
    )
    summary = summed(size, exchanges=rows, connections=connections)
    assert {(c.client_id, c.software): c.requests for c in summary.clients()} == requests


def test_a_client_has_its_addresses_and_connections() -> None:
    rows = [
        exchange(connection_id=0, client_ip="10.0.0.1"),
        exchange(connection_id=1, client_ip="10.0.0.2"),
        exchange(connection_id=1, client_ip="10.0.0.2"),
        exchange(connection_id=2, client_ip="10.0.0.1", client_id="other"),
    ]
    of_app = error(connection_id=1, client_ip="10.0.0.2")
    app, other = summed(exchanges=rows, errors=[of_app]).clients()
    assert (app.client_id, list(app.addresses)) == ("app", ["10.0.0.1", "10.0.0.2"])
    assert (app.connections, app.requests, app.errors) == (2, 3, 1)
    assert (other.client_id, other.requests) == ("other", 1)


def test_errors_are_grouped_with_their_first_and_last_time() -> None:
    rows = [error(time=START + s * SECOND, topic=t) for s, t in ((3, "a"), (1, "b"), (2, "a"))]
    first, second = summed(2, errors=rows).errors()
    assert (first["topic"], first["count"]) == ("a", 2)
    assert (first["first"], first["last"]) == (START + 2 * SECOND, START + 3 * SECOND)
    assert (second["topic"], second["count"]) == ("b", 1)


@pytest.mark.parametrize("size", [1, 2, 99])
def test_a_response_with_errors_counts_once_and_without_those_of_normal_operation(
    size: int,
) -> None:
    normal = {"error_code": 6, "error": "NOT_LEADER_OR_FOLLOWER"}
    rows = [
        error(correlation_id=number, topic=topic, **columns)
        for number, topic, columns in [
            (1, "a", {}), (1, "b", normal), (1, "c", {}), (2, "a", normal), (3, "a", {}),
        ]
    ]  # fmt: skip
    exchanges = [exchange(correlation_id=number) for number in range(1, 5)]
    summary = summed(size, exchanges=exchanges, errors=rows)
    (client,), (use,) = summary.clients(), summary.apis()
    assert (client.requests, client.errors) == (4, 2)
    assert (use.count, use.errors) == (4, 2)


@pytest.mark.parametrize("name", ["kafka-4-errors", "kafka-4-admin", "librdkafka-mock-errors"])
def test_errors_are_those_of_the_answers(name: str) -> None:
    path, summary = path_of(name), recorded(name)
    counted = Counter[str | None]()
    for client in summary.clients():
        counted[client.client_id] += client.errors
    rows = analysis.clients(path)
    assert counted.total() > 0
    assert counted == Counter(rows.groupby("client_id", dropna=False)["errors"].sum().to_dict())
    assert sum(use.errors for use in summary.apis()) == counted.total()
    rows = analysis.errors(path, by=["error", "api"])
    wrong, normal = summary.unexpected_errors(), summary.normal_errors()
    assert rows["normal"].sum() == sum(row["count"] for row in normal)
    assert rows["count"].sum() == sum(row["count"] for row in (*wrong, *normal))


def test_the_order_of_equal_counts_does_not_depend_on_blocks() -> None:
    """Arrow gives two groups of errors of this recording another order in another block."""
    rows = list(dissector.open_capture(path_of("kafka-3-4")).stream(Summary.TABLES))
    whole, divided = Summary(), Summary()
    whole.read(rows)
    for name, batch in rows:
        divided.read((name, batch.slice(start, 7)) for start in range(0, len(batch), 7))
    assert whole.errors() == divided.errors()
    times = [row["first"] for row in whole.errors() if row["count"] == 1]
    assert times == sorted(times)


def test_connections_add_up() -> None:
    totals = summed(
        2,
        connections=[
            connection(first_time=START - SECOND, client_lost_bytes=5),
            connection(last_time=START + 9 * SECOND, broker_lost_bytes=7, protocol="tls"),
            connection(protocol="unknown", broker_port=80),
            connection(protocol="unknown", broker_port=443, broker_bytes=10_000),
        ],
    ).totals()
    assert (totals.first_time, totals.last_time) == (START - SECOND, START + 9 * SECOND)
    assert (totals.packets, totals.lost_bytes, totals.lossy) == (44, 12, 2)
    assert totals.bytes == 3 * 1200 + 10_500
    assert totals.protocols == {"kafka": 1, "tls": 1, "unknown": 2}
    assert totals.unknown_ports == [443, 80]


def test_a_capture_without_anything() -> None:
    text = shown(summed())
    assert "No Kafka request or response was found." in text
    assert "No packet contains TCP" in text
    assert "What is wrong" not in text


def test_a_capture_without_kafka_names_the_ports_to_try() -> None:
    text = shown(summed(connections=[connection(protocol="unknown", broker_port=29092)]))
    assert "port 29092" in text
    assert "--port" in text


TLS = connection(protocol="tls")
UNKNOWN = connection(protocol="unknown", broker_port=29092)
SILENT = UNKNOWN | {"client_bytes": 0, "broker_bytes": 0}
ONE_SIDED = connection(broker_packets=0, broker_bytes=0)


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


ATTEMPT = SILENT | {
    "broker_port": 9092, "handshake_rtt_ms": None, "closed": "rst", "client_packets": 1,
    "broker_packets": 1, "last_time": START,
}  # fmt: skip
"""A SYN that a RST answered."""
REPEATED_SYN = ATTEMPT | {"closed": None, "client_packets": 4, "broker_packets": 0}


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


COLUMNS = (
    "opened", "handshake_rtt_ms", "closed", "last_time", "client_packets", "broker_packets",
    "client_bytes",
)  # fmt: skip
ATTEMPTS = [
    dict(zip(COLUMNS, values, strict=True))
    for values in itertools.product(
        (True, False), (None, 0.5), (None, "fin", "rst"), (START + SECOND // 2, START + SECOND),
        range(4), range(4), (0, 9),
    )
]  # fmt: skip
CONNECTIONS = st.builds(
    lambda attempt, **columns: SILENT | attempt | columns,
    st.sampled_from(ATTEMPTS),
    protocol=st.sampled_from(["unknown", "unknown", "kafka", "tls"]),
    broker_port=st.sampled_from([9092, 9093]),
    first_time=st.sampled_from([START, START - SECOND]),
)


@example([SILENT | each | {"broker_port": port} for port, each in enumerate(ATTEMPTS)])
@settings(max_examples=8, deadline=None)
@given(st.lists(CONNECTIONS, max_size=4))
def test_diagnose_finds_the_same_failed_connections(rows: Rows) -> None:
    failed = row_dicts(ANSWERS["network"].arrow(made(connections=rows), show="failures"))
    expected: dict[int, list[int]] = {}
    for row in failed:
        if row["failure"] in (REFUSED, NO_REPLY):
            counts = expected.setdefault(int(row["broker"].rpartition(":")[2]), [0, 0])
            counts[row["failure"] == NO_REPLY] = row["connections"]
    counted = summed(connections=rows).failed_connections()
    assert {r["broker_port"]: [r["refused"], r["without_reply"]] for r in counted} == expected


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


def test_secrets_without_the_package_for_decryption_need_no_key_log() -> None:
    need = "pip install 'kafka-dissector[tls]'"
    problem = {"stage": "tls", "kind": "tls_unsupported", "detail": UNUSED_SECRETS, "count": 1}
    text = shown(summed(connections=[TLS], problems=[problem]))
    hint = next(line for line in text.splitlines() if "encrypted with TLS" in line)
    assert need in hint
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


@pytest.mark.parametrize(("name", "api"), NORMAL_IN_API)
def test_an_error_with_a_fallback_is_normal_only_in_its_api(name: str, api: str) -> None:
    errors = [error(error=name, api=each) for each in (api, "Fetch")]
    summary = summed(errors=errors)
    assert [row["api"] for row in summary.normal_errors()] == [api]
    assert [row["api"] for row in summary.unexpected_errors()] == ["Fetch"]
    assert are_normal(pa.Table.from_pylist(errors)).to_pylist() == [True, False]


@pytest.mark.parametrize(
    ("name", "apis", "topics"),
    [
        ("TOPIC_ALREADY_EXISTS", ("CreateTopics", "CreatePartitions"), ("__consumer_offsets", "t")),
        ("STALE_CONTROLLER_EPOCH", ("LeaderAndIsr", "UpdateMetadata"), ("orders",)),
    ],
    ids=["a topic that several brokers create", "a leader that the broker knows already"],
)
def test_an_error_is_normal_only_for_the_first_api_and_topic(
    name: str, apis: tuple[str, ...], topics: tuple[str, ...]
) -> None:
    rows = [error(error=name, api=api, topic=topic) for api in apis for topic in (*topics, None)]
    expected = [True, *[False] * (len(rows) - 1)]
    assert are_normal(pa.Table.from_pylist(rows)).to_pylist() == expected
    answer = analysis.errors(made(exchanges=[exchange()], errors=rows), by=("api", "topic"))
    normal = answer[answer["normal"] > 0]
    assert ([*normal["api"]], [*normal["topic"]]) == ([apis[0]], [topics[0]])


def test_sql_and_arrow_agree_on_normal_errors() -> None:
    pairs = (*NORMAL_IN_API, *NORMAL_FOR_TOPICS)
    names = [*NORMAL_ERRORS, *(name for name, _ in pairs), "UNKNOWN_SERVER_ERROR", None]
    apis = [*(api for _, api in pairs), "Fetch", None]
    topics = ["__consumer_offsets", "orders", None]
    rows = [
        error(error=name, api=api, topic=topic, error_code=-1, correlation_id=number)
        for number, (name, api, topic) in enumerate(itertools.product(names, apis, topics))
    ]
    by_number = analysis.errors(made(errors=rows), by="correlation_id").set_index("correlation_id")
    in_arrow = are_normal(pa.Table.from_pylist(rows)).to_pylist()
    assert [bool(by_number["normal"][number]) for number in range(len(rows))] == in_arrow
    assert 0 < sum(in_arrow) < len(rows)


def test_the_documentation_lists_the_normal_errors_with_their_reasons() -> None:
    page = (Path(__file__).parents[3] / "docs" / "answers" / "errors.md").read_text()
    for name in NORMAL_ERRORS:
        assert re.search(rf"^ +{name} +[a-z]", page, re.MULTILINE)
    assert {*NORMAL_ERRORS} <= {each.name for each in registry.error_codes().values()}


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


@pytest.mark.parametrize(
    "name",
    [
        "kafka-4-group-eager", "kafka-4-group-consumer", "kafka-4-group-share",
        "kafka-4-group-streams", "kafka-4-quotas", "librdkafka-mock-errors",
    ],
)  # fmt: skip
def test_counts_are_those_of_the_answers(name: str) -> None:
    summary = recorded(name)
    tables = capture(name, Summary.TABLES)

    def total(rows: Sequence[dict[str, Any]], column: str = "count") -> int:
        return sum(row[column] for row in rows)

    assert total(summary.errors()) == analysis.errors(tables)["count"].sum()
    assert (
        total(summary.never_answered()) + summary.in_flight
        == analysis.unanswered(tables)["requests"].sum()
    )
    assert total(summary.throttled()) == analysis.throttle(tables)["responses"].sum()
    assert total(summary.throttled(), "total") == analysis.throttle(tables)["total_ms"].sum()
    spans = analysis.groups(tables).dropna(subset=["generation"])["group_id"].value_counts()
    rebalances = {row["group_id"]: row["count"] for row in summary.rebalances()}
    assert rebalances == spans[spans > 1].to_dict()


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


def test_problems_count_the_packets_they_stand_for() -> None:
    rows = [
        {"stage": "packets", "kind": "unknown_link", "detail": "30 packets are", "count": count}
        for count in (30, 12, None)
    ]
    (problem,) = summed(problems=rows).problems()
    assert problem["count"] == 43


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
