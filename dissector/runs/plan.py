"""The plan: the runs of a capture.

A run is a byte range of a large file (`Run`), or a range of time of several files (`TimeRun`).

A byte range ends where a packet is likely to begin. Whether that is so shows when the run is read:
`sources.Position.is_packet`.

A range of time may be read from files of any kind: compressed, small, or of several capture points,
which overlap. It begins with the first packet of a file. A file that it shares with the range
before is read again from its beginning, so a plan is made only if most files are in one range. How
far a file reaches is an assumption. If it reaches further, the next run is read by the parent:
`sources.Position.pending`.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias

from dissector.arrays import value
from dissector.packets.files import AFTER_ALL, BEFORE_ALL, FileSource
from dissector.packets.formats.file_ranges import boundary, last_time, size_of
from dissector.packets.formats.remote import is_url

LEAST_RUN, MOST_RUN = 64 << 20, 1 << 30
"""Limits of the size of a run, in bytes. Within them, each process gets one."""
WARM_UP: Final = 64
MOST_WARM_UP: Final = 16 << 20
"""The state of connections is learned from the bytes before a run: as many as a 64th of the run, at
most `MOST_WARM_UP`. The parent dissects the first packets of connections that they do not show."""
MARGIN: Final = 10**9
"""ns; packets of a file may be later than the first packet of the file that follows it."""
MOST_REPEATED: Final = 2
"""Maximum number of bytes that are read in runs, relative to the bytes of all files."""


@value
class Run:
    """The bytes [begin, end) of a file."""

    file: int
    """Index of the file in the names of the source."""
    begin: int
    """0: the start of the file."""
    end: int
    ends_file: bool
    is_last: bool = False
    """No run follows."""
    times: tuple[int, int] = (BEFORE_ALL, AFTER_ALL)
    """Packets before the first time, and those from the second on, are skipped; ns."""

    def warm_up(self, size: int, before: AnyRun, names: Sequence[str]) -> Run | None:
        """The last `size` bytes before this run. `before`: the run before it."""
        assert isinstance(before, Run)
        begin = boundary(names[before.file], before.end - size) if before.end > size else 0
        if begin is None or begin >= before.end:
            return None
        return replace(before, begin=begin)


@value
class TimeRun:
    """The packets of files in a range of time."""

    files: tuple[tuple[int, int], ...]
    """Time of the first packet, and index in the names of the source."""
    since: int
    """ns; of the first run: before all packets."""
    until: int
    bytes: int
    """Bytes of the files that begin in the run."""
    is_last: bool = False
    times: tuple[int, int] = (BEFORE_ALL, AFTER_ALL)
    """See `Run`."""

    def warm_up(self, size: int, before: AnyRun, names: Sequence[str]) -> TimeRun | None:
        """The last `size` bytes before this run, if bytes are even in time."""
        assert isinstance(before, TimeRun)
        starts = [start for start, _ in before.files if start > BEFORE_ALL]
        begin = max(before.since, min(starts, default=self.since))
        part = (self.since - begin) * min(size / max(before.bytes, 1), 1)
        since = self.since - int(part)
        if since >= self.since:
            return None
        return replace(before, since=since)


AnyRun: TypeAlias = Run | TimeRun


def plan(source: FileSource, run_bytes: int) -> Sequence[AnyRun] | None:
    """The runs of files; None if they cannot be divided."""
    sequence = source.sequence
    if not sequence or source.secrets:
        return None
    is_large = len(sequence) == 1 or min(source.sizes) > run_bytes
    runs: list[Run] | list[TimeRun] | None = _byte_runs(source, run_bytes) if is_large else None
    runs = runs or _time_runs(source, run_bytes)
    return runs and [*runs[:-1], replace(runs[-1], is_last=True)]


def whole(source: FileSource, times: tuple[int, int]) -> TimeRun:
    """A run of all files."""
    files = tuple((start, index) for index, start in source.sequence or ())
    size = sum(source.sizes)
    return TimeRun(files, BEFORE_ALL, AFTER_ALL, size, is_last=True, times=times)


def _byte_runs(source: FileSource, run_bytes: int) -> list[Run] | None:
    """Byte ranges of files that follow each other in time; None if the files cannot be divided."""
    latest = None
    runs: list[Run] = []
    sequence = source.sequence or ()
    for index, start in sequence:
        path = source.names[index]
        size = _divisible_size(path)
        if size is None or (latest is not None and start <= latest):
            return None
        if len(sequence) > 1 and (latest := last_time(path)) is None:
            return None
        runs += _runs_of(index, path, size, run_bytes)
    return runs


def _time_runs(source: FileSource, run_bytes: int) -> list[TimeRun] | None:
    """Ranges of time that begin with files; None if too many files would be read repeatedly."""
    sequence = source.sequence or ()
    cuts, size = [BEFORE_ALL], 0
    sums = [0]
    first = AFTER_ALL  # start of the first file of the latest range, which must contain it
    for index, start in sequence:
        first = min(first, start)
        if size >= run_bytes and start > first:
            cuts.append(start)
            sums.append(0)
            size, first = 0, start
        size += source.sizes[index]
        sums[-1] += source.sizes[index]
    latest = _latest_times(source)
    runs, repeated = [], 0
    for bounds, own in zip(pairwise([*cuts, AFTER_ALL]), sums, strict=True):
        files = [
            (start, index)
            for index, start in sequence
            if start < bounds[1] and latest[index] >= bounds[0]
        ]
        repeated += sum(source.sizes[index] for _, index in files)
        runs.append(TimeRun(tuple(files), *bounds, own))
    return None if repeated > MOST_REPEATED * sum(source.sizes) else runs


def _latest_times(source: FileSource) -> dict[int, int]:
    """How far each file reaches, ns, by its index.

    A compressed file is assumed to end where the next file of its capture point begins: that with a
    name that differs in digits only.
    """
    following: dict[str, int] = {}
    latest = {}
    for index, start in reversed(source.sequence or ()):
        name = source.names[index]
        point = re.sub(r"\d+", "", name)
        known = source.last_times.get(index)
        if known is None and _divisible_size(name) is not None:
            known = last_time(name)
        latest[index] = following.get(point, AFTER_ALL) if known is None else known
        latest[index] += min(MARGIN, AFTER_ALL - latest[index])
        following[point] = start
    return latest


def _divisible_size(path: str) -> int | None:
    """Size of a plain file; None for other ones."""
    try:
        is_file = is_url(path) or stat.S_ISREG(Path(path).stat().st_mode)
        return size_of(path) if is_file else None
    except OSError:
        return None


def _runs_of(index: int, path: str, size: int, run_bytes: int) -> list[Run]:
    count = max(round(size / run_bytes), 1)
    guesses = (boundary(path, size * number // count) for number in range(1, count))
    borders = [0, *sorted({each for each in guesses if each is not None and each < size}), size]
    return [Run(index, begin, end, end == size) for begin, end in pairwise(borders)]
