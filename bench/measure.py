"""Measures whole processes: wall time, CPU time, peak memory; and functions, on one core.

Programs run in turn on the same file (A B C A B C …), so that other load affects all of them. The
file is read once before, and no cache is dropped, so it is warm for all programs.

The kernel includes the memory of the parent at the start of a child in the child's peak. So the
measuring process stays small: it imports neither NumPy nor the project, and inputs are made in
another process.
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
from typing import TypeVar

TIMEOUT = 300.0
"""Timeout of a process, in seconds."""
MOST_SECONDS = 80.0
"""Limit for the sum of a program's runs, in seconds; then it does not run again."""

TICKS = os.sysconf("SC_CLK_TCK")

Load = TypeVar("Load")
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a process."""

    wall: float
    """Seconds."""
    cpu: float
    """Seconds, user and system."""
    memory: int
    """Peak resident set in bytes."""
    failure: str = ""
    """The error: not installed, or the last line of standard error."""


@dataclass(slots=True)
class Series:
    """All runs of one program on one file."""

    runs: list[Run] = field(default_factory=list)

    @property
    def failure(self) -> str:
        """The error of a failed run, or an empty string."""
        return next((run.failure for run in self.runs if run.failure), "")

    @property
    def walls(self) -> list[float]:
        """Wall times in seconds, ascending."""
        return sorted(run.wall for run in self.runs)

    @property
    def wall(self) -> float:
        """Median wall time in seconds."""
        return statistics.median(self.walls)

    @property
    def cpu(self) -> float:
        """Median CPU time in seconds."""
        return statistics.median(run.cpu for run in self.runs)

    @property
    def memory(self) -> int:
        """Largest peak memory in bytes."""
        return max(run.memory for run in self.runs)


def run(command: Sequence[str]) -> Run:
    """Run a process to its end, without its standard output."""
    with tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        try:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        except FileNotFoundError:
            return Run(0.0, 0.0, 0, f"{Path(command[0]).name} is not installed")
        timer = threading.Timer(TIMEOUT, process.kill)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        failure = _last_line(errors.read()) if process.returncode else ""
        if failure and time.perf_counter() - begin >= TIMEOUT:
            failure = f"stopped after {TIMEOUT:.0f} s"
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, failure)


def _last_line(errors: bytes) -> str:
    lines = [line.strip(" │╰╯─") for line in errors.decode(errors="replace").split("\n")]
    return next(filter(None, reversed(lines)), "failed without a message")


def in_turn(
    commands: Mapping[str, Sequence[str]], rounds: int, progress: Progress
) -> dict[str, Series]:
    """Run all commands in turn, for several rounds."""
    results = {name: Series() for name in commands}
    for number in range(rounds):
        for name, command in commands.items():
            series = results[name]
            if series.failure or sum(series.walls) > MOST_SECONDS:
                continue
            progress(f"round {number + 1} of {rounds}: {name}")
            series.runs.append(run(command))
    return results


def processor_time(pid: int) -> float:
    """CPU seconds of a running process, user and system (proc(5), fields 14 and 15 of stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / TICKS


def best_rates(
    functions: Mapping[str, Callable[[Load], int]], load: Load, rounds: int
) -> dict[str, float]:
    """What each function returns, its number of items, per second of CPU time: the best round.

    They run in turn on one core, so that other load affects all of them.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    best = dict.fromkeys(functions, 0.0)
    for _ in range(rounds):
        for name, function in functions.items():
            begin = time.process_time()
            count = function(load)
            best[name] = max(best[name], count / (time.process_time() - begin))
    return best


def warm(path: Path) -> None:
    """Read a file once, so that it is in the page cache."""
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
