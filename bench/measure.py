"""Whole processes, measured: wall time, processor time, peak memory.

Programs run in turn on the same file (A B C A B C …), so that whatever else the machine does falls
on all of them alike. The file is read once before, and no cache is dropped: it is warm for
everyone.

The kernel counts into a child's peak memory what its parent held when it was started. So the
process that measures stays small: it imports neither NumPy nor the project, and leaves the making
of inputs to a process of its own.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LONGEST = 300.0
"""Seconds after which a process is ended."""
PATIENCE = 30.0
"""Seconds that the runs of one program may take together before it runs no more."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Run:
    """One process, from start to end."""

    wall: float
    """Seconds."""
    cpu: float
    """Seconds, user and system."""
    memory: int
    """Peak resident set in bytes."""
    failure: str = ""
    """Why it is no good: not installed, or the last line of what it said."""


@dataclass(slots=True)
class Series:
    """All runs of one program on one file."""

    runs: list[Run] = field(default_factory=list)

    @property
    def failure(self) -> str:
        """Why there are no figures; empty where there are."""
        return next((run.failure for run in self.runs if run.failure), "")

    @property
    def walls(self) -> list[float]:
        """Seconds, ascending."""
        return sorted(run.wall for run in self.runs)

    @property
    def wall(self) -> float:
        """Seconds; the median."""
        return statistics.median(self.walls)

    @property
    def cpu(self) -> float:
        """Seconds; the median."""
        return statistics.median(run.cpu for run in self.runs)

    @property
    def memory(self) -> int:
        """Bytes; the largest."""
        return max(run.memory for run in self.runs)


def run(command: Sequence[str]) -> Run:
    """Run a process to its end; what it writes to standard output is thrown away."""
    with tempfile.TemporaryFile() as said:
        begin = time.perf_counter()
        try:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        except FileNotFoundError:
            return Run(0.0, 0.0, 0, f"{Path(command[0]).name} is not installed")
        timer = threading.Timer(LONGEST, process.kill)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        failure = _last_line(said.read()) if process.returncode else ""
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, failure)


def _last_line(said: bytes) -> str:
    lines = [line.strip(" │╰╯─") for line in said.decode(errors="replace").split("\n")]
    return next(filter(None, reversed(lines)), "it failed, and said nothing")


def in_turn(commands: Mapping[str, Sequence[str]], rounds: int, say: Say) -> dict[str, Series]:
    """Run all commands, so many times, one after the other in each round."""
    found = {name: Series() for name in commands}
    for number in range(rounds):
        for name, command in commands.items():
            series = found[name]
            if series.failure or sum(series.walls) > PATIENCE:
                continue
            say(f"round {number + 1} of {rounds}: {name}")
            series.runs.append(run(command))
    return found


def warm(path: Path) -> None:
    """Read a file once, so that it is in the page cache."""
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
