"""The sizes of the files of a folder into which a capture rotates.

tcpdump names files by time (-G) or number (-C), overwrites the oldest (-W), and may have complete
files compressed (-z); logrotate renames them. So a file is identified by its first packet, not by
its name: a renamed file continues where it was, and an overwritten file is a new file. A file
without a complete packet is ignored. If nothing was written to it for the watermark, it is
identified by its name.

The offset of a stream, which Spark keeps in the query's checkpoint:

    batch   number of the batch that ends here; 0 at the start
    files   size of each file, by its identifier; -1 for a file that is read as a whole, because it
            is compressed or has no complete packet
    ended   whether nothing was written for the watermark

Missing files stay in the offset for a while: a file that is being renamed may have no name.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from glob import has_magic
from pathlib import Path
from typing import Any, Final, TypeAlias

from dissector.arrays import value
from dissector.errors import CaptureError, DissectorError
from dissector.packets.formats.file_ranges import size_of
from dissector.packets.formats.remote import is_url
from dissector.packets.paths import find, open_reader

Offset: TypeAlias = dict[str, Any]

START: Final[Offset] = {"batch": 0, "files": {}, "ended": False}
WHOLE: Final = -1
MOST_MISSING: Final = 256
"""Missing files that are remembered."""
_READ_BYTES: Final = 1 << 16


@value
class FileInfo:
    """A file of the folder."""

    path: str
    size: int
    """Bytes, or WHOLE for a file that is compressed or has no packet."""
    written: float
    """Time of the last write; s since 1970."""
    has_packet: bool
    """Whether it starts with a complete packet."""
    start: int
    """Time of the first packet; ns. 0 without a packet."""


def files(paths: Sequence[str]) -> dict[str, FileInfo]:
    """The captures at these paths, by identifier, in order of their first packets."""
    entries = []
    for path in find(paths):
        with suppress(FileNotFoundError):  # it was renamed meanwhile
            entries.append(_entry(path))
    # Of two files with the same first packet, one is being compressed; the larger one is complete.
    by_id = dict(sorted(entries, key=lambda entry: entry[1].size))
    return dict(sorted(by_id.items(), key=lambda entry: entry[1].start))


def _entry(path: str) -> tuple[str, FileInfo]:
    """The identifier of a file, and the file. Raises FileNotFoundError."""
    try:
        written, size = Path(path).stat().st_mtime, size_of(path)
    except FileNotFoundError:
        raise
    except OSError:  # it will be reported, like a file without a packet
        written, size = 0.0, None
    file_id, first = _identify(path)
    size = WHOLE if size is None or first is None else size
    return file_id, FileInfo(path, size, written, first is not None, first or 0)


def _identify(path: str) -> tuple[str, int | None]:
    """The identifier of a file, and the time of its first packet; None without a packet."""
    try:
        reader = open_reader(path, [])
    except CaptureError:
        return f"no packet in {path}", None
    records = reader.read(0, _READ_BYTES)
    reader.close()
    if records is None or not len(records.number):
        return f"no packet in {path}", None
    first, columns = int(records.columns.time[0]), records.columns
    begin = int(columns.start[0])
    packet = records.data[begin : begin + int(columns.captured[0])].tobytes()
    return hashlib.sha256(f"{first} ".encode() + packet).hexdigest()[:16], first


def check(paths: Sequence[str]) -> None:
    """Raises DissectorError for a path that a stream cannot follow."""
    for path in paths:
        if is_url(path):
            raise DissectorError(f"a stream follows folders, not URLs: {path}")
        if not has_magic(path) and not Path(path).exists():
            raise DissectorError(f"{path}: there is no such file or folder")


def latest(start: Mapping[str, Any], paths: Sequence[str], watermark: int) -> Offset:
    """The current offset. `watermark`: s."""
    silent = time.time() - watermark
    present = {
        file_id: info
        for file_id, info in files(paths).items()
        if info.has_packet or info.written < silent
    }
    sizes = {
        file_id: _advanced(start["files"].get(file_id), info) for file_id, info in present.items()
    }
    now = with_missing(start, sizes)
    ended = bool(present) and all(info.written < silent for info in present.values())
    if {**start["files"]} == now and (start["ended"] or not ended):
        return {**start}
    return {"batch": start["batch"] + 1, "files": now, "ended": ended}


def with_missing(start: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes of files, and of the latest of those files of an offset that are missing."""
    missing = {file_id: size for file_id, size in start["files"].items() if file_id not in sizes}
    return dict([*missing.items()][-MOST_MISSING:]) | {**sizes}


def _advanced(before: int | None, info: FileInfo) -> int:
    """The new size of a file, which never shrinks, even if it is or was compressed."""
    if WHOLE in (before, info.size):
        return WHOLE
    return max(before or 0, info.size)
