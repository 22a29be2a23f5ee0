"""The result folders of drivers that end in any way, without Java."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("fcntl")

DRIVER = """
import sys
from unittest.mock import MagicMock
from analysis.spark import result_dirs
print(result_dirs.create(MagicMock(), None), flush=True)
sys.stdin.read()
"""


@contextmanager
def driver(temporary: Path) -> Iterator[Path]:
    """A driver with a result, without a Java that deletes it; killed at the end."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", DRIVER]
    with subprocess.Popen(
        command, env={"TMPDIR": str(temporary)}, stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdout
        folder = Path(process.stdout.readline().strip())
        (folder / "exchanges").mkdir()
        yield folder
        process.kill()


def test_results_of_a_driver_and_java_that_were_killed_are_deleted_by_the_next_one(
    tmp_path: Path,
) -> None:
    """Jupyter kills the process group of a kernel, which includes Java."""
    (tmp_path / "kafka-dissector-spark-link").symlink_to(tmp_path)
    with ExitStack() as living:
        first = living.enter_context(driver(tmp_path))
        with driver(tmp_path) as second:
            assert {first, second} <= {*tmp_path.iterdir()}
        assert second.exists()
        third = living.enter_context(driver(tmp_path))
        assert not second.exists()
        assert (first / "exchanges").exists()
        assert (third / "exchanges").exists()
