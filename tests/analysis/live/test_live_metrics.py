"""The metrics page, parsed by prometheus_client."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from analysis.live.metrics import Metrics, serve
from analysis.live.series import OTHER, PREFIX
from dissector.capture import open_capture
from dissector.errors import DissectorError
from dissector.tables import TABLES
from tests.analysis.commands import COMMAND
from tools.record.kafka.truth import read

ROOT = Path(__file__).parents[3]
DASHBOARD = ROOT / "docs" / "grafana.json"
RULES = ROOT / "deploy" / "prometheus" / "kafka-dissector.rules.yml"
SOURCE: Any = SimpleNamespace(dropped=lambda: {"eth0": 5})
PIPELINE: Any = SimpleNamespace(in_flight=3, open_connections=2, packets=70)
Sample = tuple[str, frozenset[tuple[str, str]]]


def rows(table: str, *given: dict[str, Any]) -> pa.RecordBatch:
    schema = TABLES[table].schema
    return pa.RecordBatch.from_pylist([dict.fromkeys(schema.names) | row for row in given], schema)


def exchange(**columns: Any) -> dict[str, Any]:
    return {
        "api": "Fetch", "client_id": "app", "broker_ip": "10.0.0.9", "broker_port": 9092,
        "status": "answered", "request_bytes": 30, "response_bytes": 70, "latency_ms": 4.0,
    } | columns  # fmt: skip


def page(metrics: Metrics) -> str:
    """The text of the page."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    return generate_latest(registry).decode()


def served(metrics: Metrics) -> str:
    """The text of the served page. The end of the server takes half a second."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    end = serve(metrics, "127.0.0.1", port)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
            text: str = response.read().decode()
    finally:
        end()
    return text


def scraped(metrics: Metrics) -> dict[Sample, float]:
    return {
        (sample.name.removeprefix(PREFIX), frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page(metrics))
        for sample in family.samples
    }


def value(samples: dict[Sample, float], name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def test_the_page_is_served() -> None:
    metrics = Metrics(SOURCE, PIPELINE, 100)
    metrics.read("exchanges", rows("exchanges", exchange()))
    assert f"{PREFIX}requests_total{{" in served(metrics) == page(metrics)


def test_the_page_has_the_totals() -> None:
    metrics = Metrics(SOURCE, PIPELINE, 100)
    metrics.read("exchanges", rows("exchanges", exchange(), exchange(latency_ms=40.0)))
    metrics.read(
        "exchanges",
        rows(
            "exchanges",
            exchange(throttle_time_ms=1500),
            exchange(api="Produce", client_id='a "b"\n\\', status="unanswered"),
            exchange(api=None, client_id=None, status="request_missing", latency_ms=None),
        ),
    )
    error = {"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "client_id": "app"}
    metrics.read("errors", rows("errors", error, error))
    metrics.read("problems", rows("problems", {"stage": "streams", "kind": "lost_bytes"}))
    samples = scraped(metrics)
    fetch = {"api": "Fetch", "client_id": "app", "broker": "10.0.0.9:9092"}
    odd = {"api": "Produce", "client_id": 'a "b"\n\\', "broker": "10.0.0.9:9092"}
    assert value(samples, "requests_total", **fetch) == 3
    assert value(samples, "requests_total", **odd) == 1
    assert value(samples, "request_bytes_total", **fetch) == 90
    assert value(samples, "response_bytes_total", **fetch) == 210
    assert value(samples, "throttle_seconds_total", **fetch) == 1.5
    ended = {"api": "unknown", "status": "request_missing", "broker": "10.0.0.9:9092"}
    assert value(samples, "exchanges_total", **ended) == 1
    assert value(samples, "errors_total", **error) == 2
    assert value(samples, "problems_total", stage="streams", kind="lost_bytes") == 1
    histogram = {"api": "Fetch", "broker": "10.0.0.9:9092"}
    for le, count in (("0.0025", 0), ("0.005", 2), ("0.025", 2), ("0.05", 3), ("+Inf", 3)):
        assert value(samples, "request_latency_seconds_bucket", le=le, **histogram) == count
    assert value(samples, "request_latency_seconds_sum", **histogram) == pytest.approx(0.048)
    assert value(samples, "requests_in_flight") == 3
    assert value(samples, "open_connections") == 2
    assert value(samples, "captured_packets_total") == 70
    assert value(samples, "dropped_packets_total", interface="eth0") == 5


def test_a_rebalance_is_a_new_generation() -> None:
    metrics = Metrics(SOURCE, PIPELINE, 100)

    def membership(generation: int, group: str = "g") -> dict[str, Any]:
        return {"group_id": group, "group_type": "classic", "generation": generation}

    for generations in ((4, 4), (4, 5), (5,), (6,)):
        metrics.read("memberships", rows("memberships", *map(membership, generations)))
    metrics.read("memberships", rows("memberships", membership(1, "quiet")))
    samples = scraped(metrics)
    assert value(samples, "group_rebalances_total", group_type="classic", group_id="g") == 2
    assert not any(("group_id", "quiet") in labels for _, labels in samples)


def test_labels_are_bounded() -> None:
    metrics = Metrics(SOURCE, PIPELINE, 10)
    for number in range(50):
        metrics.read("exchanges", rows("exchanges", exchange(client_id=f"client-{number}")))
    samples = scraped(metrics)
    requests = {
        labels: count for (name, labels), count in samples.items() if name == "requests_total"
    }
    assert sum(requests.values()) == 50
    assert len(requests) == 11
    overflow = frozenset({("api", "Fetch"), ("client_id", OTHER), ("broker", OTHER)})
    assert requests[overflow] == 40


def test_an_address_in_use_is_reported() -> None:
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        port = used.getsockname()[1]
        with pytest.raises(DissectorError, match=f"127.0.0.1:{port}: cannot listen on"):
            serve(Metrics(SOURCE, PIPELINE, 10), "127.0.0.1", port)


def test_the_lag_is_what_an_administrator_sees() -> None:
    metrics, path = Metrics(SOURCE, PIPELINE, 100), ROOT / "captures" / "kafka-4-followed.pcap.zst"
    for name, batch in open_capture(path).stream(["partitions"]):
        metrics.read(name, batch)
    samples = scraped(metrics)
    facts = read("kafka-4-followed")
    lags = [fact for fact in facts if fact.get("event") == "lag"]
    for group in ("workers", "modern"):
        expected = sum(f["end"] - f["committed"] for f in lags if f["group_id"] == group)
        assert value(samples, "group_lag_records", group_id=group, topic="work") == expected
    produced = sum(fact.get("event") == "produced" for fact in facts)
    records = {labels: n for (name, labels), n in samples.items() if name == "topic_records_total"}
    assert sum(n for labels, n in records.items() if ("action", "produces") in labels) == produced


@pytest.mark.parametrize(
    ("end", "lag"),
    [({"api": "EndTxn", "committed": True}, 5), ({"api": "EndTxn", "committed": False}, None),
     ({"api": "InitProducerId"}, None),
     ({"api": "EndTxn", "committed": True, "error_code": 47}, None)],
    ids=["commit", "abort", "start", "error"],
)  # fmt: skip
def test_offsets_of_a_transaction_count_when_it_is_committed(
    end: dict[str, Any], lag: int | None
) -> None:
    metrics = Metrics(SOURCE, PIPELINE, 100)
    sent = {"connection_id": 3, "correlation_id": 8, "time": 10, "error_code": 0}
    sent |= {"api": "TxnOffsetCommit", "group_id": "g"}
    place = {"topic": "t", "partition": 0}
    fetched = place | {"api": "Fetch", "high_watermark": 9, "error_code": 0, "client_id": "c"}
    metrics.read("partitions", rows("partitions", sent | place | {"offset": 4}, fetched))
    later = {"connection_id": 3, "correlation_id": 9, "time": 20, "response_time": 21}
    of_producer = [sent | {"response_time": 11}, {"error_code": 0} | later | end]
    transactions = [each | {"transactional_id": "p"} for each in of_producer]
    metrics.read("transactions", rows("transactions", *transactions))
    lags = [n for (name, _), n in scraped(metrics).items() if name == "group_lag_records"]
    assert lags == ([] if lag is None else [lag])


def test_a_session_with_transactions() -> None:
    """In a process of its own, where PyArrow has no pandas for times in nanoseconds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    capture = str(ROOT / "captures" / "kafka-4-transactions.pcap.zst")
    command = [*COMMAND, "sniff", capture, "--view", "none", "--metrics", str(port)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stderr) == (0, f"capturing from {capture}; Ctrl-C ends\n")


