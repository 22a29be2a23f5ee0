"""The plan: the runs of a capture, and the source of the packets of a run.

A run is a byte range of a file. It ends where a packet is likely to begin. Whether that is so shows
when the run is read: `RunSource.is_between_packets`.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from dissector.errors import CaptureError
from dissector.packets.block import PacketBlock
from dissector.packets.capture_reader import CaptureReader, ReadState
from dissector.packets.file_ranges import (
    RangeSource,
    boundary,
    last_time,
    primed,
    size_of,
    start_of,
)
from dissector.packets.files import PACKETS, FileSource
from dissector.packets.fragments import Fragments
from dissector.packets.layers import parse_packets

LEAST_RUN, MOST_RUN = 64 << 20, 1 << 30
"""Limits of the size of a run, in bytes. Within them, each process gets one."""
WARM_UP: Final = 32
MOST_WARM_UP: Final = 16 << 20
"""The state of connections is learned from the bytes before a run: as many as a 32nd of the run, at
most `MOST_WARM_UP`."""
_PACKET_BYTES: Final = 160.0
_SMALLEST_BLOCK: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Run:
    """The bytes [begin, end) of a file."""

    file: int
    """Index of the file in the names of the source."""
    path: str
    begin: int
    """0: the start of the file."""
    end: int
    is_first: bool
    """No run is before it; `is_last`: no run follows."""
    is_last: bool
    ends_file: bool

    def warm_up(self, size: int, before: Run) -> Run | None:
        """The last `size` bytes before this run. `before`: the run before it."""
        begin = boundary(before.path, before.end - size) if before.end > size else 0
        if begin is None or begin >= before.end:
            return None
        return replace(before, begin=begin, is_first=False, is_last=False)


def plan(source: FileSource, run_bytes: int) -> list[Run] | None:
    """The runs of files that follow each other in time; None if the files cannot be divided."""
    sequence = source.sequence
    if not sequence or source.secrets:
        return None
    latest = None
    runs: list[Run] = []
    for index, start in sequence:
        path = source.names[index]
        size = _divisible_size(path)
        if size is None or (latest is not None and start <= latest):
            return None
        if len(sequence) > 1 and (latest := last_time(path)) is None:
            return None
        runs += _runs_of(index, path, size, run_bytes)
    runs[0] = replace(runs[0], is_first=True)
    runs[-1] = replace(runs[-1], is_last=True)
    return runs


def _divisible_size(path: str) -> int | None:
    """Size of a plain local file; None for other ones."""
    try:
        return size_of(path) if stat.S_ISREG(Path(path).stat().st_mode) else None
    except OSError:
        return None


def _runs_of(index: int, path: str, size: int, run_bytes: int) -> list[Run]:
    count = max(round(size / run_bytes), 1)
    guesses = (boundary(path, size * number // count) for number in range(1, count))
    borders = [0, *sorted({each for each in guesses if each is not None and each < size}), size]
    return [
        Run(index, path, begin, end, False, False, end == size) for begin, end in pairwise(borders)
    ]


@dataclass(slots=True)
class Position:
    """Where a source of a run stopped; the next one can go on there."""

    reader: ReadState | None
    """None at the start of a file."""
    fragments: Fragments

    @property
    def packets(self) -> int:
        """Packets of the file before this position."""
        return self.reader.packets if self.reader else 0


class RunSource:
    """The packets of a run: a `PacketSource`."""

    def __init__(
        self, names: list[str], run: Run, block_bytes: int, position: Position | None,
        secrets: list[bytes],
    ) -> None:  # fmt: skip
        """`position`: go on there; None: numbers of packets are counted from 1. `secrets`: takes
        the TLS key logs in the run."""
        self.names = names
        self.total_bytes: int | None = None
        self.secrets = secrets
        self._run = run
        self._block_bytes = block_bytes
        self._packet_bytes = _PACKET_BYTES
        self._fragments = position.fragments if position else Fragments()
        self._has_finished = False
        state = position.reader if position else None
        if state is None:
            form, first = start_of(run.path, self.secrets)
            form = primed(run.path) if run.begin else form
            state = ReadState(form, run.begin or first, 0, None, 0)
        self._input = RangeSource(run.path, state.offset, run.end, is_last=run.ends_file)
        self._reader = CaptureReader.go_on(run.path, self._input, state)

    @property
    def position(self) -> Position:
        """Where the next run begins."""
        ended = self._run.ends_file
        return Position(None if ended else self._reader.state, self._fragments)

    @property
    def is_between_packets(self) -> bool:
        """Whether the next run can be read without this one: it begins with a packet, in the state
        at the head of the file, and no datagram is incomplete."""
        if self._fragments.is_waiting:
            return False
        if self._run.ends_file:
            return True
        is_same = self._reader.context == primed(self._run.path).context
        return is_same and self._reader.is_between_packets

    @property
    def packets(self) -> int:
        """Number of the last packet."""
        return self._reader.state.packets

    def read(self, reserve: int) -> PacketBlock | None:
        """The next block, with `reserve` free bytes at the front; None at the end."""
        if self._input.consumed < self._input.size:
            room = min(self._block_bytes, int(PACKETS * self._packet_bytes))
            room = min(max(room, _SMALLEST_BLOCK), self._block_bytes)
            if (records := self._reader.read(reserve, room)) is not None:
                if len(records.number):
                    self._packet_bytes = (len(records.data) - reserve) / len(records.number)
                capture = np.full(len(records.number), self._run.file, np.int32)
                return parse_packets(records, capture, self.names, self._fragments)
        if self._run.is_last and not self._has_finished:
            self._has_finished = True
            if problems := self._fragments.finish():
                return replace(PacketBlock.empty(reserve), problems=problems)
        return None

    def close(self) -> None:
        """Close the file."""
        self._reader.close()


def opened(
    names: Sequence[str], run: Run, block_bytes: int, position: Position | None = None,
    secrets: list[bytes] | None = None,
) -> RunSource:  # fmt: skip
    """The source of a run. Raises CaptureError if the file cannot be read any more."""
    try:
        return RunSource([*names], run, block_bytes, position, [] if secrets is None else secrets)
    except OSError as error:
        raise CaptureError(f"{run.path}: {error.strerror or error}") from error
