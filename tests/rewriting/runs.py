"""One random case of runs: a recording behind another network, cut into runs.

The rows of all tables must be those of one process in one block, `problems` and the counts of
connections included. `tests/dissector/runs` does the same for recordings as they are.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dissector.runs import worker
from dissector.runs.processes import Workers
from tests.dissector.runs.cutting import cut, differences, in_this_process, joined, tables
from tests.rewriting.cases import REPEATED_IDS, drawn_name, write
from tests.rewriting.flows import recording
from tests.rewriting.network import Options, Packet, drawn, packets

LARGEST = 600_000
"""Largest size of a recording in bytes."""
PORTS_USED_AGAIN = "kafka-4-unbalanced.pcap.zst"
"""Not used. A packet that arrives before the SYN of its connection, in the block before, belongs to
the earlier connection of its ports, as far as a reader can know."""


@dataclass
class RunsCase:
    """Random options, and the tables that differ."""

    seed: int
    name: str
    options: Options
    runs: int
    warm_up: int
    different: list[str]

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.name}, {self.options}, {self.runs} runs, "
            f"{self.warm_up} bytes before each: {self.different} differ"
        )


def run_cut(seed: int, folder: Path) -> RunsCase:
    """Draw a case by its seed, write its files into a folder, and read them in both ways."""
    chance = random.Random(seed)
    while (name := drawn_name(chance, LARGEST)) == PORTS_USED_AGAIN:
        pass
    whole = recording(name)
    has_repeated_ids = any(part in name for part in REPEATED_IDS)
    options = drawn(chance, whole.size, has_repeated_ids=has_repeated_ids)
    options = replace(options, files=chance.choice(["one", "cut"]))
    frames = packets(whole, options, chance)
    if _overlap(frames):  # a plan divides such files by time, not by bytes
        frames = [replace(each, file=0) for each in frames]
    paths = write(folder, frames)
    parts = cut(paths, chance.choice([2, 5, 20]), chance)
    warm_up = chance.choice([0, 20_000, 1 << 30])
    with _small_runs(chance):
        actual, _ = joined(paths, parts, warm_up=warm_up)
    different = differences(tables(paths), actual)
    return RunsCase(seed, name, options, len(parts), warm_up, different)


def _overlap(frames: list[Packet]) -> bool:
    """Whether the second of two files begins before the first one ends."""
    first, second = ([each.time for each in frames if each.file == file] for file in (0, 1))
    return bool(second) and min(second) <= max(first)


@contextmanager
def _small_runs(chance: random.Random) -> Iterator[None]:
    """No processes; and states are learned from few packets, as a small run has no more."""
    before = Workers.map, worker.LEAST_PACKETS, worker.FIRST_PART
    Workers.map = in_this_process
    worker.LEAST_PACKETS = chance.choice([1, 5, 50, 4000])
    worker.FIRST_PART = chance.choice([2, 4, 20])
    try:
        yield
    finally:
        Workers.map, worker.LEAST_PACKETS, worker.FIRST_PART = before
