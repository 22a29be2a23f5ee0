"""Rows are grouped by spans of time."""

from __future__ import annotations

import pandas as pd
import pytest

import analysis
from dissector.errors import DissectorError
from tests.analysis.answering import capture

TABLES = ("exchanges", "batches", "connections", "errors")


@pytest.mark.parametrize(("name", "floor"), [("minute", "60s"), ("10s", "10s"), ("250ms", "250ms")])
def test_requests_by_time_are_those_of_pandas(name: str, floor: str) -> None:
    tables = capture("kafka-4-quotas", TABLES)
    rows = analysis.latency(tables, by=(name, "api"))
    exchanges = tables["exchanges"].dropna(subset="latency_ms")  # type: ignore[index, union-attr]
    times = exchanges["request_time"].dt.floor(floor)
    expected = exchanges.groupby([times, "api"])["latency_ms"].agg(["size", "max"])
    actual = rows.set_index([name, "api"])[["count", "max_ms"]].sort_index()
    assert actual.index.tolist() == expected.index.tolist()
    assert actual["count"].tolist() == expected["size"].tolist()
    assert actual["max_ms"].tolist() == expected["max"].tolist()
    assert rows[name].is_monotonic_increasing
    assert rows[name].dtype == pd.DatetimeTZDtype("ns", "UTC")


def test_errors_by_time() -> None:
    tables = capture("kafka-4-quotas", TABLES)
    rows = analysis.errors(tables, by="minute")
    assert rows["count"].sum() == len(tables["errors"])  # type: ignore[index]
    assert (rows["first_time"].dt.floor("60s") == rows["minute"]).all()


def test_delays_by_time() -> None:
    tables = capture("kafka-4-followed", ("partitions",))
    rows = analysis.delay(tables, by=("10s", "topic", "reader"))
    whole = analysis.delay(tables, by=("topic", "reader"))
    assert len(rows) > len(whole)
    assert rows["produced"].sum() == whole["produced"].sum()
    assert (rows["first_time"].dt.floor("10s") == rows["10s"]).all()
    assert (rows["last_time"].dt.floor("10s") == rows["10s"]).all()


@pytest.mark.parametrize("name", ["0s", "5 m", "fortnight"])
def test_another_word_is_not_a_length_of_time(name: str) -> None:
    with pytest.raises(DissectorError, match=f"no column {name} to group by"):
        analysis.latency(capture("kafka-4-quotas", TABLES), by=name)
