"""Spark compared with one process, on 2 GB of bulk and 460 MB of chatter: MB/s and stage times.

`python -m bench.spark` measures one process, Spark on one core, Spark on two cores, and a cluster
of two workers with one core each. Each runs in its own process, and they take turns, so that other
load affects all of them. Each reads a smaller capture first, because Java compiles what it runs.
The result is printed as Markdown and inserted into `bench/RESULTS.md`.

`--one` runs one process, and `--master URL` one Spark session. Both read names of captures from
standard input, one per line, and print the seconds for each; at the end, stage times as JSON.
"""

from __future__ import annotations

import argparse
import json
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
LOADS = {"bulk": (0.5, 2.0), "chatter": (1.0, 4.0)}
"""Sizes of each load for the warm-up and the measurement, relative to other sections."""
ONE = "one process"
LOCAL = ("local[1]", "local[2]")
CLUSTER = "two workers"
ROUNDS = 3
"""The shortest round counts."""
TIMEOUT = 150
"""Timeout in seconds."""
BASES = (ONE, LOCAL[0])
STAGES = {
    "dissect": "dissect the runs; Java keeps their rows",
    "collect": "the driver collects the states at the borders",
    "finalize": "add connection numbers and topic names; write Parquet",
}
"""In the order in which Spark runs them. Between the last two, the driver joins the runs."""
OTHER = "other"
HEADING = "## Spark"
Seconds: TypeAlias = dict[str, float]
_CLOCK = time.perf_counter


def run_alone(paths: Iterable[str]) -> None:
    """Export with one process, without Spark."""
    import pyarrow.parquet as pq

    from dissector.capture import open_capture
    from dissector.tables import TABLES

    for path in paths:
        begin = _CLOCK()
        with (
            tempfile.NamedTemporaryFile(suffix=".parquet") as file,
            pq.ParquetWriter(file.name, TABLES["exchanges"].schema, compression="zstd") as writer,
        ):
            for _, rows in open_capture(path).stream(["exchanges"]):
                writer.write_batch(rows)
        print(_CLOCK() - begin, flush=True)


def on_spark(master: str, paths: Iterable[str]) -> None:
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
        for path in paths:
            print(_job(spark, path), flush=True)
        spark.stop()
        (events,) = Path(log).iterdir()
        stages = [*_stages(events)]
    print(json.dumps([stages[at : at + len(STAGES)] for at in range(0, len(stages), len(STAGES))]))


def _job(spark: Any, path: str) -> float:
    from analysis.spark import job
    from analysis.spark.options import Request
    from analysis.spark.output import Output

    begin, request = _CLOCK(), Request([path])
    with (
        tempfile.TemporaryDirectory() as folder,
        Output(folder, request.tables).opened() as output,
    ):
        for _ in job.run(spark, request, output):
            pass
    return _CLOCK() - begin


def _stages(events: Path) -> Iterator[float]:
    """Seconds of each stage, from Spark's event log."""
    for line in events.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerStageCompleted":
            stage = event["Stage Info"]
            yield (stage["Completion Time"] - stage["Submission Time"]) / 1000


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
        ratio = [
            f"{valid[base]['all'] / each['all']:.2f}" if base in valid else "" for base in BASES
        ]
        rows.append([name, f"{each['all']:.1f}", f"{size / each['all']:.0f}", *ratio])
    yield table(["program", "s", "MB/s", *(f"speed ÷ {base}" for base in BASES)], rows)
    on_spark = [name for name in valid if name != ONE]
    works = {**STAGES, OTHER: "planning, sending tasks, moving files"}
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
        self._seconds: list[float] = []
        self._stages: list[list[float]] = []
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
            self._seconds.append(float(self._read_line() or "nan"))

    def end(self) -> None:
        """End the process."""
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
        """The shortest run of a load's large capture with its stages, or an error."""
        if self._failure:
            return self._failure
        begin = load * (1 + ROUNDS) + 1
        all, run = min((self._seconds[each], each) for each in range(begin, begin + ROUNDS))
        if not self._stages:
            return {"all": all}
        each = dict(zip(STAGES, self._stages[run], strict=True))
        return {"all": all, **each, OTHER: all - sum(each.values())}


@contextmanager
def _runners() -> Iterator[list[_Runner]]:
    from bench.cluster import cluster

    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder), memory="3g") as running:
        masters = {**{cores: cores for cores in LOCAL}, CLUSTER: running.master}
        runners = [_Runner(name, "--master", master) for name, master in masters.items()]
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
    parser.add_argument("--scale", type=float, default=1.0, help="1 is 2 GB of bulk")
    parser.add_argument("--print", action="store_true", help="keep RESULTS.md")
    options = parser.parse_args(arguments)
    paths = map(str.strip, sys.stdin)
    if options.master:
        on_spark(options.master, paths)
    elif options.one:
        run_alone(paths)
    else:
        section = "\n\n".join(page(options.scale)) + "\n"
        print(section, end="")
        if not options.print and options.scale >= 1:
            _put(section)


if __name__ == "__main__":
    main()
