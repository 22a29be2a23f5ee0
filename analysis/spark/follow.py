"""Following a folder that a capture rotates into: how far each of its files goes.

tcpdump gives files names by time (-G) or number (-C), writes over the oldest (-W), and may have
them compressed when they are complete (-z); logrotate renames them. So a file is known by its first
packet, not by its name: a file of another name goes on where it was, and one that was written over
is new. A file that has no whole packet yet is not there, unless nothing was written to it for as
long as anything is waited for: then it is known by its name.

How far a stream has come, which is what Spark keeps in the query's checkpoint:

    batch   number of the batch that ends here; 0 is the beginning
    files   by the mark of the first packet, bytes of the file; -1 for one that is read as a
            whole, since it is compressed or has no whole packet
    ended   nothing was written for as long as anything is waited for

Files that are gone stay in it for a while: one that is being renamed may be seen under no name.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from dissector.errors import CaptureError
from dissector.packets.file_ranges import size_of
from dissector.packets.paths import find, open_reader

Offset: TypeAlias = dict[str, Any]

BEGINNING: Final[Offset] = {"batch": 0, "files": {}, "ended": False}
WHOLE: Final = -1
GONE_KEPT: Final = 256
"""Files that are gone and remembered."""
_LOOK_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Found:
    """A file of the folder."""

    path: str
    size: int
    """Bytes, or WHOLE, as it is where there is no packet."""
    written: float
    """When it was written to last, s since 1970."""
    has_packet: bool = True
    """A whole one, at its beginning."""


def files(paths: Sequence[str]) -> dict[str, Found]:
    """The captures at these paths, by mark, in order of their first packets."""
    marked = []
    for path in find(paths):
        try:
            size = size_of(path)
            mark, first = _mark(path)
            found = Found(
                path,
                WHOLE if size is None or first is None else size,
                Path(path).stat().st_mtime,
                has_packet=first is not None,
            )
        except OSError:
            continue  # it has been renamed just now
        marked.append((mark, first or 0, found))
    # Of two with the same packet, one is being compressed: the larger plain one is complete.
    marked.sort(key=lambda each: each[2].size)
    by_mark = {mark: (first, found) for mark, first, found in marked}
    order = sorted(by_mark.items(), key=lambda each: each[1][0])
    return {mark: found for mark, (_, found) in order}


def _mark(path: str) -> tuple[str, int | None]:
    """What a file is known by, and the time of its first packet; None where there is none yet."""
    try:
        reader = open_reader(path, [])
    except CaptureError:
        return f"no packet in {path}", None
    records = reader.read(0, _LOOK_BYTES)
    reader.close()
    if records is None or not len(records.number):
        return f"no packet in {path}", None
    first, columns = int(records.columns.time[0]), records.columns
    begin = int(columns.start[0])
    packet = records.data[begin : begin + int(columns.captured[0])].tobytes()
    return hashlib.sha256(f"{first} ".encode() + packet).hexdigest()[:16], first


def latest(start: Mapping[str, Any], paths: Sequence[str], watermark: int) -> Offset:
    """How far the files go now. `watermark`: s."""
    silent = time.time() - watermark
    here = {
        mark: each
        for mark, each in files(paths).items()
        if each.has_packet or each.written < silent
    }
    gone = {mark: size for mark, size in start["files"].items() if mark not in here}
    kept = dict([*gone.items()][-GONE_KEPT:])
    now = kept | {mark: _further(start["files"].get(mark), each) for mark, each in here.items()}
    ended = bool(here) and all(each.written < silent for each in here.values())
    if {**start["files"]} == now and (start["ended"] or not ended):
        return {**start}
    return {"batch": start["batch"] + 1, "files": now, "ended": ended}


def _further(before: int | None, found: Found) -> int:
    """A file never goes back, not even where it is now compressed, or was."""
    if WHOLE in (before, found.size):
        return WHOLE
    return max(before or 0, found.size)
