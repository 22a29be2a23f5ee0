"""Counts of a summary agree with the rows and with the answers."""

from __future__ import annotations

import itertools
import re
import tracemalloc
from collections import Counter
from collections.abc import Sequence
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
from analysis.kafka.normal import NORMAL_ERRORS, NORMAL_FOR_TOPICS, NORMAL_IN_API, are_normal
from analysis.sql.failures import NO_REPLY, REFUSED
from analysis.sql.query import row_dicts
from analysis.summary.counts import Summary
from dissector.protocol import registry
from tests.analysis.answering import capture, made, path_of
from tests.analysis.made_rows import SECOND, START, connection, error, exchange
from tests.analysis.summary.summing import SILENT, Rows, batches, recorded, summed

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


def test_problems_count_the_packets_they_stand_for() -> None:
    rows = [
        {"stage": "packets", "kind": "unknown_link", "detail": "30 packets are", "count": count}
        for count in (30, 12, None)
    ]
    (problem,) = summed(problems=rows).problems()
    assert problem["count"] == 43


def test_quantiles_take_the_memory_of_the_latencies_of_one_api() -> None:
    kinds, count = 10, 200_000
    (rows,) = batches(1000, exchanges=[exchange(api_key=n % kinds) for n in range(1000)])
    summary = Summary()
    summary.read([rows] * (count // 1000))
    tracemalloc.start()
    try:
        assert [use.count for use in summary.apis()] == [count // kinds] * kinds
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * count / 2
