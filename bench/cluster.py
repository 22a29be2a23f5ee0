"""Spark's standalone cluster, of a master and workers on the loopback address."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyspark

ROOT = Path(__file__).parent.parent
HOME = Path(pyspark.__file__).parent
ENVIRONMENT = os.environ | {
    "SPARK_HOME": str(HOME),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_MEMORY": "256m",
    "PYSPARK_PYTHON": sys.executable,
    "PYTHONPATH": str(ROOT),
}
PATIENCE = 120
"""Seconds until a part must have started."""


@dataclass
class Cluster:
    """A running one."""

    master: str
    workers: list[subprocess.Popen[bytes]]


@contextmanager
def cluster(
    folder: Path, workers: int = 2, memory: str = "1g", before: Sequence[str] = ()
) -> Iterator[Cluster]:
    """Start a master and workers of a core each; stop them at the end. `folder` gets their logs.

    `before`: a command that starts each worker, such as `unshare`.
    """
    port = _free_port()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        where = ["--host", "127.0.0.1", "--webui-port", "0", "--port"]
        log = stack.enter_context((folder / "master.log").open("wb"))
        stack.enter_context(_part(log, "master.Master", *where, str(port)))
        _wait(folder / "master.log", "I have been elected leader")
        running = []
        for index in range(workers):
            log = stack.enter_context((folder / f"worker{index}.log").open("wb"))
            words = [*where, "0", "--cores", "1", "--memory", memory]
            words += ["--work-dir", str(folder / f"work{index}"), master]
            running.append(stack.enter_context(_part(log, "worker.Worker", *words, before=before)))
        for index in range(workers):
            _wait(folder / f"worker{index}.log", "Successfully registered with master")
        yield Cluster(master, running)


def kill(part: subprocess.Popen[bytes]) -> None:
    """End a part and all that it started, at once."""
    if part.poll() is None:
        os.killpg(part.pid, signal.SIGKILL)
    part.wait()


@contextmanager
def _part(
    log: IO[bytes], name: str, *words: str, before: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    part = subprocess.Popen(
        [*before, HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *words],
        stdout=log, stderr=log, env=ENVIRONMENT, start_new_session=True,
    )  # fmt: skip
    try:
        yield part
    finally:
        kill(part)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _wait(log: Path, words: str) -> None:
    end = time.monotonic() + PATIENCE
    while words not in log.read_text():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.1)
