"""A metrics page for Prometheus.

Counters only increase; Prometheus computes rates and quantiles. Names follow its conventions: base
units (seconds, bytes), and the suffix ``_total`` for counters.

A metric has at most `max_series` combinations of labels; see `analysis.live.series`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from analysis.live.series import PREFIX, Series, label_values
from analysis.live.session import Watcher
from analysis.live.topic_metrics import TopicMetrics, counter
from analysis.names.addresses import broker_endpoints
from analysis.summary.tally import Tally, ones, with_columns, with_count
from dissector.errors import DissectorError
from dissector.packets.live import LiveSource
from dissector.pipeline import Pipeline

SECONDS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Upper bounds of the latency buckets."""
_COUNTERS: Final = {
    "exchanges": ("Exchanges by status.", ("api", "status", "broker")),
    "errors": ("Error codes in responses.", ("api", "error", "client_id")),
    "group_rebalances": ("New generations of groups.", ("group_type", "group_id")),
    "problems": ("Rows of the table problems.", ("stage", "kind")),
}
"""By name: the text and the labels of a counter."""


class Metrics(Collector, Watcher):
    """Counts the rows of a session. `collect` may be called from any thread."""

    def __init__(self, source: LiveSource, capture: Pipeline, max_series: int) -> None:
        """`source`, `capture`: have the current values when the page is requested."""
        self._source = source
        self._capture = capture
        self._lock = threading.Lock()
        self._requests = Series(max_series, width=4)  # requests, bytes out, bytes in, throttle
        self._counts = {name: Series(max_series) for name in _COUNTERS}
        self._latencies = Series(max_series, width=len(SECONDS) + 2)  # buckets, and the sum
        self._topics = TopicMetrics(max_series)
        self._generations: dict[str, int] = {}
        self._most_groups = max_series
        self._readers: dict[str, Callable[[pa.Table], None]] = {
            "exchanges": self._read_exchanges,
            "errors": partial(self._count, "errors"),
            "memberships": self._read_memberships,
            "partitions": self._topics.read,
            "problems": partial(self._count, "problems"),
            "transactions": self._topics.read_transactions,
        }
        self.tables = frozenset(self._readers)

    def read(self, name: str, rows: pa.RecordBatch) -> None:
        with self._lock:
            self._readers[name](pa.table(rows))

    def _read_exchanges(self, rows: pa.Table) -> None:
        rows = with_columns(with_count(rows), broker=broker_endpoints(rows))
        tally = Tally(
            ("api", "client_id", "broker"), count="sum", request_bytes="sum", response_bytes="sum",
            throttle_time_ms="sum",
        )  # fmt: skip
        tally.add(rows.filter(pc.not_equal(rows["status"], "request_missing")))
        names = ("request_bytes", "response_bytes", "throttle_time_ms")
        for row in tally.rows():
            values = [row["count"], *(row[name] or 0 for name in names)]
            self._requests.add(label_values(row["api"], row["client_id"], row["broker"]), values)
        self._count("exchanges", rows)
        self._read_latencies(rows.filter(rows["latency_ms"].is_valid()))

    def _count(self, name: str, rows: pa.Table) -> None:
        """Count rows by the labels of a counter."""
        _, labels = _COUNTERS[name]
        tally = Tally(labels, count="sum")
        tally.add(with_columns(rows, count=ones(len(rows))))
        for row in tally.rows():
            self._counts[name].add(label_values(*(row[label] for label in labels)), row["count"])

    def _read_latencies(self, rows: pa.Table) -> None:
        seconds = rows["latency_ms"].to_numpy() / 1000
        bucket = np.searchsorted(SECONDS, seconds)
        tally = Tally(("api", "broker", "bucket"), count="sum", seconds="sum")
        tally.add(with_columns(rows, bucket=pa.array(bucket), seconds=pa.array(seconds)))
        for row in tally.rows():
            sums = np.zeros(len(SECONDS) + 2)
            sums[[row["bucket"], -1]] = row["count"], row["seconds"]
            self._latencies.add(label_values(row["api"], row["broker"]), sums)

    def _read_memberships(self, rows: pa.Table) -> None:
        """A group has rebalanced when a response contains a higher generation."""
        rows = rows.filter(pc.and_(rows["generation"].is_valid(), rows["group_id"].is_valid()))
        grouped = rows.group_by(["group_id", "group_type"], use_threads=False)
        for row in grouped.aggregate([("generation", "max")]).to_pylist():
            group, generation = row["group_id"], row["generation_max"]
            known = self._generations.get(group)
            if known is not None and generation > known:
                key = label_values(row["group_type"], group)
                self._counts["group_rebalances"].add(key, generation - known)
            if known is not None or len(self._generations) < self._most_groups:
                self._generations[group] = max(generation, known or 0)

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            yield from self._families()

    def _families(self) -> Iterator[Metric]:
        for index, (name, text, scale) in enumerate(_REQUEST_COUNTERS):
            labels: tuple[str, ...] = ("api", "client_id", "broker")
            yield counter(name, text, labels, self._requests, index, scale)
        for name, (text, labels) in _COUNTERS.items():
            yield counter(name, text, labels, self._counts[name])
        latency = HistogramMetricFamily(
            f"{PREFIX}request_latency_seconds",
            "From the end of a request to the start of its response.",
            labels=("api", "broker"),
        )
        for key, values in self._latencies.values.items():
            bounds = [*map(str, SECONDS), "+Inf"]
            counts = np.cumsum(values[:-1]).tolist()
            latency.add_metric(key, list(zip(bounds, counts, strict=True)), float(values[-1]))
        yield latency
        yield from self._topics.families()
        capture = self._capture
        yield GaugeMetricFamily(
            f"{PREFIX}requests_in_flight", "Requests without a response so far.", capture.in_flight
        )
        yield GaugeMetricFamily(
            f"{PREFIX}open_connections", "Open TCP connections.", capture.open_connections
        )
        yield CounterMetricFamily(f"{PREFIX}captured_packets", "Captured packets.", capture.packets)
        dropped = CounterMetricFamily(
            f"{PREFIX}dropped_packets",
            "Packets that did not fit in the kernel's buffer.",
            labels=("interface",),
        )
        for interface, count in self._source.dropped().items():
            dropped.add_metric((interface,), count)
        yield dropped


_REQUEST_COUNTERS: Final = (
    ("requests", "Requests.", 1),
    ("request_bytes", "Bytes of requests.", 1),
    ("response_bytes", "Bytes of responses.", 1),
    ("throttle_seconds", "Throttle time in responses, because of quotas.", 1000),
)


def serve(metrics: Metrics, host: str, port: int) -> Callable[[], None]:
    """Serve the page at ``http://host:port/metrics``; returns the function that stops it.

    Raises DissectorError if the address cannot be used.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    try:
        server, _ = start_http_server(port, host, registry)
    except (OSError, UnicodeError) as error:  # UnicodeError: the host is not a name
        reason = error.strerror if isinstance(error, OSError) else "not an address"
        raise DissectorError(
            f"--metrics {host}:{port}: cannot listen on this address: {reason}"
        ) from error
    return server.shutdown
