"""Errors of executors and sessions name the cause and the remedy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import venv
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="the dependency group spark is not installed")

import pyspark
from pyspark.sql import SparkSession

import analysis.spark
from analysis.spark import causes, job
from analysis.spark import session as sessions
from analysis.spark.dissection import Task
from dissector.errors import DissectorError
from tests.analysis.commands import Ran
from tests.analysis.spark.sharding import QUOTAS


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("line", "number", "status"),
    [
        ("Setting default log level", signal.SIGTERM, 143),
        ("Setting default log level", signal.SIGINT, 130),
        ("Setting Spark log level", signal.SIGINT, 130),
    ],
)
def test_an_interrupt_ends_spark(tmp_path: Path, line: str, number: int, status: int) -> None:
    """The first line is of Java, before it connects to this process; the second of the session.
    Standard error stays open while Java runs."""
    command = [sys.executable, "-m", "kafka_dissector", "spark", str(QUOTAS)]
    with subprocess.Popen(
        [*command, "-o", str(tmp_path / "tables")], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        before = next(each for each in process.stderr if each.startswith(line))
        process.send_signal(number)
        _, after = process.communicate(timeout=180)
    assert process.returncode == status, (before, after)
    assert "Traceback" not in after


STOPPED = """
import subprocess, sys, time
from pathlib import Path
from analysis.spark.session import session, stop
from analysis.spark.tasks import results

file = sys.argv[1]

def start(_):
    wait = f"until [ -e '{file}' ]; do sleep 0.1; done"
    words = f"echo first >&2; {wait}; echo second >&2; touch '{file}.done'"
    subprocess.Popen(["sh", "-c", words])

spark = session("local[1]")
results(spark, start, 1, "start")
end = spark.stop

def print_and_end():
    Path(file).touch()
    while not Path(file + ".done").exists():
        time.sleep(0.1)
    time.sleep(1)  # Java copies what was printed
    end()

spark.stop = print_and_end
stop(spark)
"""
"""A driver. A process of its task prints before and while Spark is stopped."""


def test_processes_of_tasks_print_nothing_while_spark_is_stopped(
    java: None, tmp_path: Path
) -> None:
    """They may report that Java has closed their connections."""
    command = [sys.executable, "-c", STOPPED, str(tmp_path / "stopped")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    lines = done.stderr.splitlines()
    assert "first" in lines
    assert "second" not in lines


def _bare_python(folder: Path) -> tuple[Path, Path]:
    """A Python without packages, and a script that runs it with those of Spark itself."""
    venv.create(folder / "bare")
    bare, python = folder / "bare" / "bin" / "python", folder / "python"
    home = Path(pyspark.__file__).parent / "python"
    packages = os.pathsep.join(map(str, [home, *home.glob("lib/*.zip")]))
    command = f"cd '{folder}' && PYTHONPATH='{packages}' exec '{bare}' \"$@\""
    python.write_text(f"#!/bin/sh\n{command}\n")
    python.chmod(0o755)
    return bare, python


def test_missing_packages_of_executors_are_named(
    kept_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Ran
) -> None:
    bare, python = _bare_python(tmp_path)
    monkeypatch.setattr(kept_spark.sparkContext, "pythonExec", str(python))
    err = ran("spark", str(QUOTAS), "-o", str(tmp_path / "tables"), "--jobs", "1", status=1).err
    message = err.splitlines()[-1]
    assert message.startswith("Error: the Python of executor ")
    assert f"{bare}, lacks numpy, pyarrow, pandas, zstandard, fsspec, dissector" in message
    assert message.endswith('see "Executors" in docs/spark.md')
    assert not (tmp_path / "tables").exists()


def test_the_python_of_the_data_source_is_checked(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, python = _bare_python(tmp_path)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    with pytest.raises(DissectorError) as raised:
        analysis.spark.register(spark)
    assert str(raised.value) == (
        f"Spark runs the Python {python}, which cannot be used: ModuleNotFoundError: No module "
        f"named 'analysis'. Before you create the session, set PYSPARK_PYTHON={sys.executable}"
    )


@pytest.mark.parametrize("package", ["pyspark", "fsspec"])
def test_missing_packages_of_the_driver_are_named(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Ran
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    advice = f"the package {package} is not installed: pip install 'kafka-dissector[spark]'"
    err = ran("spark", str(QUOTAS), "-o", str(tmp_path / "tables"), status=1).err
    assert err == f"Error: {advice}\n"


PYTHON = """An error occurred while calling o98.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 \
times, most recent failure: Lost task 0.0 in stage 0.0 (TID 0) (127.0.0.1 executor driver): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/spark/python/pyspark/worker.py", line 3000, in main
    process()
  File "/home/app/read.py", line 7, in read
    raise {raised}
{raised}

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:572)
\tat java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.failJob(DAGScheduler.scala:2898)
"""
JAVA = """An error occurred while calling o448.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 2.0 failed
\tat org.apache.spark.scheduler.DAGScheduler.failJob(DAGScheduler.scala:2898)
Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator(PythonRunner.scala:584)
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:398)
\t... 21 more
"""
NOT_RUN = """An error occurred while calling o98.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 \
times, most recent failure: Lost task 0.3 in stage 0.0 (TID 5) (127.0.0.1 executor 1): \
java.io.IOException: Cannot run program "/no/python": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
Caused by: java.io.IOException: error=2, No such file or directory
\tat java.base/java.lang.ProcessImpl.forkAndExec(Native Method)
\t... 14 more
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            PYTHON.format(raised="OSError: [Errno 28] No space left on device"),
            "OSError: [Errno 28] No space left on device",
        ),
        (PYTHON.format(raised="MemoryError"), "MemoryError"),
        (PYTHON.format(raised="dissector.errors.DissectorError: /t: full"), "/t: full"),
        (
            PYTHON.format(raised="ModuleNotFoundError: No module named 'dissector'"),
            "an executor's Python has no module dissector",
        ),
        (
            PYTHON.format(
                raised="PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has "
                "different version: 3.12 than that in driver: 3.11, PySpark cannot run with "
                "different minor versions."
            ),
            "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different",
        ),
        (JAVA, "the Python process of a task ended unexpectedly, perhaps because memory was short"),
        (
            JAVA.replace("Python worker exited", "Task exited"),
            "org.apache.spark.SparkException: Task exited unexpectedly (crashed)",
        ),
        (NOT_RUN, "an executor cannot run /no/python: install Python there, or set PYSPARK_PYTHON"),
        ("[TABLE_OR_VIEW_NOT_FOUND] The table or view x cannot be found.", "[TABLE_OR_VIEW"),
        ("", "ValueError"),
    ],
)
def test_the_cause_is_named(text: str, cause: str) -> None:
    actual = causes.cause(ValueError(text))
    assert actual.startswith(cause)
    assert "\n" not in actual
    assert not actual.endswith(".")  # callers add their own


