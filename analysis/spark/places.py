"""Places: how far the files of a stream were read, and what is wrong where they go no further.

A file that ends within a packet may grow, and one that is not there may be on its way to another
name. So such a file is a problem only when nothing more is waited for: when the capture has gone on
for as long as the watermark since, when the stream has forgotten the file, or at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from analysis.spark.follow import WHOLE, Found, Offset
from analysis.spark.splits import BEFORE_ALL, Look, Split
from dissector.packets.file_ranges import FilePart
from dissector.problems import Problem
from dissector.streams.limits import SECOND

_UNNAMED = -1


@dataclass(frozen=True, slots=True)
class Place:
    """How far a file was read."""

    capture: int = _UNNAMED
    """Index of its name."""
    end: int = 0
    """Byte behind the last whole packet; WHOLE for a file that was read as a whole."""
    seen: int = 0
    """Bytes that the file had then, or WHOLE."""
    packets: int = 0
    latest: int = BEFORE_ALL
    """ns; that of its packets."""
    missed: int = 0
    """Bytes that the file had before it was gone, or WHOLE."""
    wrong: Problem | None = None
    """What is wrong if nothing more comes of it."""
    since: int = BEFORE_ALL
    """ns; how far time had gone on in the capture when that was seen."""


@dataclass(slots=True)
class Places:
    """Those of all files, by their marks; see `follow`."""

    captures: list[str] = field(default_factory=list)
    """Names of the files, as they were first seen."""
    latest: int = BEFORE_ALL
    """ns; how far time has gone on."""
    _places: dict[str, Place] = field(default_factory=dict)

    def unread(self, end: Offset, here: dict[str, Found]) -> dict[str, Split]:
        """What is new in the files up to an offset, by mark; of `here`, the files as they are."""
        items: dict[str, Split] = {}
        for mark, place, size in self._further(end):
            found = here.get(mark)
            if found is None:
                continue
            if place.capture == _UNNAMED:
                place = replace(place, capture=len(self.captures))
                self.captures.append(found.path)
                self._places[mark] = place
            part, skip = FilePart(str(Path(found.path).absolute()), place.end, size), 0
            if WHOLE in (size, found.size):
                part, skip = FilePart(part.path), place.packets
            items[mark] = Split(
                place.capture, part, place.packets - skip, place.latest, skip, is_proved=True
            )
        return items

    def read(self, looks: dict[str, Look]) -> Iterator[Problem]:
        """Move on to where these looks, by mark, have come; what they found wrong."""
        self.latest = max([self.latest, *(look.latest for look in looks.values())])
        for mark, look in looks.items():
            place, end = self._places[mark], look.split.part.end
            again = end is None and place.packets > 0
            more = look.packets > place.packets
            for each in look.problems_in(self.captures):
                if not (again and _is_told(each, place, more=more)):
                    yield each
            tail = look.tail and replace(look.tail, capture=self.captures[place.capture])
            self._places[mark] = replace(
                place,
                end=WHOLE if end is None else end,
                seen=WHOLE if end is None else end + (tail.bytes or 0 if tail else 0),
                packets=look.split.packets_before + look.packets,
                latest=max(place.latest, look.latest),
                wrong=tail,
                since=self.latest,
            )

    def given_up(self, end: Offset, watermark: int) -> Iterator[Problem]:
        """What is wrong with files of which nothing more is waited for. `watermark`: s."""
        for mark, place, size in self._further(end):
            if place.missed != size:
                gone = self._gone(mark, place)
                self._places[mark] = replace(place, missed=size, wrong=gone, since=self.latest)
        for mark, place in [*self._places.items()]:
            known = mark in end["files"]
            over = end["ended"] or not known or self.latest - place.since >= watermark * SECOND
            if place.wrong and over:
                yield place.wrong
                self._places[mark] = replace(place, wrong=None)
            if not known:
                del self._places[mark]

    def _further(self, end: Offset) -> Iterator[tuple[str, Place, int]]:
        """Files that go further than they were read: mark, place and bytes."""
        for mark, size in end["files"].items():
            place = self._places.get(mark) or Place()
            if place.end != WHOLE and place.seen != size:
                yield mark, place, size

    def _gone(self, mark: str, place: Place) -> Problem:
        name = None if place.capture == _UNNAMED else self.captures[place.capture]
        return Problem(
            "packets", "unreadable_file", f"the file that began with {mark} went before it was "
            "read", capture=name, offset=place.end,
        )  # fmt: skip


def _is_told(problem: Problem, place: Place, *, more: bool) -> bool:
    """Whether this was told of a file before it was read again as a whole.

    `more`: it brought more packets. Then what is wrong with packets is told again, since one row
    may speak of new ones, too.
    """
    return not more if problem.offset is None else problem.offset < place.end
