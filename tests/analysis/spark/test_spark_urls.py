"""Captures behind URLs: a local web server that supports range requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread

import pytest

pytest.importorskip("pyspark", reason="the dependency group spark is not installed")
pytest.importorskip("aiohttp", reason="the dependency group spark is not installed")

from pyspark.sql import SparkSession

from analysis.spark import plan
from analysis.spark.options import Request
from analysis.spark.output import Output
from dissector.runs import planning
from tests.analysis.spark.sharding import (
    CAPTURES,
    QUORUM,
    assert_same_rows,
    split_capture,
    write_with_one_process,
    write_with_spark,
)

TABLES = ("exchanges", "connections")
LOOPBACK = "127.0.0.1"


class Ranges(SimpleHTTPRequestHandler):
    """Serves ranges of files (RFC 9110, section 14)."""

    def do_GET(self) -> None:
        byte_range = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        path = Path(self.translate_path(self.path))
        if byte_range is None or not path.is_file():
            super().do_GET()
            return
        data = path.read_bytes()
        first, last = int(byte_range[1]), min(int(byte_range[2]), len(data) - 1)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        self.copyfile(BytesIO(data[first : last + 1]), self.wfile)

    def log_message(self, format: str, *values: object) -> None:
        """Log nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    handler = partial(Ranges, directory=str(tmp_path))
    with ThreadingHTTPServer((LOOPBACK, 0), handler) as running:
        Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://{LOOPBACK}:{running.server_address[1]}"
        running.shutdown()


def test_urls_have_the_same_rows(
    spark: SparkSession, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [Path(path).name for path in split_capture(QUORUM, tmp_path, 2)]
    (tmp_path / "packed.zst").write_bytes((CAPTURES / "kafka-4-sasl.pcap.zst").read_bytes())
    names.append("packed.zst")
    write_with_one_process([str(tmp_path / name) for name in names], TABLES, tmp_path / "one")
    urls = [f"{server}/{name}" for name in names]
    monkeypatch.setattr(planning, "LEAST_RUN", 1)
    request = Request(urls, TABLES, run_bytes=100_000)
    with Output(str(tmp_path / "spark"), request).opened() as output:
        job_plan = plan.planned(request, plan.opened(request), output, 2)
        assert len(job_plan.task.plan.runs) > 1
    write_with_spark(spark, request, tmp_path / "spark")
    assert_same_rows(tmp_path / "spark" / "connections", tmp_path / "one" / "connections")
    assert_same_rows(
        tmp_path / "spark" / "exchanges", tmp_path / "one" / "exchanges", without="capture"
    )


def test_a_folder_by_its_url(tmp_path: Path) -> None:
    paths = split_capture(QUORUM, tmp_path, 3)
    assert plan.inputs([tmp_path.as_uri()])[0] == [f"file://{path}" for path in paths]
