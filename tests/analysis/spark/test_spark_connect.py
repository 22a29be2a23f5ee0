"""Spark Connect: the driver is a server in another process, on the same machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

pytest.importorskip("pyspark", reason="the dependency group spark is not installed")
pytest.importorskip("grpc_status", reason="the packages of pyspark[connect] are not installed")

import analysis
from analysis.spark.plan_server import PlanClient
from dissector.capture import open_capture
from dissector.errors import DissectorError
from tests.analysis.spark.sharding import QUORUM, split_capture, texts
from tests.analysis.spark.test_spark_stream import OLD, set_times, without_names
from tests.analysis.spark.test_spark_stream import rows_of_one_process as rows_of

CLIENT = "tests.analysis.spark.connect_client"


def test_batch_answer_and_stream_equal_one_process(java: None, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    parts = split_capture(QUORUM, folder, 2)
    set_times(folder, OLD)
    command = [sys.executable, "-m", CLIENT, str(tmp_path), *parts]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        try:
            answer, _ = client.communicate(timeout=600)
        finally:
            client.kill()
    assert client.returncode == 0
    expected = rows_of(parts, "exchanges")
    assert len(expected) > 100
    for name in ("batch", "stream"):
        rows = pyarrow.parquet.read_table(tmp_path / f"{name}.parquet")
        assert texts(without_names(rows)) == expected
    tables = open_capture(parts).tables(["exchanges", "batches", "connections"])
    assert int(answer) == len(analysis.latency(tables, by=("api",)))


def test_a_server_on_another_machine_is_named() -> None:
    """It cannot reach the process that registered the format."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    client = PlanClient(address, os.urandom(8))
    with pytest.raises(DissectorError, match="runs on another machine than"):
        client.request(lambda *_: "", {})
