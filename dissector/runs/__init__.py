"""Runs: ranges of a capture that are dissected independently, and joined to the same rows.

    run 1: parent
    run 2: warm-up, rows ──┬──> parent: joins in order ──> rows
    run 3: warm-up, rows ──┘

The parent dissects the first run. Each other run is dissected by the same pipeline, in a process
that does not know the runs before it. It learns the state of connections from the bytes before the
run. The parent compares this state with the state that the run before left. Where both are equal,
all rows of the connection in the run are those of one process. Where they are not, the parent
dissects the connection again.

plan       the runs of a capture
sources    the packets of a run
blocks     parts of blocks of packets
worker     the work of a process
rows       the file with its rows
states     the state of connections at the border of two runs
joining    the work of the parent
joined     the rows of a run that is joined, merged with those of the parent
processes  processes that end with their work

The processes are those of `--jobs`, or tasks of Spark (`analysis.spark`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import field, replace
from typing import IO, Final

from dissector import _native
from dissector.arrays import value
from dissector.frame_reader import Broker, FrameReader
from dissector.packets.block import UInt64
from dissector.packets.files import AFTER_ALL, BEFORE_ALL, FileSource
from dissector.runs import plan as planning
from dissector.runs.joining import Joiner
from dissector.runs.plan import AnyRun
from dissector.runs.processes import Workers, can_fork
from dissector.runs.rows import RowFile
from dissector.runs.worker import Make, RunResult, dissect
from dissector.tables.builder import TableBuilder, TableRows

LEAST_BYTES: Final = 256 << 20
"""Bytes of input below which one process is always used: two would be slower."""
AHEAD: Final = 2
"""Runs for each process whose rows may wait for the parent."""


@value
class Plan:
    """The runs of a capture, and how to dissect them."""

    runs: Sequence[AnyRun]
    warm_up_bytes: int
    jobs: int
    block_bytes: int
    limits: tuple[int, int]
    """Bytes of streams, and of messages, that may wait in one process."""
    hash_key: UInt64 = field(default_factory=lambda: _native.HASH_KEY)
    """Key of the hashes of pairs of endpoints, which are compared between processes."""

    def rows(
        self, make: Make, reader: FrameReader, builder: TableBuilder,
        progress: Callable[[int, int], None],
    ) -> Iterator[TableRows]:  # fmt: skip
        """The rows of all runs, in order. `make` returns stages like `reader` and `builder`.

        `progress` is called with the packets and bytes of each block. At the end, `reader` and
        `builder` have the state of one process. Raises DissectorError if a process ends before its
        work is done.
        """
        joiner = Joiner(reader, builder, self.block_bytes, self.limits, progress)
        names = list(reader.captures)

        def work(number: int, known: set[Broker]) -> tuple[RunResult, IO[bytes]]:
            file = tempfile.TemporaryFile(prefix="kafka-dissector-")  # noqa: SIM115 - the parent gets it
            return self.dissect(number, make, names, RowFile(file), known), file

        with Workers() as workers:
            results = workers.map(
                work, range(1, len(self.runs)), self.jobs, AHEAD * self.jobs,
                lambda: set(reader.streams.brokers),
            )  # fmt: skip
            yield from joiner.read(self.runs[0])
            for run, (result, stored) in zip(self.runs[1:], results, strict=True):
                joined = joiner.join(run, result)
                yield from joined.rows(stored, reader.streams.connections.number)
            yield from joiner.finish()

    def dissect(
        self, number: int, make: Make, names: Sequence[str], file: RowFile,
        known: Collection[Broker] = (),
    ) -> RunResult:  # fmt: skip
        """Dissect a run; see `worker.dissect`."""
        run = self.runs[number]
        before = self.runs[number - 1] if number else None
        warm_up = before and run.warm_up(self.warm_up_bytes, before, names)
        return dissect(
            run, warm_up, make, names, self.block_bytes, known, self.hash_key, file,
            is_first=before is None,
        )  # fmt: skip


def plan(source: FileSource | None, jobs: int, limits: tuple[int, int]) -> Plan | None:
    """The plan for several processes; None if one process is faster, or the only way."""
    if jobs < 2 or source is None or not can_fork():
        return None
    if source.total_bytes is None or source.total_bytes < LEAST_BYTES:
        return None
    return divided(source, source.total_bytes // jobs, jobs, limits)


def divided(
    source: FileSource, run_bytes: int, jobs: int, limits: tuple[int, int],
    times: tuple[int, int] = (BEFORE_ALL, AFTER_ALL),
) -> Plan | None:  # fmt: skip
    """The plan of runs of about `run_bytes`; None if the files cannot be divided.

    `times`: only packets from the first to before the second; ns.
    """
    size = min(max(run_bytes, planning.LEAST_RUN), planning.MOST_RUN)
    runs = planning.plan(source, size)
    if runs is None or len(runs) < 2:
        return None
    warm_up = min(int(size / planning.WARM_UP), planning.MOST_WARM_UP)
    runs = [replace(run, times=times) for run in runs]
    return Plan(runs, warm_up, min(jobs, len(runs)), source.block_bytes, limits)
