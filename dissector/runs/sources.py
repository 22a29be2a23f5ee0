"""The source of the packets of a run, and where it stops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from dissector.arrays import mutable
from dissector.errors import CaptureError, reason
from dissector.packets.block import PacketBlock
from dissector.packets.capture_reader import CaptureReader, ReadState
from dissector.packets.file_ranges import RangeSource, primed, start_of
from dissector.packets.files import PACKET_BYTES, PACKETS, SMALLEST_BLOCK, FileSource, TimeRange
from dissector.packets.fragments import Fragments
from dissector.packets.layers import parse_packets
from dissector.runs.blocks import within
from dissector.runs.plan import AnyRun, Run, TimeRun


@mutable
class Position:
    """Where a source of a run stopped; the next one can go on there."""

    reader: ReadState | None
    """None at the start of a file, and in a range of time."""
    fragments: Fragments
    pending: tuple[tuple[int, int], ...] = ()
    """Files that have packets behind a range of time: as in `TimeRun.files`."""

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
        self._packet_bytes = PACKET_BYTES
        self._fragments = position.fragments if position else Fragments()
        self._has_finished = False
        state = position.reader if position else None
        if state is None:
            state = start_of(run.path, self.secrets)
            if run.begin:
                state = ReadState(primed(run.path, self.secrets), run.begin)
        self._input = RangeSource(run.path, state.offset, run.end, is_last=run.ends_file)
        self._reader = CaptureReader(run.path, self._input, state)

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
        is_same = self._reader.form.context == primed(self._run.path, []).context
        return is_same and self._reader.is_between_packets

    @property
    def packets(self) -> int:
        """Number of the last packet."""
        return self._reader.state.packets

    def read(self, reserve: int) -> PacketBlock | None:
        if self._input.consumed < self._input.size:
            room = min(self._block_bytes, int(PACKETS * self._packet_bytes))
            room = min(max(room, SMALLEST_BLOCK), self._block_bytes)
            if (records := self._reader.read(reserve, room)) is not None:
                if len(records.number):
                    self._packet_bytes = (len(records.data) - reserve) / len(records.number)
                capture = np.full(len(records.number), self._run.file, np.int32)
                block = parse_packets(records, capture, self.names, self._fragments)
                return within(block, self._run.times)
        if self._run.is_last and not self._has_finished:
            self._has_finished = True
            if problems := self._fragments.finish():
                return replace(PacketBlock.empty(reserve), problems=problems)
        return None

    def close(self) -> None:
        self._reader.close()


class TimeSource(FileSource):
    """The packets of a range of time: a `PacketSource`. Numbers of packets are those of files."""

    packets: Final = 0
    """Number of packets of the file before the first one."""

    def __init__(
        self, names: list[str], run: TimeRun, block_bytes: int, position: Position | None,
        secrets: list[bytes],
    ) -> None:  # fmt: skip
        """`position`, `secrets`: see `RunSource`."""
        files = {*run.files, *(position.pending if position else ())}
        limits = TimeRange(tuple(sorted(files)), run.since, run.until, run.is_last)
        super().__init__(names, block_bytes, limits)
        self.secrets = secrets
        self._times = run.times
        if position:
            self._fragments = position.fragments

    def read(self, reserve: int) -> PacketBlock | None:
        block = super().read(reserve)
        return None if block is None else within(block, self._times)

    @property
    def position(self) -> Position:
        """What the next run needs."""
        return Position(None, self._fragments, tuple(self.pending))

    @property
    def is_between_packets(self) -> bool:
        """Whether the next run can be read without this one: no datagram is incomplete."""
        return not self._fragments.is_waiting


def opened(
    names: Sequence[str], run: AnyRun, block_bytes: int, position: Position | None = None,
    secrets: list[bytes] | None = None,
) -> RunSource | TimeSource:  # fmt: skip
    """The source of a run. Raises CaptureError if the file cannot be read any more."""
    key_logs = [] if secrets is None else secrets
    if isinstance(run, TimeRun):
        return TimeSource([*names], run, block_bytes, position, key_logs)
    try:
        return RunSource([*names], run, block_bytes, position, key_logs)
    except OSError as error:
        raise CaptureError(f"{run.path}: {reason(error)}") from error
