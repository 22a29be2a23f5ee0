"""Spark beside one process, on 2 GB of bulk and 460 MB of chatter: MB/s, and what each stage takes.

`python -m bench.spark` measures one process, one core of Spark, two cores, and a cluster of two
workers of a core each; each in processes of its own, after a warm-up with a smaller capture of the
kind, since Java compiles what it runs. It prints Markdown, and puts it into `bench/RESULTS.md`.

`python -m bench.spark CAPTURE...` is one process, and with `--master URL` one Spark: it prints
seconds as JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
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
ROUNDS = 2
"""The shorter counts."""
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


def alone(path: str) -> Seconds:
    """One process, without Spark."""
    import pyarrow.parquet as pq

    from dissector.capture import open_capture
    from dissector.tables import TABLES

    def once() -> float:
        begin = _CLOCK()
        with (
            tempfile.NamedTemporaryFile(suffix=".parquet") as file,
            pq.ParquetWriter(file.name, TABLES["exchanges"].schema, compression="zstd") as writer,
        ):
            for _, rows in open_capture(path).stream(["exchanges"]):
                writer.write_batch(rows)
        return _CLOCK() - begin

    return {"all": min(once() for _ in range(ROUNDS))}


def on_spark(master: str, words: Sequence[str]) -> list[Seconds]:
    """For each pair of a small capture and a large one: the job, and each of its stages."""
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
        order = [
            path
            for pair in zip(words[::2], words[1::2], strict=True)
            for path in (pair[0], *[pair[1]] * ROUNDS)
        ]
        ran = [_job(spark, path) for path in order]
        spark.stop()
        (events,) = Path(log).iterdir()
        stages = [*_stages(events)]
    found = []
    for at in range(0, len(ran), 1 + ROUNDS):
        all, best = min((ran[at + each], at + each) for each in range(1, 1 + ROUNDS))
        each = dict(zip(STAGES, stages[best * len(STAGES) :], strict=False))
        found.append({"all": all, **each, REST: all - sum(each.values())})
    return found


def _job(spark: Any, path: str) -> float:
    from analysis.spark import job
    from analysis.spark.options import Request

    begin = _CLOCK()
    with tempfile.TemporaryDirectory() as folder:
        for _ in job.run(spark, Request([path]), folder):
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
    words = [str(each.path) for load in inputs.values() for each in load]
    found = {ONE: _child(*words)}
    for cores in LOCAL:
        found[cores] = _child("--master", cores, *words)
    with _workers() as master:
        found[CLUSTER] = _child("--master", master, *words)
    for index, (load, (_, large)) in enumerate(inputs.items()):
        mine = {name: ran[index] if isinstance(ran, list) else ran for name, ran in found.items()}
        yield from _load(load, large, mine)


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


@contextmanager
def _workers() -> Iterator[str]:
    from bench.cluster import cluster

    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder), memory="3g") as running:
        yield running.master


def _child(*words: str) -> list[Seconds] | str:
    """Seconds for each load, or why there are none."""
    line = [sys.executable, "-m", "bench.spark", *words]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"took more than {PATIENCE} s"
    if done.returncode:
        return done.stderr.strip().rpartition("\n")[2]
    found: list[Seconds] = json.loads(done.stdout)
    return found


def _put(section: str) -> None:
    """Put the section into the results, in the place of the one before."""
    path = HERE / "RESULTS.md"
    before, _, after = path.read_text().partition(f"{HEADING}\n")
    _, _, after = after.partition("\n## ")
    parts = [before, f"{HEADING}\n\n{section}", f"## {after}" if after else ""]
    path.write_text("\n\n".join(part.strip() for part in parts if part) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure one, where captures are named; else all."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=main.__doc__)
    parser.add_argument("captures", nargs="*", help="pairs: a small one, to warm up, and a large")
    parser.add_argument("--master")
    parser.add_argument("--scale", type=float, default=1.0, help="1 is 2 GB of bulk")
    parser.add_argument("--print", action="store_true", help="RESULTS.md stays")
    chosen = parser.parse_args(arguments)
    if chosen.captures and chosen.master:
        print(json.dumps(on_spark(chosen.master, chosen.captures)))
    elif chosen.captures:
        print(json.dumps([alone(path) for path in chosen.captures[1::2]]))
    else:
        section = "\n\n".join(page(chosen.scale)) + "\n"
        print(section, end="")
        if not chosen.print and chosen.scale >= 1:
            _put(section)


if __name__ == "__main__":
    main()
