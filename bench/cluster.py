"""A Spark standalone cluster: a master and workers on the loopback address."""

from __future__ import annotations

import os
import re
import signal
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
_END_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")
"""SIGTERM and SIGKILL end this process without its `finally`."""
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
ENVIRONMENT = os.environ | {
    "SPARK_HOME": str(HOME),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": _SHORT_LIVED,
    "SPARK_LAUNCHER_OPTS": _SHORT_LIVED,
    "PYSPARK_PYTHON": sys.executable,
    "PYTHONPATH": str(ROOT),
}
TIMEOUT = 300
"""Timeout for the start of a process, in seconds."""


@dataclass
class Cluster:
    """A running cluster."""

    master: str
    workers: list[subprocess.Popen[bytes]]


@contextmanager
def cluster(
    folder: Path, memory: str = "1g", before: Sequence[Sequence[str]] = ((), ())
) -> Iterator[Cluster]:
    """Start a master and workers with one core each; stop them at the end. Logs go to `folder`.

    `before`: for each worker, the command that starts it, such as `unshare`; may be empty.
    """
    with ExitStack() as stack:
        address = ["--host", "127.0.0.1", "--webui-port", "0", "--port", "0"]
        log = stack.enter_context((folder / "master.log").open("wb"))
        stack.enter_context(_process(log, "master.Master", *address))
        _wait(folder / "master.log", "I have been elected leader")
        (master,) = re.findall(r"spark://127\.0\.0\.1:\d+", (folder / "master.log").read_text())
        running = []
        for index, command in enumerate(before):
            log = stack.enter_context((folder / f"worker{index}.log").open("wb"))
            arguments = [*address, "--cores", "1", "--memory", memory]
            arguments += ["--work-dir", str(folder / f"work{index}"), master]
            running.append(
                stack.enter_context(_process(log, "worker.Worker", *arguments, before=command))
            )
        for index in range(len(before)):
            _wait(folder / f"worker{index}.log", "Successfully registered with master")
        yield Cluster(master, running)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all its children."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def _process(
    log: IO[bytes], name: str, *arguments: str, before: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    java = [HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments]
    process = subprocess.Popen(
        [*before, *_END_WITH_PARENT, *java],
        stdout=log, stderr=log, env=ENVIRONMENT, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        kill(process)


def _wait(log: Path, text: str) -> None:
    end = time.monotonic() + TIMEOUT
    while text not in log.read_text():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.1)