def test_topics_and_lags_are_bounded() -> None:
    metrics = Metrics(SOURCE, PIPELINE, 2)
    given = {"partition": 0, "offset": 4, "high_watermark": 9, "error_code": 0, "bytes": 10}
    for number in range(30):
        for api in ("Fetch", "OffsetCommit"):
            row = given | {"api": api, "topic": f"t{number}", "group_id": "g", "client_id": "c"}
            metrics.read("partitions", rows("partitions", row))
    samples = scraped(metrics)
    lags = {labels: lag for (name, labels), lag in samples.items() if name == "group_lag_records"}
    assert sorted(lags.values()) == [5, 5, 18 * 5]
    overflow = {"action": "consumes", "topic": OTHER, "client_id": OTHER}
    assert value(samples, "topic_bytes_total", **overflow) == 28 * 10


def names_in(text: str) -> set[str]:
    """The metrics that PromQL names."""
    names = re.findall(rf"{PREFIX}\w+", text)
    return {re.sub("_(total|bucket|sum|count)$", "", name) for name in names}


def test_dashboard_and_alerts_use_metrics_of_the_page() -> None:
    text = page(Metrics(SOURCE, PIPELINE, 10))
    families = {family.name for family in text_string_to_metric_families(text)}
    dashboard = json.loads(DASHBOARD.read_text())
    variables = {f"${each['name']}" for each in dashboard["templating"]["list"]}
    assert {"$cluster", "$client", "$topic"} <= variables
    targets = [each["expr"] for panel in dashboard["panels"] for each in panel["targets"]]
    assert set(re.findall(r"\$[a-z]+", " ".join(targets))) <= variables
    for text in (*targets, RULES.read_text()):
        assert names_in(text) <= families
    assert names_in(" ".join(targets)) == families
