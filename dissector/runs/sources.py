"""The source of the packets of a run, and where it stops."""

from __future__ import annotations

from collections.abc import Sequence

from dissector.arrays import mutable
from dissector.errors import CaptureError, reason
from dissector.packets.block import PacketBlock
from dissector.packets.files import AFTER_ALL, BEFORE_ALL, FileSource, Lane, TimeRange
from dissector.packets.formats.byte_input import RangeSource
from dissector.packets.formats.capture_reader import CaptureReader, PacketRecords, ReadState
from dissector.packets.formats.file_ranges import primed, start_of
from dissector.packets.layers.fragments import Fragments
from dissector.runs.blocks import within
from dissector.runs.plan import AnyRun, Run, TimeRun


@mutable
class Position:
    """Where a source of a run stopped; the next one can continue there."""

    reader: ReadState | None
    """None at the start of a file, and in a range of time."""
    fragments: Fragments
    pending: tuple[tuple[int, int], ...] = ()
    """Files that have packets after a range of time: as in `TimeRun.files`."""
    is_packet: bool = True
    """Whether the next run begins with a packet, in the state at the head of the file."""

    @property
    def packets(self) -> int:
        """Packets of the file before this position."""
        return self.reader.packets if self.reader else 0

    @property
    def is_certain(self) -> bool:
        """Whether the next run can be read without those before it: no datagram is incomplete."""
        return self.is_packet and not self.fragments.is_waiting


class RunSource(FileSource):
    """The packets of a run: a `PacketSource`."""

    def __init__(
        self, names: Sequence[str], run: AnyRun, block_bytes: int,
        position: Position | None = None, secrets: list[bytes] | None = None,
    ) -> None:  # fmt: skip
        """`position`: continue there; None: numbers of packets of a `Run` are counted from 1.
        `secrets`: takes the TLS key logs in the run.

        Raises CaptureError if the file cannot be read any more.
        """
        limits = TimeRange((), BEFORE_ALL, AFTER_ALL, run.is_last)
        if isinstance(run, TimeRun):
            files = {*run.files, *(position.pending if position else ())}
            limits = TimeRange(tuple(sorted(files)), run.since, run.until, run.is_last)
        super().__init__([*names], block_bytes, limits)
        self.secrets = [] if secrets is None else secrets
        self._run = run
        self._range: CaptureReader | None = None
        if position:
            self._fragments = position.fragments
        if isinstance(run, Run):
            try:
                self._range = self._range_of(run, position.reader if position else None)
            except OSError as error:
                raise CaptureError(f"{names[run.file]}: {reason(error)}") from error
            self._add_lane(run.file, self._range, BEFORE_ALL)

    def _range_of(self, run: Run, state: ReadState | None) -> CaptureReader:
        path = self.names[run.file]
        if state is None:
            state = start_of(path, self.secrets)
            if run.begin:
                state = ReadState(primed(path, self.secrets), run.begin)
        source = RangeSource(path, state.offset, run.end, is_last=run.ends_file)
        return CaptureReader(path, source, state)

    @property
    def position(self) -> Position:
        """Where the next run begins."""
        run, reader = self._run, self._range
        if reader is None or not isinstance(run, Run) or run.ends_file:
            return Position(None, self._fragments, tuple(self.pending))
        is_same = reader.form.context == primed(self.names[run.file], []).context
        is_packet = is_same and reader.is_between_packets
        return Position(reader.state, self._fragments, is_packet=is_packet)

    @property
    def packets(self) -> int:
        """Number of the last packet of a `Run`."""
        return self._range.state.packets if self._range else 0

    def read(self, reserve: int) -> PacketBlock | None:
        block = super().read(reserve)
        return None if block is None else within(block, self._run.times)

    def _read(self, lane: Lane, reserve: int, room: int) -> PacketRecords | None:
        return None if lane.reader.is_exhausted else super()._read(lane, reserve, room)
