"""A real cluster: a master, two workers, a driver, all of them processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="requirements-spark.txt is not installed")

import pyarrow.parquet as pq
from dealing import CAPTURES, TABLES, deal, on_one_machine, texts

from bench.cluster import ENVIRONMENT, cluster, kill

DRIVER = Path(__file__).with_name("cluster_driver.py")


def test_a_worker_that_is_killed_in_mid_job_takes_nothing_with_it(
    java: None, tmp_path: Path
) -> None:
    paths = deal(CAPTURES / "kafka-4-quorum.pcap.zst", tmp_path, 6, shuffled=True)
    with cluster(tmp_path) as running:
        driver = subprocess.Popen(
            [sys.executable, DRIVER, running.master, tmp_path / "tables", *paths],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT,
        )  # fmt: skip
        assert driver.stdout is not None
        try:
            assert driver.stdout.readline() == "dissected\n"
            kill(running.workers[0])  # with what it keeps of packets and of rows
            driver.communicate("go on\n", timeout=300)
        finally:
            driver.kill()
    assert driver.returncode == 0
    found = {name: pq.read_table(tmp_path / "tables" / name).to_batches() for name in TABLES}
    expected = on_one_machine(paths)
    for name in TABLES:
        assert texts(found[name]) == expected[name]
