"""A real cluster: a master, two workers and a driver, each in its own process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the dependency group spark is not installed")

from bench.cluster import ENVIRONMENT, Cluster, cluster, kill
from tests.analysis.live.sniffing import wait_for
from tests.analysis.spark.sharding import (
    CAPTURES,
    TEST_TABLES,
    assert_same_rows,
    make_capture,
    split_capture,
    write_with_one_process,
)
from tests.dissector.runs.cutting import may_mount
from tests.dissector.runs.test_runs_processes import is_group

DRIVER = "tests.analysis.spark.cluster_driver"


@contextmanager
def driver_running(
    running: Cluster, output: Path, paths: Sequence[str], unshared: Path | str = ""
) -> Iterator[list[str]]:
    """Run the body when the driver has dissected all captures but written nothing.

    Yields its output until then.
    """
    driver = subprocess.Popen(
        [sys.executable, "-m", DRIVER, running.master, output, unshared, *paths],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    assert driver.stdout is not None
    try:
        printed = [*iter(driver.stdout.readline, "dissected\n")]
        assert driver.poll() is None
        yield printed
        driver.communicate("go on\n", timeout=300)
    finally:
        driver.kill()
    assert driver.returncode == 0


def compare(folder: Path, paths: Sequence[str]) -> None:
    """Assert that the tables are those of one process."""
    write_with_one_process(paths, TEST_TABLES, folder / "expected")
    for name in TEST_TABLES:
        assert_same_rows(folder / "tables" / name, folder / "expected" / name)


def test_a_folder_that_is_not_shared_and_a_killed_worker(java: None, tmp_path: Path) -> None:
    """One worker has its own file system at the path of a folder, and is killed during the job.

    Tables in this folder are refused, as output and as results of the data source. Elsewhere, no
    row is lost with the worker.
    """
    paths = split_capture(CAPTURES / "kafka-4-quorum.pcap.zst", tmp_path, 3)
    unshared = tmp_path / "unshared"
    unshared.mkdir()
    script = f'mount -t tmpfs none "{unshared}" && exec "$@"'
    mounted = ["unshare", "--mount", "sh", "-c", script, "sh"]
    is_possible = may_mount()  # as root
    with (
        cluster(tmp_path, before=[(), mounted if is_possible else ()]) as running,
        driver_running(running, tmp_path / "tables", paths, unshared) as printed,
    ):
        kill(running.workers[1])  # with its rows
    for line in printed if is_possible else ():
        assert "is not the driver's folder: the driver and all executors need one" in line
    assert len(printed) == 2
    assert [*unshared.iterdir()] == []
    compare(tmp_path, paths)


STARTED = """
import sys
from pathlib import Path
from bench.cluster import cluster

with cluster(Path(sys.argv[1]), before=[()]) as running:
    print(running.workers[0].pid, flush=True)
    sys.stdin.readline()
"""


def test_a_cluster_ends_with_the_process_that_started_it(java: None, tmp_path: Path) -> None:
    """SIGTERM, as of `timeout`, ends Python without leaving its contexts."""
    with subprocess.Popen(
        [sys.executable, "-c", STARTED, tmp_path],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        process.terminate()
    wait_for(lambda: not is_group(worker))


@pytest.mark.parametrize("shuffled", [False, True], ids=["rotated", "shuffled"])
@pytest.mark.parametrize("files", [1, 2, 7, 50])
@pytest.mark.parametrize("kind", ["chatter", "bulk"])
def test_large_captures(
    slow: None, java: None, tmp_path: Path, kind: str, files: int, shuffled: bool
) -> None:
    paths = split_capture(make_capture(kind, tmp_path), tmp_path, files, shuffled=shuffled)
    with cluster(tmp_path) as running, driver_running(running, tmp_path / "tables", paths):
        pass
    compare(tmp_path, paths)
