"""A sample of `python -m tests.analysis.same_rows`."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the dependency group spark is not installed")

from tests.analysis import same_rows


@pytest.mark.sampled(2)
@pytest.mark.parametrize("layout", same_rows.LAYOUTS[:-1])  # the last one has a hundred runs
@pytest.mark.parametrize("engine", ["jobs-2", "jobs-5"])
def test_a_recording(engine: str, layout: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--engine", engine, "--layout", layout, "kafka-4-kafkajs.pcap.zst"]
    assert same_rows.main(words) == 0
    assert f"{engine} {layout}: 1 recordings, 1 in several runs" in capsys.readouterr().out
