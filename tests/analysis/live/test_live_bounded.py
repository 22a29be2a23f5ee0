"""The bounded summary agrees with the exact one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from analysis.live.bounded_summary import OTHER, LatencyHistogram, LimitedNames
from analysis.live.watchers import SummaryWatcher
from analysis.summary.counts import Summary
from dissector.capture import open_capture
from tests.captures.recorded import CAPTURES


@pytest.mark.parametrize(
    "name",
    ["kafka-4-quotas.pcap.zst", "kafka-3-kafka-python.pcap.zst", "kafka-4-handshakes.pcap.zst"],
)
def test_bounded_and_exact_summaries_agree(name: str) -> None:
    exact, watcher = Summary(), SummaryWatcher()
    for table, rows in open_capture([CAPTURES / name], hold=False).stream(Summary.TABLES):
        exact.read([(table, rows)])
        watcher.read(table, rows)
    watcher.close()
    bounded = watcher.summary

    def results(summary: Summary) -> list[Any]:
        methods = ("clients", "errors", "throttled", "never_answered", "rebalances", "problems")
        methods += ("failed_connections", "failed_handshakes")
        numbers = [summary.totals(), summary.statuses(), summary.in_flight]
        return [*numbers, *(getattr(summary, method)() for method in methods)]

    assert results(bounded) == results(exact)
    for expected, actual in zip(exact.apis(), bounded.apis(), strict=True):
        assert (expected.api, expected.count, expected.errors) == (
            actual.api,
            actual.count,
            actual.errors,
        )
        assert expected.max_ms == actual.max_ms


def test_quantiles_are_accurate_to_2_percent() -> None:
    latencies = LatencyHistogram()
    values = np.random.default_rng(1).lognormal(1, 2, 10_001)
    for part in np.array_split(values, 7):
        latencies.add(np.full(len(part), 3, np.uint32), part)
        latencies.add(np.full(1, 4, np.uint32), np.array([5.0]))
    quantiles = latencies.quantiles()
    expected = [*np.quantile(values, (0.5, 0.99)), values.max()]
    assert quantiles[3] == pytest.approx(expected, rel=0.02)
    assert quantiles[4] == pytest.approx([5.0, 5.0, 5.0], rel=0.02)
    assert len(latencies._keys) < 1200  # 35 bins per octave


def test_names_beyond_the_limit_are_other() -> None:
    names = LimitedNames(2)
    assert names.bounded(pa.array(["a", None, "a"])).to_pylist() == ["a", None, "a"]
    assert names.bounded(pa.array(["b", "c", None])).to_pylist() == ["b", OTHER, None]
    assert names.bounded(pa.array(["c", "a", "b"])).to_pylist() == [OTHER, "a", "b"]
