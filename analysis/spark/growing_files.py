"""The files of a stream: how far they were read, and the packets that were added since.

A file continues where its last complete packet ended. A compressed file is read again from its
beginning, without the packets that were read before.

A file that ends within a packet may grow, and a file that is missing may be about to be renamed. So
such a file becomes a problem only when the capture has advanced by the watermark since then, when
the stream has forgotten the file, or at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from analysis.spark.file_offsets import WHOLE, FileInfo, Offset
from dissector.packets.files import AFTER_ALL, BEFORE_ALL, FileSource, Lane, TimeRange
from dissector.packets.formats.byte_input import RangeSource
from dissector.packets.formats.capture_reader import CaptureReader, PacketRecords, ReadState
from dissector.packets.formats.file_ranges import start_of
from dissector.packets.paths import open_reader
from dissector.problems import Problem
from dissector.streams.limits import SECOND

_UNNAMED: Final = -1


@dataclass(slots=True)
class FilePosition:
    """The position up to which a file was read."""

    capture: int = _UNNAMED
    """Index of its name."""
    state: ReadState | None = None
    """Position after its last complete packet; None if nothing was read."""
    seen: int = 0
    """Size of the file at that time; WHOLE for a file that was read as a whole."""
    latest: int = BEFORE_ALL
    """Latest time of its packets; ns."""
    missed: int = 0
    """Size of the file before it disappeared, or WHOLE."""
    problems: list[Problem] = field(default_factory=list)
    """The problems to report if the file does not grow."""
    since: int = BEFORE_ALL
    """The time of the capture when `problems` were set; ns."""


class GrowingFiles(FileSource):
    """The packets of the files of a stream, batch by batch; may be pickled between two batches."""

    def __init__(self, block_bytes: int, *, expects_secrets: bool = False) -> None:
        """`expects_secrets`: whether `secrets` may grow while they are still empty."""
        super().__init__([], block_bytes, TimeRange((), BEFORE_ALL, AFTER_ALL, is_last=False))
        self.expects_secrets = expects_secrets
        self.latest = BEFORE_ALL
        """The time that the capture has reached; ns."""
        self._positions: dict[str, FilePosition] = {}
        self._coming: dict[int, tuple[FilePosition, str, int]] = {}
        """Position, path and end of the files of a batch, by index."""

    def take(self, end: Offset, present: Mapping[str, FileInfo]) -> None:
        """Add the unread part of each file up to an offset. `present`: the existing files."""
        self._coming.clear()
        self._limits = replace(self._limits, is_last=end["ended"])
        for file_id, size in end["files"].items():
            position = self._positions.setdefault(file_id, FilePosition())
            info = present.get(file_id)
            if info is None or position.seen in (WHOLE, size):
                continue
            if position.capture == _UNNAMED:
                position.capture = len(self.names)
                self.names.append(info.path)
            until = WHOLE if WHOLE in (size, info.size) else size
            path = str(Path(info.path).absolute())
            position.seen, position.problems = until, []
            self._coming[position.capture] = position, path, until
            self._closed.append((max(info.start, position.latest), position.capture))
        self._closed.sort()

    def _reader(self, index: int) -> CaptureReader:
        position, path, until = self._coming[index]
        if until == WHOLE:
            reader = open_reader(path, self.secrets)
            reader.name = self.names[index]
            return reader
        state = position.state or start_of(path, self.secrets)
        source = RangeSource(path, state.offset, until, is_last=False)
        return CaptureReader(self.names[index], source, state)

    def _read(self, lane: Lane, reserve: int, room: int) -> PacketRecords | None:
        position, _, until = self._coming[lane.index]
        if until != WHOLE and lane.reader.is_exhausted:
            return None
        records = super()._read(lane, reserve, room)
        state = position.state
        if records is None or until != WHOLE or state is None:
            return records
        # Problems of packets are not known by their offset: they are reported again.
        new = records.number > state.packets
        problems = [p for p in records.problems if (p.offset or 0) >= state.offset]
        return replace(
            records, columns=records.columns[new.nonzero()[0]], number=records.number[new],
            problems=problems,
        )  # fmt: skip

    def _end(self, lane: Lane) -> None:
        super()._end(lane)
        position, _, until = self._coming[lane.index]
        position.latest = max(position.latest, lane.latest)
        position.state = lane.reader.state
        self.latest = max(self.latest, lane.latest)
        position.problems = [] if until == WHOLE else lane.reader.problems_at(until)

    def abandoned(self, end: Offset, watermark: int) -> Iterator[Problem]:
        """Problems of files that are no longer waited for. `watermark`: s."""
        for position, _, _ in self._coming.values():
            position.since = self.latest
        for file_id, size in end["files"].items():
            position = self._positions[file_id]
            if position.seen not in (WHOLE, size) and position.missed != size:
                position.missed, position.since = size, self.latest
                position.problems = [self._disappeared(file_id, position)]
        for file_id, position in [*self._positions.items()]:
            is_known = file_id in end["files"]
            is_over = self.latest - position.since >= watermark * SECOND
            if end["ended"] or not is_known or is_over:
                yield from position.problems
                position.problems = []
            if not is_known:
                del self._positions[file_id]

    def _disappeared(self, file_id: str, position: FilePosition) -> Problem:
        name = None if position.capture == _UNNAMED else self.names[position.capture]
        offset = position.state.offset if position.state else 0
        detail = f"file {file_id} disappeared before it was read"
        return Problem("packets", "unreadable_file", detail, capture=name, offset=offset)
