"""Spark beside one process, on 2 GB of bulk: MB/s, and what each stage takes.

`python -m bench.spark` measures one process, one core of Spark, two cores, and a cluster of two
workers of a core each, each in a process of its own after a small warm-up, and prints Markdown.
`python -m bench.spark --master URL CAPTURE` is one of them, and prints seconds as JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.report import table
from bench.suite import PARTS, SIZES, Options, make, scaled

MEMORY = "2g"
ONE = "one process"
CORES = ("local[1]", "local[2]")
CLUSTER = "two workers"
STAGES = {
    "look": "headers of all packets read, a first time",
    "read": "packets read, and dealt to shares",
    "shuffle": "bundles to their share's task, in order",
    "dissect": "rows, of all connections of a share",
    "settle": "numbers and names; Parquet written",
}
_CLOCK = time.perf_counter


def alone(path: str) -> dict[str, float]:
    """One process, without Spark: seconds."""
    import pyarrow.parquet as pq

    from dissector.capture import open_capture
    from dissector.tables import TABLES

    begin = _CLOCK()
    with (
        tempfile.NamedTemporaryFile(suffix=".parquet") as file,
        pq.ParquetWriter(file.name, TABLES["exchanges"].schema) as writer,
    ):
        for _, rows in open_capture(path).stream(["exchanges"]):
            writer.write_batch(rows)
    return {"all": _CLOCK() - begin}


def on_spark(master: str, path: str, warm: str, *, stages: bool) -> dict[str, float]:
    """The job, and each of its stages alone where that is wanted: seconds."""
    from analysis.spark.options import Request
    from analysis.spark.session import session

    begin = _CLOCK()
    memory = {"spark.driver.memory": MEMORY, "spark.executor.memory": MEMORY}
    spark = session(master, {**memory, "spark.ui.showConsoleProgress": "false"})
    _job(spark, Request([warm]))
    found = {"start": _CLOCK() - begin}
    begin = _CLOCK()
    _job(spark, Request([path]))
    found["all"] = _CLOCK() - begin
    if stages:
        found |= _stages(spark, Request([path]))
        found["settle"] = found["all"] - sum(map(found.__getitem__, [*STAGES][:-1]))
    spark.stop()
    return found


def _job(spark: object, request: object) -> None:
    from analysis.spark import job

    with tempfile.TemporaryDirectory() as folder:
        for _ in job.run(spark, request, folder):
            pass


def _stages(spark: object, request: object) -> dict[str, float]:
    """What each stage takes beyond those before it."""
    from analysis.spark import plan, splits
    from analysis.spark.dissection import Task
    from analysis.spark.splits import Broker

    begin = _CLOCK()
    looks = plan.proved(spark, splits.guess(request.paths, request.split_bytes))
    found = {"look": _CLOCK() - begin}
    shares = plan.shares(spark, request, looks)
    bundles = plan.bundled(spark, request, looks, shares)
    begin = _CLOCK()
    bundles.write.format("noop").mode("overwrite").save()
    found["read"] = _CLOCK() - begin
    begin = _CLOCK()
    sent = bundles.repartitionById(shares, "share").sortWithinPartitions("position")
    sent.write.format("noop").mode("overwrite").save()
    found["shuffle"] = _CLOCK() - begin - found["read"]
    brokers = frozenset[Broker]().union(*(each.brokers for each in looks))
    begin = _CLOCK()
    with plan.dissected(spark, Task(request, request.paths, brokers, []), bundles, shares):
        found["dissect"] = _CLOCK() - begin - found["read"] - found["shuffle"]
    return found


def page(scale: float) -> Iterator[str]:
    """All of it, as Markdown."""
    options = Options(scale, 1, lambda what: None)
    large = make(options, "bulk-x2", "bulk", scaled(options, SIZES["bulk"], 2.0))
    warm = make(options, "bulk-part", "bulk", PARTS["bulk"])
    size = large.bytes / 1e6
    found = {ONE: _child(str(large.path))}
    for cores in CORES:
        more = ["--stages"] if cores == CORES[0] else []
        found[cores] = _child("--master", cores, "--warm", str(warm.path), *more, str(large.path))
    with _workers() as master:
        found[CLUSTER] = _child("--master", master, "--warm", str(warm.path), str(large.path))
    one, first = (found[name].get("all") for name in (ONE, CORES[0]))
    rows = []
    for name, seconds in found.items():
        if "all" not in seconds:
            rows.append([f"{name}: {seconds.get('failure', 'it failed')}"])
            continue
        rows.append(
            [
                name,
                f"{seconds['all']:.1f}",
                f"{size / seconds['all']:.0f}",
                f"{one / seconds['all']:.2f}" if one else "",
                f"{first / seconds['all']:.2f}" if first and name != ONE else "",
                f"{seconds['start']:.1f}" if "start" in seconds else "",
            ]
        )
    yield f"{size:,.0f} MB, `exchanges` to Parquet; `start`: session and warm-up, not counted."
    header = ["where", "s", "MB/s", "speed ÷ one process's", "speed ÷ local[1]'s", "start, s"]
    yield table(header, rows)
    stages = found[CORES[0]]
    if first:
        yield f"Where local[1] spends its {first:.1f} s:"
        yield table(
            ["stage", "s", "what"],
            [[name, f"{stages[name]:.1f}", what] for name, what in STAGES.items()],
        )


@contextmanager
def _workers() -> Iterator[str]:
    from bench.cluster import cluster

    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder), memory="3g") as running:
        yield running.master


def _child(*words: str) -> dict[str, float]:
    line = [sys.executable, "-m", "bench.spark", *words]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode:
        return {"failure": done.stderr.strip().rpartition("\n")[2]}  # type: ignore[dict-item]
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure one, where a capture is named; else all."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=main.__doc__)
    parser.add_argument("capture", nargs="?")
    parser.add_argument("--master")
    parser.add_argument("--warm")
    parser.add_argument("--stages", action="store_true")
    parser.add_argument("--scale", type=float, default=1.0, help="1 is 2 GB")
    chosen = parser.parse_args(arguments)
    if chosen.capture is None:
        print("\n\n".join(page(chosen.scale)))
    elif chosen.master is None:
        print(json.dumps(alone(chosen.capture)))
    else:
        found = on_spark(chosen.master, chosen.capture, chosen.warm, stages=chosen.stages)
        print(json.dumps(found))


if __name__ == "__main__":
    main()
