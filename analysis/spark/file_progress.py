"""Progress: how far the files of a stream were read, and the problems at their ends.

A file that ends within a packet may grow, and a file that is missing may be about to be renamed. So
such a file becomes a problem only when the capture has advanced by the watermark since then, when
the stream has forgotten the file, or at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from analysis.spark.file_offsets import WHOLE, FileInfo, Offset
from analysis.spark.splits import BEFORE_ALL, Split, SplitScan
from dissector.packets.file_ranges import FilePart
from dissector.problems import Problem
from dissector.streams.limits import SECOND

_UNNAMED = -1


@dataclass(frozen=True, slots=True)
class FilePosition:
    """The position up to which a file was read."""

    capture: int = _UNNAMED
    """Index of its name."""
    end: int = 0
    """End of the last complete packet; WHOLE for a file that was read as a whole."""
    seen: int = 0
    """Size of the file at that time, or WHOLE."""
    packets: int = 0
    latest: int = BEFORE_ALL
    """Latest time of its packets; ns."""
    missed: int = 0
    """Size of the file before it disappeared, or WHOLE."""
    problem: Problem | None = None
    """The problem to report if the file does not grow."""
    since: int = BEFORE_ALL
    """The time of the capture when `problem` was set; ns."""


@dataclass(slots=True)
class FileProgress:
    """Positions of all files, by their identifiers; see `file_offsets`."""

    captures: list[str] = field(default_factory=list)
    """Names of the files when they were first seen."""
    latest: int = BEFORE_ALL
    """The time that the capture has reached; ns."""
    _positions: dict[str, FilePosition] = field(default_factory=dict)

    def new_splits(self, end: Offset, present: dict[str, FileInfo]) -> dict[str, Split]:
        """The unread part of each file up to an offset. `present`: the existing files."""
        splits: dict[str, Split] = {}
        for file_id, position, size in self._advanced(end):
            info = present.get(file_id)
            if info is None:
                continue
            if position.capture == _UNNAMED:
                position = replace(position, capture=len(self.captures))
                self.captures.append(info.path)
                self._positions[file_id] = position
            part, skip = FilePart(str(Path(info.path).absolute()), position.end, size), 0
            if WHOLE in (size, info.size):
                part, skip = FilePart(part.path), position.packets
            packets = position.packets - skip
            splits[file_id] = Split(
                position.capture, part, packets, position.latest, skip, is_validated=True
            )
        return splits

    def read(self, scans: dict[str, SplitScan]) -> Iterator[Problem]:
        """Advance to the ends of these scans; yields their problems."""
        self.latest = max([self.latest, *(scan.latest for scan in scans.values())])
        for file_id, scan in scans.items():
            position, end = self._positions[file_id], scan.split.part.end
            is_repeated = end is None and position.packets > 0
            has_new = scan.packets > position.packets
            for problem in scan.problems_in(self.captures):
                if not (is_repeated and _is_reported(problem, position, has_new=has_new)):
                    yield problem
            tail = scan.tail and replace(scan.tail, capture=self.captures[position.capture])
            self._positions[file_id] = replace(
                position,
                end=WHOLE if end is None else end,
                seen=WHOLE if end is None else end + (tail.bytes or 0 if tail else 0),
                packets=scan.split.packets_before + scan.packets,
                latest=max(position.latest, scan.latest),
                problem=tail,
                since=self.latest,
            )

    def abandoned(self, end: Offset, watermark: int) -> Iterator[Problem]:
        """Problems of files that are no longer waited for. `watermark`: s."""
        for file_id, position, size in self._advanced(end):
            if position.missed != size:
                gone = self._disappeared(file_id, position)
                position = replace(position, missed=size, problem=gone, since=self.latest)
                self._positions[file_id] = position
        for file_id, position in [*self._positions.items()]:
            is_known = file_id in end["files"]
            is_over = self.latest - position.since >= watermark * SECOND
            is_due = end["ended"] or not is_known or is_over
            if position.problem and is_due:
                yield position.problem
                self._positions[file_id] = replace(position, problem=None)
            if not is_known:
                del self._positions[file_id]

    def _advanced(self, end: Offset) -> Iterator[tuple[str, FilePosition, int]]:
        """Files with unread data: identifier, position and size."""
        for file_id, size in end["files"].items():
            position = self._positions.get(file_id) or FilePosition()
            if position.end != WHOLE and position.seen != size:
                yield file_id, position, size

    def _disappeared(self, file_id: str, position: FilePosition) -> Problem:
        name = None if position.capture == _UNNAMED else self.captures[position.capture]
        return Problem(
            "packets", "unreadable_file", f"file {file_id} disappeared before it was "
            "read", capture=name, offset=position.end,
        )  # fmt: skip


def _is_reported(problem: Problem, position: FilePosition, *, has_new: bool) -> bool:
    """Whether a problem was reported before the file was read again as a whole.

    `has_new`: the file has new packets. Then problems of packets are reported again, because one
    row may include new packets.
    """
    return not has_new if problem.offset is None else problem.offset < position.end
