"""A real cluster: a master, two workers, a driver, all of them processes of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the dependency group spark is not installed")

from bench.cluster import ENVIRONMENT, Cluster, cluster, kill
from tests.analysis.spark.dealing import (
    CAPTURES,
    RECORDINGS,
    SOME_TABLES,
    apart,
    deal,
    every,
    made,
    on_one_machine,
    same_rows,
)

DRIVER = "tests.analysis.spark.cluster_driver"


@contextmanager
def driven(running: Cluster, output: Path, paths: Sequence[str]) -> Iterator[None]:
    """What is within happens when all is dissected, and nothing is written."""
    driver = subprocess.Popen(
        [sys.executable, "-m", DRIVER, running.master, output, *paths],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    assert driver.stdout is not None
    try:
        assert driver.stdout.readline() == "dissected\n"
        yield
        driver.communicate("go on\n", timeout=300)
    finally:
        driver.kill()
    assert driver.returncode == 0


def compare(folder: Path, paths: Sequence[str]) -> None:
    """Raises AssertionError where its tables are not those of one process."""
    on_one_machine(paths, SOME_TABLES, folder / "expected")
    for name in SOME_TABLES:
        same_rows(folder / "tables" / name, folder / "expected" / name)


def test_a_worker_that_is_killed_in_mid_job_takes_nothing_with_it(
    java: None, tmp_path: Path
) -> None:
    paths = deal(CAPTURES / "kafka-4-quorum.pcap.zst", tmp_path, 6, shuffled=True)
    with cluster(tmp_path) as running, driven(running, tmp_path / "tables", paths):
        kill(running.workers[0])  # with what it keeps of packets and of rows
    compare(tmp_path, paths)


@pytest.mark.parametrize("shuffled", [False, True], ids=["rotated", "shuffled"])
@pytest.mark.parametrize("files", [1, 2, 7, 50])
def test_every_recording(
    slow: None, java: None, tmp_path: Path, files: int, shuffled: bool
) -> None:
    with cluster(tmp_path) as running:
        for number, group in enumerate(apart(RECORDINGS)):
            folder = tmp_path / str(number)
            folder.mkdir()
            paths = every(group, folder, files, shuffled)
            with driven(running, folder / "tables", paths):
                pass
            compare(folder, paths)


@pytest.mark.parametrize("shuffled", [False, True], ids=["rotated", "shuffled"])
@pytest.mark.parametrize("files", [1, 2, 7, 50])
@pytest.mark.parametrize("kind", ["chatter", "bulk"])
def test_a_larger_one(
    slow: None, java: None, tmp_path: Path, kind: str, files: int, shuffled: bool
) -> None:
    paths = deal(made(kind, tmp_path, 100_000_000), tmp_path, files, shuffled=shuffled)
    with cluster(tmp_path) as running, driven(running, tmp_path / "tables", paths):
        pass
    compare(tmp_path, paths)
