"""The dtypes of DataFrames do not depend on their values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import analysis
import dissector
from dissector.tables import TABLES
from tests.analysis.made_rows import START, Make, connection, exchange
from tests.captures.recorded import CAPTURES

CAPTURE = CAPTURES / "kafka-4-librdkafka.pcap.zst"


def test_dtypes_do_not_depend_on_the_rows(made: Make) -> None:
    made(exchanges=[exchange(acks=-1, topics=["a", "b"])], connections=[connection()])
    full = analysis.load("x.pcap")
    made()
    empty = analysis.load("x.pcap")
    made(exchanges=[exchange(connection_id=None)], connections=[connection(opened=None)])
    nulls = analysis.load("x.pcap")
    assert full.keys() == empty.keys() == nulls.keys()
    for name in full:
        assert full[name].dtypes.equals(empty[name].dtypes)
        assert full[name].dtypes.equals(nulls[name].dtypes)


def test_values_are_what_a_user_of_pandas_expects(made: Make) -> None:
    made(exchanges=[exchange(topics=["a", "b"], in_flight=None), exchange(latency_ms=None)])
    frame = analysis.load("x.pcap", "exchanges")["exchanges"]
    assert frame["request_time"].dtype == "datetime64[ns, UTC]"
    assert frame["request_time"][0].value == START
    assert frame["connection_id"].dtype == "Int64"
    assert frame["api_version"].dtype == "Int16"
    assert frame["in_flight"].isna().tolist() == [True, False]
    assert frame["latency_ms"].dtype == np.float64
    assert frame["latency_ms"].isna().tolist() == [False, True]
    assert frame["client_id"].dtype == pd.Series(["text"]).dtype
    assert list(frame["topics"][0]) == ["a", "b"]
    assert frame["topics"][1] is None
    assert frame.groupby("api")["latency_ms"].quantile(0.5)["Metadata"] == 2


def test_a_capture_loads_whole() -> None:
    tables = analysis.load(CAPTURE)
    assert TABLES.keys() - tables.keys() == {
        "records", "partitions", "memberships", "transactions", "decompressed_batches",
        "brokers", "clusters",
    }  # fmt: skip
    assert len(tables["exchanges"]) > 50
    assert "answered" in set(tables["exchanges"]["status"])
    only = analysis.load(CAPTURE, ["errors", "topics"], ports=[9092])
    assert only.keys() == {"errors", "topics"}


def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(dissector.CaptureError):
        analysis.load(tmp_path / "missing.pcap")
    with pytest.raises(dissector.DissectorError, match="nonsense"):
        analysis.load(CAPTURE, "nonsense")
