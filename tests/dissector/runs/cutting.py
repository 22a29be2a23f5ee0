"""Cuts captures into runs, and dissects these in one process or in several."""

from __future__ import annotations

import pickle
import random
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from dissector import runs
from dissector.packets import open_packets
from dissector.packets.formats.file_ranges import boundary
from dissector.pipeline import Pipeline
from dissector.problems import FILE_KINDS
from dissector.runs.joining import Counts, Joiner
from dissector.runs.plan import AnyRun, Run
from dissector.runs.processes import Workers
from dissector.tables import TABLES
from tests.captures.recorded import unpacked

MEMORY = 512 << 20


def plain(path: Path, folder: Path) -> Path:
    """A copy of a capture that is not compressed."""
    copy = folder / path.name.removesuffix(".zst")
    copy.write_bytes(unpacked(path))
    return copy


def cut(paths: Sequence[Path], count: int, generator: random.Random) -> list[Run]:
    """About `count` runs of each file, cut at random positions."""
    parts = []
    for index, path in enumerate(paths):
        size = path.stat().st_size
        guesses = [boundary(str(path), generator.randrange(24, size)) for _ in range(count - 1)]
        borders = [0, *sorted({each for each in guesses if each and each < size}), size]
        parts += [Run(index, begin, end, end == size) for begin, end in pairwise(borders)]
    return [*parts[:-1], replace(parts[-1], is_last=True)]


def in_this_process(
    self: Workers, work: Callable[[int, Any], tuple[Any, IO[bytes]]], numbers: range, jobs: int,
    ahead: int, known: Callable[[], Any],
) -> Iterator[tuple[Any, pa.Buffer]]:  # fmt: skip
    """`Workers.map` without processes."""
    for number in numbers:
        result, file = work(number, known())
        with file:
            file.seek(0)
            yield pickle.loads(pickle.dumps(result)), pa.py_buffer(file.read())


def tables(
    paths: Sequence[Path], names: Collection[str] = tuple(TABLES), **options: Any
) -> dict[str, pa.Table]:
    """Tables of one process."""
    return Pipeline(open_packets(paths), [], **options).tables(names)


def joined(
    paths: Sequence[Path], parts: Sequence[AnyRun], *, warm_up: int, jobs: int = 2,
    limits: tuple[int, int] = (MEMORY // 4, MEMORY // 8), names: Collection[str] = tuple(TABLES),
) -> tuple[dict[str, pa.Table], Counts]:  # fmt: skip
    """Tables of runs, and what happened at their borders."""
    joiners: list[Joiner] = []
    make = runs.Joiner

    def kept(*arguments: Any) -> Joiner:
        joiners.append(make(*arguments))
        return joiners[-1]

    source = open_packets(paths)
    plan = runs.Plan(parts, warm_up, jobs, source.block_bytes, limits)
    runs.Joiner = kept  # type: ignore[assignment, misc]
    try:
        pipeline = Pipeline(source, [], plan=plan)
        rows = pipeline.tables(names)
    finally:
        runs.Joiner = make  # type: ignore[misc]
    if "problems" in names:
        kinds = [kind for kind in rows["problems"]["kind"].to_pylist() if kind in FILE_KINDS]
        assert sorted(each.kind for each in pipeline.file_problems) == sorted(kinds)
    return rows, joiners[0].counts


def differences(expected: dict[str, pa.Table], actual: dict[str, pa.Table]) -> list[str]:
    """Tables whose rows differ, in any order."""
    return [
        name
        for name, table in expected.items()
        if not _sorted(actual[name]).equals(_sorted(table))
        and sorted(map(repr, actual[name].to_pylist())) != sorted(map(repr, table.to_pylist()))
    ]


def _sorted(table: pa.Table) -> pa.Table:
    keys = [field.name for field in table.schema if not pa.types.is_nested(field.type)]
    return table.sort_by([(name, "ascending") for name in keys])


def may_mount() -> bool:
    """Whether file systems can be mounted in a namespace."""
    if shutil.which("unshare") is None:
        return False
    words = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /mnt"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0