def test_the_command_reports_an_error_in_a_task(
    kept_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Ran
) -> None:
    packed = job.packed

    def with_another_folder(parameters: tuple[Task, tuple[object, ...]]) -> pa.Buffer:
        task, arguments = parameters
        return packed((replace(task, job=replace(task.job, output="/dev/full")), arguments))

    monkeypatch.setattr(job, "packed", with_another_folder)
    err = ran("spark", str(QUOTAS), "-o", str(tmp_path / "tables"), "--jobs", "2", status=1).err
    message = err.splitlines()[-1]
    assert "Error: NotADirectoryError: [Errno 20] Not a directory" in message


def test_a_session_has_four_attempts_and_the_properties_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Ran
) -> None:
    calls: list[tuple[str, dict[str, str]]] = []

    def start(master: str, settings: dict[str, str]) -> None:
        calls.append((master, settings))
        raise KeyboardInterrupt

    monkeypatch.setattr(sessions, "session", start)
    words = ["spark", str(QUOTAS), "-o", str(tmp_path / "tables"), "--jobs", "3", "--conf"]
    ran(*words, "spark.archives=env.tar.gz#env", status=130)
    ((master, settings),) = calls
    assert (master, settings["spark.archives"]) == ("local[3,4]", "env.tar.gz#env")
    err = ran(*words, "spark.archives", status=2).err
    assert "--conf spark.archives: expected NAME=VALUE" in err


def test_a_master_of_spark_connect_is_rejected(tmp_path: Path, ran: Ran) -> None:
    words = ["spark", str(QUOTAS), "-o", str(tmp_path / "tables"), "--master", "sc://127.0.0.1"]
    assert (
        "Error: this command does not support Spark Connect: name a master"
        in ran(*words, status=1).err
    )


def test_an_old_pyspark_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Ran, java: None
) -> None:
    monkeypatch.setattr("pyspark.__version__", "3.5.1")
    err = ran("spark", str(QUOTAS), "-o", str(tmp_path / "tables"), status=1).err
    assert "PySpark 3.5.1 is too old: install 4.0 or newer" in err
