"""A job that is killed, or whose disk is full, in a process of its own.

python -m tests.analysis.spark.interrupted_job OUTPUT RUN_BYTES kill WORK NUMBER CAPTURE...

kills itself and Spark by SIGKILL before task NUMBER of WORK.

python -m tests.analysis.spark.interrupted_job OUTPUT RUN_BYTES full SIZE LARGER CAPTURE...

mounts a file system of SIZE at OUTPUT, runs the job, prints its error, enlarges the file system to
LARGER, prints the parts that the job repeats, and compares the rows with those of one process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from analysis.spark import job
from analysis.spark.options import Request
from analysis.spark.session import session
from dissector.errors import DissectorError
from dissector.runs import planning
from tests.analysis.spark.sharding import assert_same_rows, write_with_one_process, write_with_spark

TABLES = ("exchanges", "connections", "topics", "problems")


def main() -> None:
    """Run the job."""
    output, run_bytes, how, first, second, *paths = sys.argv[1:]
    planning.LEAST_RUN = 1
    request = Request(paths, TABLES, run_bytes=int(run_bytes))
    if how == "full":
        mount(output, first)
    spark = session("local[2]", {"spark.ui.showConsoleProgress": "false"})
    if how == "kill":
        one_by_one(lambda work, number: kill() if (work, number) == (first, int(second)) else None)
    try:
        write_with_spark(spark, request, Path(output))
    except DissectorError as error:
        print(error, flush=True)
    mount(output, second, "remount")
    one_by_one(lambda work, number: print(work, number, flush=True))
    write_with_spark(spark, request, Path(output))
    write_with_one_process(paths, TABLES, Path(output, "one"))
    for name in TABLES:
        assert_same_rows(Path(output, name), Path(output, "one", name))
    print("same rows", flush=True)
    spark.stop()


def kill() -> None:
    """Kill this process and its group, in which Java runs."""
    os.killpg(0, signal.SIGKILL)


def mount(folder: str, size: str, *options: str) -> None:
    """Mount a file system of this size, or change the size with ``remount``."""
    words = ["mount", "-t", "tmpfs", "-o", ",".join([f"size={size}", *options]), "none", folder]
    subprocess.run(words, check=True)


def one_by_one(before: Callable[[str, int], Any]) -> None:
    """Run tasks one by one, each behind a call of `before`."""
    for_each = job._for_each

    def each(spark: Any, task: Any, work: str, numbers: Sequence[int], *given: object) -> None:
        for number in numbers:
            before(work, number)
            for_each(spark, task, work, [number], *given)

    job._for_each = each


if __name__ == "__main__":
    main()
