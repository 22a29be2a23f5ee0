"""Runs: byte ranges of a capture that are dissected independently, and joined to the same rows.

    run 1: warm-up, rows ──┐
    run 2: warm-up, rows ──┼──> parent: joins in order ──> rows
    run 3: warm-up, rows ──┘

A run is dissected by the one pipeline, in a process that does not know the runs before it. It
learns the state of connections from the bytes before the run. The parent compares this state with
the state that the run before left. Where both are equal, all rows of the connection in the run are
those of one process. Where they are not, the parent dissects the connection again.

plan       the runs of a capture, and the packets of a run
worker     the work of a process
states     the state of connections at the border of two runs
joining    the work of the parent
processes  processes that end with their work
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Final

from dissector.frame_reader import Broker, FrameReader
from dissector.packets.files import FileSource
from dissector.runs import plan as planning
from dissector.runs.joining import Joiner
from dissector.runs.plan import Run
from dissector.runs.processes import Workers, can_fork
from dissector.runs.worker import Make, RunResult, dissect
from dissector.tables.builder import TableBuilder, TableRows

LEAST_BYTES: Final = 256 << 20
"""Bytes of input below which one process is always used: two would be slower."""
AHEAD: Final = 2
"""Runs for each process whose rows may wait for the parent."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The runs of a capture, and how to dissect them."""

    runs: list[Run]
    warm_up_bytes: int
    jobs: int
    block_bytes: int
    limits: tuple[int, int]
    """Bytes of streams, and of messages, that may wait in one process."""


def plan(source: FileSource | None, jobs: int, limits: tuple[int, int]) -> Plan | None:
    """The plan for several processes; None if one process is faster, or the only way."""
    if jobs < 2 or source is None or not can_fork():
        return None
    if source.total_bytes is None or source.total_bytes < LEAST_BYTES:
        return None
    size = min(max(source.total_bytes // jobs, planning.LEAST_RUN), planning.MOST_RUN)
    runs = planning.plan(source, size)
    if runs is None or len(runs) < 2:
        return None
    warm_up = min(int(size / planning.WARM_UP), planning.MOST_WARM_UP)
    return Plan(runs, warm_up, min(jobs, len(runs)), source.block_bytes, limits)


def rows(
    plan: Plan, make: Make, reader: FrameReader, builder: TableBuilder,
    progress: Callable[[int, int], None],
) -> Iterator[TableRows]:  # fmt: skip
    """The rows of all runs, in order. `make` returns stages like `reader` and `builder`.

    `progress` is called with the packets and bytes of each block. At the end, `reader` and
    `builder` have the state of one process. Raises DissectorError if a process ends before its work
    is done.
    """
    joiner = Joiner(reader, builder, plan.block_bytes, plan.limits, progress)
    names = list(reader.captures)

    def work(number: int, known: set[Broker]) -> tuple[RunResult, IO[bytes]]:
        run = plan.runs[number]
        before = plan.runs[number - 1] if number else None
        warm_up = before and run.warm_up(plan.warm_up_bytes, before)
        return dissect(run, warm_up, make, names, plan.block_bytes, known)

    with Workers() as workers:
        results = workers.map(
            work, len(plan.runs), plan.jobs, AHEAD * plan.jobs, lambda: set(reader.streams.brokers)
        )
        for run, (result, stored) in zip(plan.runs, results, strict=True):
            yield from joiner.join(run, result, stored)
        yield from joiner.finish()
