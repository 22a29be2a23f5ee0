"""Spark compared with one process, on 1 GB of bulk and 460 MB of chatter.

`python -m bench.spark` measures one process, Spark on one core with a single run and with `RUNS`,
Spark on two cores, and a cluster of two workers with one core each. Each runs in its own process,
and they take turns, so that other load affects all of them. Each reads a smaller capture first,
because Java compiles what it runs. Processor seconds are those of all processes of a program; for
the cluster, those of the driver. The result is printed as Markdown and inserted into
`bench/RESULTS.md`.

`--one` runs one process, and `--master URL` one Spark session. Both read names of captures from
standard input, one per line, and print the seconds of each; at the end, stage times as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from bench.report import table
from bench.suite import HERE, SIZES, Large, Options, make, scaled, sized

MEMORY = "2g"
LOADS = {"bulk": (0.25, 1.0), "chatter": (1.0, 4.0)}
"""Sizes of each load for the warm-up and the measurement, relative to other sections."""
ONE = "one process"
RUNS = 16
"""Runs of a capture, as in a job on four cores."""
SESSIONS = {
    "local[1]": ("local[1]", 0),
    f"local[1], {RUNS} runs": ("local[1]", RUNS),
    f"local[2], {RUNS} runs": ("local[2]", RUNS),
}
"""Master, and number of runs; 0: the default."""
CLUSTER = f"two workers, {RUNS} runs"
ROUNDS = 3
"""The round with the least processor time counts."""
TIMEOUT = 150
"""Timeout in seconds."""
STAGES = {
    "dissect": "dissect the runs; write rows and states",
    "finalize": "add connection numbers and topic names; write Parquet. A single run: all stages",
}
"""In the order in which Spark runs them."""
OTHER = "other"
HEADING = "## Spark"
Seconds: TypeAlias = dict[str, float]


class _Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._begin = time.perf_counter(), _cpu_seconds()

    def print(self) -> None:
        """Print the elapsed seconds, and the processor seconds."""
        elapsed, cpu = self._begin
        print(time.perf_counter() - elapsed, _cpu_seconds() - cpu, flush=True)


def _cpu_seconds() -> float:
    """Processor seconds of this process and of all processes below it."""
    below: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        below.setdefault(int(fields[1]), []).append(int(folder.name))
        ticks[int(folder.name)] = sum(map(int, fields[11:15]))  # with those of ended children
    processes = [os.getpid()]
    for process in processes:
        processes += below.get(process, [])
    return sum(ticks[process] for process in processes) / os.sysconf("SC_CLK_TCK")


def run_alone(paths: Iterable[str]) -> None:
    """Export with one process, without Spark."""
    import pyarrow.parquet as pq

    from dissector.capture import open_capture
    from dissector.tables import TABLES

    for path in paths:
        clock = _Clock()
        with (
            tempfile.NamedTemporaryFile(suffix=".parquet") as file,
            pq.ParquetWriter(file.name, TABLES["exchanges"].schema, compression="zstd") as writer,
        ):
            for _, rows in open_capture(path).stream(["exchanges"]):
                writer.write_batch(rows)
        clock.print()


def on_spark(master: str, paths: Iterable[str], runs: int) -> None:
    """Run the job on Spark."""
    from analysis.spark.session import session

    with tempfile.TemporaryDirectory() as log:
        spark = session(
            master,
            {
                "spark.driver.memory": MEMORY, "spark.executor.memory": MEMORY,
                "spark.ui.showConsoleProgress": "false", "spark.eventLog.enabled": "true",
                "spark.eventLog.dir": Path(log).as_uri(), "spark.eventLog.rolling.enabled": "false",
                "spark.eventLog.compress": "false",
            },
        )  # fmt: skip
        count = 0
        for count, path in enumerate(paths, 1):
            spark.sparkContext.setLocalProperty("bench.job", str(count - 1))
            clock = _Clock()
            _job(spark, path, Path(path).stat().st_size // runs if runs else 0)
            clock.print()
        spark.stop()
        (events,) = Path(log).iterdir()
        stages = _stages(events)
    print(json.dumps([stages.get(str(job), {}) for job in range(count)]))


def _job(spark: Any, path: str, run_bytes: int) -> None:
    from analysis.spark import job
    from analysis.spark.options import Request
    from analysis.spark.output import Output

    request = Request([path], run_bytes=run_bytes)
    with tempfile.TemporaryDirectory() as folder, Output(folder, request).opened() as output:
        for _ in job.run(spark, request, output):
            pass


def _stages(events: Path) -> dict[str, Seconds]:
    """Seconds of each stage by job, from Spark's event log."""
    works: dict[int, tuple[str, str]] = {}
    seconds: dict[str, Seconds] = {}
    for line in events.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerStageSubmitted":
            properties = event["Properties"]
            work = properties.get("spark.job.description", "").rpartition(" ")[2]
            works[event["Stage Info"]["Stage ID"]] = properties["bench.job"], work
        if event["Event"] == "SparkListenerStageCompleted":
            stage = event["Stage Info"]
            job, work = works[stage["Stage ID"]]
            elapsed = (stage["Completion Time"] - stage["Submission Time"]) / 1000
            seconds.setdefault(job, {})[work] = elapsed
    return seconds


