"""The bounded summary says what the exact one says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from analysis.live.bounded import OTHER, BoundedSummary, Latencies, Names
from analysis.summary import Summary
from dissector.capture import open_capture

CAPTURES = Path(__file__).parents[3] / "captures"


@pytest.mark.parametrize("name", ["kafka-4-quotas.pcap.zst", "kafka-3-kafka-python.pcap.zst"])
def test_it_agrees_with_the_exact_one(name: str) -> None:
    exact, bounded = Summary(), BoundedSummary()
    for summary in (exact, bounded):
        summary.read(open_capture([CAPTURES / name], hold=False).stream(Summary.TABLES))

    def told(summary: Summary) -> list[Any]:
        methods = ("clients", "errors", "throttled", "unanswered", "rebalances", "problems")
        return [summary.totals(), summary.statuses(), *(getattr(summary, m)() for m in methods)]

    assert told(bounded) == told(exact)
    for one, other in zip(exact.apis(), bounded.apis(), strict=True):
        assert (one.api, one.count, one.errors) == (other.api, other.count, other.errors)
        assert one.max_ms == other.max_ms


def test_quantiles_are_near() -> None:
    latencies = Latencies()
    values = np.random.default_rng(1).lognormal(1, 2, 10_001)
    for part in np.array_split(values, 7):
        latencies.add(np.full(len(part), 3, np.uint32), part)
        latencies.add(np.full(1, 4, np.uint32), np.array([5.0]))
    found = latencies.quantiles()
    expected = [*np.quantile(values, (0.5, 0.99)), values.max()]
    assert found[3] == pytest.approx(expected, rel=0.02)
    assert found[4] == pytest.approx([5.0, 5.0, 5.0], rel=0.02)
    assert len(latencies._keys) < 1200  # 35 bins an octave


def test_names_beyond_the_limit_are_other() -> None:
    names = Names(2)
    assert names.bounded(pa.array(["a", None, "a"])).to_pylist() == ["a", None, "a"]
    assert names.bounded(pa.array(["b", "c", None])).to_pylist() == ["b", OTHER, None]
    assert names.bounded(pa.array(["c", "a", "b"])).to_pylist() == [OTHER, "a", "b"]
