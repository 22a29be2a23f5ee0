"""A real cluster: a master, two workers, a driver, all of them processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="requirements-spark.txt is not installed")

from dealing import CAPTURES, SOME_TABLES, deal, on_one_machine, same_rows

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
    on_one_machine(paths, SOME_TABLES, tmp_path / "expected")
    for name in SOME_TABLES:
        same_rows(tmp_path / "tables" / name, tmp_path / "expected" / name)
