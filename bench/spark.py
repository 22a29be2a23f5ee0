"""Spark beside one process, on 2 GB of bulk and 460 MB of chatter: MB/s, and what each stage takes.

`python -m bench.spark` measures one process, one core of Spark, two cores, and a cluster of two
workers of a core each. Each is a process of its own that lives all the while, and they take turns,
so that a machine that is slower for a minute is so for all. Before what counts, each reads a
smaller capture of the kind, since Java compiles what it runs. It prints Markdown, and puts it into
`bench/RESULTS.md`.

`python -m bench.spark --one` is one process, and with `--master URL` one Spark: it reads names of
captures from standard input, a line each, and prints the seconds that each took; at the end those
of the stages of each, as JSON.
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
"""Sizes of each load, against that of the other sections: to warm up, and to be measured."""
ONE = "one process"
LOCAL = ("local[1]", "local[2]")
CLUSTER = "two workers"
ROUNDS = 3
"""The shortest counts."""
PATIENCE = 150
"""Seconds until something is given up."""
BASES = (ONE, LOCAL[0])
STAGES = {
    "look": "headers of all packets read, a first time",
    "read": "packets read, records cut; the rest dealt to shares and written by Java",
    "dissect": "bundles read and sorted by Java; rows, of all connections of a share, kept",
    "tell": "what tasks have learned, gathered by the driver",
    "settle": "numbers and names put in; Parquet written",
}
"""In the order in which Spark runs them."""
REST = "the rest"
HEADING = "## Spark"
Seconds: TypeAlias = dict[str, float]
_CLOCK = time.perf_counter


def alone(paths: Iterable[str]) -> None:
    """One process, without Spark."""
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
    """The job, on Spark."""
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
    """Seconds of each stage, as Spark wrote them down."""
    for line in events.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerStageCompleted":
            stage = event["Stage Info"]
            yield (stage["Completion Time"] - stage["Submission Time"]) / 1000


def page(scale: float) -> Iterator[str]:
    """All of it, as Markdown."""
    options = Options(scale, 1, lambda what: None)
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


def _load(load: str, large: Large, found: Mapping[str, Seconds | str]) -> Iterator[str]:
    size = large.bytes / 1e6
    yield f"**{load}**: {size:,.0f} MB, {large.messages:,} messages; `exchanges` to Parquet."
    ran = {name: each for name, each in found.items() if not isinstance(each, str)}
    rows = []
    for name, each in found.items():
        if isinstance(each, str):
            rows.append([name, each, "", "", ""])
            continue
        ratio = [f"{ran[base]['all'] / each['all']:.2f}" if base in ran else "" for base in BASES]
        rows.append([name, f"{each['all']:.1f}", f"{size / each['all']:.0f}", *ratio])
    yield table(["where", "s", "MB/s", *(f"speed ÷ that of {base}" for base in BASES)], rows)
    on_spark = [name for name in ran if name != ONE]
    whats = {**STAGES, REST: "planning, sending tasks, moving files into place"}
    yield table(
        ["stage", *(f"{name}, s" for name in on_spark), "what"],
        [
            [stage, *(f"{ran[name][stage]:.1f}" for name in on_spark), what]
            for stage, what in whats.items()
        ],
    )


class _Runner:
    """A process that reads one capture after the other."""

    def __init__(self, name: str, *words: str) -> None:
        self.name = name
        self._seconds: list[float] = []
        self._stages: list[list[float]] = []
        self._why_not = ""
        line = [sys.executable, "-m", "bench.spark", *words]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            line, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )

    def run(self, path: str) -> None:
        """Let it read that capture, and wait for it."""
        if not self._why_not:
            assert self._process.stdin is not None
            print(path, file=self._process.stdin, flush=True)
            self._seconds.append(float(self._said() or "nan"))

    def end(self) -> None:
        """Nothing more is to be read."""
        if not self._why_not:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._stages = json.loads(self._said() or "[]")
        self._process.kill()
        self._process.wait()

    def _said(self) -> str:
        """The next line; none where there will be no more."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        said = self._process.stdout.readline() if ready else ""
        if not said and self.name != ONE:
            self._why_not = "ended too early" if ready else f"took more than {PATIENCE} s"
        return said

    def best(self, load: int) -> Seconds | str:
        """The shortest run of a load's large capture, and its stages; or why there is none."""
        if self._why_not:
            return self._why_not
        begin = load * (1 + ROUNDS) + 1
        all, run = min((self._seconds[each], each) for each in range(begin, begin + ROUNDS))
        if not self._stages:
            return {"all": all}
        each = dict(zip(STAGES, self._stages[run], strict=True))
        return {"all": all, **each, REST: all - sum(each.values())}


@contextmanager
def _runners() -> Iterator[list[_Runner]]:
    from bench.cluster import cluster

    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder), memory="3g") as running:
        masters = {**{cores: cores for cores in LOCAL}, CLUSTER: running.master}
        runners = [_Runner(name, "--master", master) for name, master in masters.items()]
        yield [_Runner(ONE, "--one"), *runners]


def _put(section: str) -> None:
    """Put the section into the results, in the place of the one before."""
    path = HERE / "RESULTS.md"
    before, _, after = path.read_text().partition(f"{HEADING}\n")
    _, _, after = after.partition("\n## ")
    parts = [before, f"{HEADING}\n\n{section}", f"## {after}" if after else ""]
    path.write_text("\n\n".join(part.strip() for part in parts if part) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure one, where it is named; else all."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=main.__doc__)
    parser.add_argument("--one", action="store_true")
    parser.add_argument("--master")
    parser.add_argument("--scale", type=float, default=1.0, help="1 is 2 GB of bulk")
    parser.add_argument("--print", action="store_true", help="RESULTS.md stays")
    chosen = parser.parse_args(arguments)
    paths = map(str.strip, sys.stdin)
    if chosen.master:
        on_spark(chosen.master, paths)
    elif chosen.one:
        alone(paths)
    else:
        section = "\n\n".join(page(chosen.scale)) + "\n"
        print(section, end="")
        if not chosen.print and chosen.scale >= 1:
            _put(section)


if __name__ == "__main__":
    main()
