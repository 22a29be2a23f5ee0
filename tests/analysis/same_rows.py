"""`python -m tests.analysis.same_rows`: equal rows, however a capture is divided.

Each recording is divided into 1, 2, 7 and 50 files, in sequence (rotated) or at random (shuffled),
or into runs that begin at 100 random bytes of one file. The rows of all tables, with `problems`,
must be those of one process on the same files:

- jobs-2, jobs-5: processes of ``--jobs``,
- local: tasks of Spark on two cores,
- cluster: tasks of Spark on two workers, each in its own process.

Exit status 1 if any of them differ. On a quiet core, all recordings take a quarter of an hour by
processes, and half an hour on Spark. ``--begin`` goes on with an interrupted run. The suite has a
sample: `test_same_rows`, `test_runs_same_rows` and `test_spark_same_rows`.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.spark.options import Request
from bench.cluster import cluster
from dissector import runs
from dissector.packets import open_packets
from dissector.packets.files import FileSource
from dissector.pipeline import Pipeline
from dissector.runs import planning, worker
from dissector.runs.plan import AnyRun
from dissector.tables import TABLES
from tests.analysis.spark.sharding import (
    assert_same_rows,
    split_capture,
    write_with_one_process,
    write_with_spark,
)
from tests.captures.recorded import RECORDINGS
from tests.dissector.runs.cutting import MEMORY, cut, differences, plain, tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CUTS = 100
FILES = (1, 2, 7, 50)
LAYOUTS = [
    *(f"{kind}-{files}" for kind in ("rotated", "shuffled") for files in FILES), f"cut-{CUTS}",
]  # fmt: skip
ENGINES = ("jobs-2", "jobs-5", "local", "cluster")
RUNS = 5
"""Runs of files, about."""
Compare = Callable[[list[Path], "Sequence[AnyRun] | None", Path], tuple[str, int]]
"""Compares rows of files, in these runs. Returns the differences, and the number of runs."""


def divided(path: Path, folder: Path, layout: str) -> tuple[list[Path], Sequence[AnyRun] | None]:
    """The files of a layout, and the runs; None: those that the planner makes."""
    kind, _, count = layout.partition("-")
    if kind == "cut":
        file = plain(path, folder)
        return [file], cut([file], int(count) + 1, random.Random(path.name))
    files = split_capture(path, folder, int(count), shuffled=kind == "shuffled")
    return [*map(Path, files)], None


@contextmanager
def planned(parts: Sequence[AnyRun] | None) -> Iterator[Counter[str]]:
    """Let the planner make these runs, or small ones of any files. Counts them."""
    counts: Counter[str] = Counter()
    plan = planning.plan
    limits = planning.LEAST_RUN, planning.MOST_REPEATED, planning.MARGIN, worker.LEAST_PACKETS

    def counted(source: FileSource, run_bytes: int) -> Sequence[AnyRun] | None:
        made = plan(source, run_bytes) if parts is None else parts
        counts["runs"] = len(made or ())
        return made

    # Recordings take seconds, and overlap in a few files.
    planning.LEAST_RUN, planning.MOST_REPEATED, planning.MARGIN = 1, 10, 10**6
    worker.LEAST_PACKETS = 1  # not in tasks of Spark, which have their own modules
    planning.plan = counted
    try:
        yield counts
    finally:
        planning.plan = plan
        planning.LEAST_RUN, planning.MOST_REPEATED, planning.MARGIN, worker.LEAST_PACKETS = limits


def by_processes(jobs: int) -> Compare:
    """Compare with processes of ``--jobs``."""

    def compare(files: list[Path], parts: Sequence[AnyRun] | None, folder: Path) -> tuple[str, int]:
        source = open_packets(files)
        size = max(sum(source.sizes) // RUNS, 1)
        with planned(parts) as counts:
            plan = runs.divided(source, size, jobs, (MEMORY // 4, MEMORY // 8))
            if plan is None:
                return "", counts["runs"]
            actual = Pipeline(source, [], plan=plan).tables(tuple(TABLES))
        return ", ".join(differences(tables(files), actual)), counts["runs"]

    return compare


def by_spark(spark: SparkSession) -> Compare:
    """Compare with tasks of Spark."""

    def compare(files: list[Path], parts: Sequence[AnyRun] | None, folder: Path) -> tuple[str, int]:
        paths, names = [*map(str, files)], tuple(TABLES)
        size = max(sum(path.stat().st_size for path in files) // RUNS, 1)
        request = Request(paths, names, run_bytes=size, values=True)
        write_with_one_process(paths, names, folder / "one")
        with planned(parts) as counts:
            write_with_spark(spark, request, folder / "spark")
        wrong = []
        for name in names:
            try:
                assert_same_rows(folder / "spark" / name, folder / "one" / name)
            except AssertionError as error:
                wrong.append(str(error))
        return "; ".join(wrong), counts["runs"]

    return compare


@contextmanager
def engine(name: str) -> Iterator[Compare]:
    if name.startswith("jobs"):
        yield by_processes(int(name.partition("-")[2]))
        return
    from analysis.spark.session import session

    with ExitStack() as stack:
        settings: dict[str, Any] = {"spark.ui.showConsoleProgress": "false"}
        master = "local[2]"
        if name == "cluster":
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            master = stack.enter_context(cluster(folder)).master
            settings["spark.executor.memory"] = "600m"
        spark = session(master, settings)
        try:
            yield by_spark(spark)
        finally:
            spark.stop()


def main(words: Sequence[str]) -> int:
    """1 if rows differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.analysis.same_rows")
    parser.add_argument("names", nargs="*", help="recordings; default: all")
    parser.add_argument("--engine", action="append", choices=ENGINES)
    parser.add_argument("--layout", action="append", choices=LAYOUTS)
    parser.add_argument("--sample", type=int, default=1, help="each Nth of the comparisons")
    parser.add_argument("--begin", type=int, default=0, help="skip the first N comparisons")
    parser.add_argument("--seed", type=int, default=0, help="order of the comparisons")
    parser.add_argument("--seconds", type=float, default=1e9, help="time limit for each engine")
    options = parser.parse_args(words)
    paths = [path for path in RECORDINGS if not options.names or path.name in options.names]
    wrong = 0
    for name in options.engine or ENGINES:
        cases = [(path, each) for path in paths for each in options.layout or LAYOUTS]
        random.Random(options.seed).shuffle(cases)
        cases = cases[options.begin :: options.sample]
        end, done, in_runs = time.monotonic() + options.seconds, Counter[str](), Counter[str]()
        with engine(name) as compare:
            for number, (path, layout) in enumerate(cases):
                if time.monotonic() > end:
                    break
                print(f"{name} {number}/{len(cases)}", end="\r", file=sys.stderr, flush=True)
                folder = Path(tempfile.mkdtemp())
                try:
                    different, count = compare(*divided(path, folder, layout), folder)
                finally:
                    shutil.rmtree(folder)
                done[layout] += 1
                in_runs[layout] += count > 1
                if different:
                    wrong += 1
                    print(f"{name} {layout} {path.name}: {different[:600]}", flush=True)
        for layout, count in sorted(done.items()):
            print(f"{name} {layout}: {count} recordings, {in_runs[layout]} in several runs")
        print(f"{name}: {sum(done.values())} of {len(cases)} comparisons", flush=True)
    print(f"{wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    os.nice(15)
    sys.exit(main(sys.argv[1:]))