def page(scale: float) -> Iterator[str]:
    """All results as Markdown."""
    options = Options(scale, 1, lambda work: None)
    inputs = {
        load: [
            make(options, sized(load, times), load, scaled(options, SIZES[load], times))
            for times in sizes
        ]
        for load, sizes in LOADS.items()
    }
    with _runners() as runners:
        for small, large in inputs.values():
            for path in (small.path, *[large.path] * ROUNDS):
                for each in runners:
                    each.run(str(path))
        for each in runners:
            each.end()
    for index, (load, (_, large)) in enumerate(inputs.items()):
        yield from _load(load, large, {each.name: each.best(index) for each in runners})


def _load(load: str, large: Large, results: Mapping[str, Seconds | str]) -> Iterator[str]:
    size = large.bytes / 1e6
    yield f"**{load}**: {size:,.0f} MB, {large.messages:,} messages; `exchanges` to Parquet."
    valid = {name: each for name, each in results.items() if not isinstance(each, str)}
    rows = []
    for name, each in results.items():
        if isinstance(each, str):
            rows.append([name, each, "", "", ""])
            continue
        ratio = f"{each['cpu'] / valid[ONE]['cpu']:.2f}"
        seconds = [f"{each[column]:.1f}" for column in ("cpu", "all")]
        is_whole = not name.startswith(CLUSTER)
        rows.append([name, *seconds, f"{size / each['all']:.0f}", ratio if is_whole else ""])
    yield table(["program", "CPU s", "s", "MB/s", f"CPU ÷ {ONE}"], rows)
    on_spark = [name for name in valid if name != ONE]
    works = {**STAGES, OTHER: "planning, sending tasks, joining, writing the end"}
    yield table(
        ["stage", *(f"{name}, s" for name in on_spark), "work"],
        [
            [stage, *(f"{valid[name][stage]:.1f}" for name in on_spark), work]
            for stage, work in works.items()
        ],
    )


class _Runner:
    """A process that reads captures one after the other."""

    def __init__(self, name: str, *words: str) -> None:
        self.name = name
        self._seconds: list[Seconds] = []
        self._stages: list[Seconds] = []
        self._failure = ""
        line = [sys.executable, "-m", "bench.spark", *words]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            line, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )

    def run(self, path: str) -> None:
        """Read a capture, and wait for the result."""
        if not self._failure:
            assert self._process.stdin is not None
            print(path, file=self._process.stdin, flush=True)
            words = (self._read_line() or "nan nan").split()
            self._seconds.append(dict(zip(("all", "cpu"), map(float, words), strict=True)))

    def end(self) -> None:
        if not self._failure:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._stages = json.loads(self._read_line() or "[]")
        self._process.kill()
        self._process.wait()

    def _read_line(self) -> str:
        """The next line of output; empty at its end."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], TIMEOUT)
        line = self._process.stdout.readline() if ready else ""
        if not line and self.name != ONE:
            self._failure = "ended early" if ready else f"took more than {TIMEOUT} s"
        return line

    def best(self, load: int) -> Seconds | str:
        """The best run of a load's large capture with its stages, or an error."""
        if self._failure:
            return self._failure
        begin = load * (1 + ROUNDS) + 1
        best = min(range(begin, begin + ROUNDS), key=lambda run: self._seconds[run]["cpu"])
        seconds = self._seconds[best]
        if not self._stages:
            return seconds
        stages = {stage: self._stages[best].get(stage, 0.0) for stage in STAGES}
        return seconds | stages | {OTHER: seconds["all"] - sum(stages.values())}


@contextmanager
def _runners() -> Iterator[list[_Runner]]:
    from bench.cluster import cluster

    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder), memory="3g") as running:
        sessions = {**SESSIONS, CLUSTER: (running.master, RUNS)}
        runners = [
            _Runner(name, "--master", master, "--runs", str(runs))
            for name, (master, runs) in sessions.items()
        ]
        yield [_Runner(ONE, "--one"), *runners]


def _put(section: str) -> None:
    """Replace the section in the results."""
    path = HERE / "RESULTS.md"
    before, _, after = path.read_text().partition(f"{HEADING}\n")
    _, _, after = after.partition("\n## ")
    parts = [before, f"{HEADING}\n\n{section}", f"## {after}" if after else ""]
    path.write_text("\n\n".join(part.strip() for part in parts if part) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one measurement if it is named, otherwise all."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=main.__doc__)
    parser.add_argument("--one", action="store_true")
    parser.add_argument("--master")
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="1 is 1 GB of bulk")
    parser.add_argument("--print", action="store_true", help="keep RESULTS.md")
    options = parser.parse_args(arguments)
    paths = map(str.strip, sys.stdin)
    if options.master:
        on_spark(options.master, paths, options.runs)
    elif options.one:
        run_alone(paths)
    else:
        section = "\n\n".join(page(options.scale)) + "\n"
        print(section, end="")
        if not options.print and options.scale >= 1:
            _put(section)


if __name__ == "__main__":
    main()
