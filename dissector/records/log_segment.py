"""Log segments: a broker's `.log` file is one long `records` field.

It is read in blocks of some megabytes. A batch that a block's end cuts goes into the next one; one
that is larger than a block makes the block grow. Only the file's last batch can be truncated, after
a crash. Zeros at the end, of a segment that was preallocated, are one problem and not many.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dissector.errors import CaptureError
from dissector.packets.block import PAD
from dissector.problems import Problem
from dissector.records.batch_headers import FRONT, OVERHEAD, Batches, is_sane, take
from dissector.records.batch_reader import read_batches
from dissector.streams.byteview import ContiguousBytes

BLOCK = 16 << 20
MAX_BATCH = 256 << 20
"""A batch that says to be larger is not believed."""


@dataclass(frozen=True, slots=True)
class SegmentBlock:
    """The batches of a stretch of a segment; for their records, `read_records(space, batches)`."""

    space: ContiguousBytes
    """Where the batches' addresses mean something."""
    batches: Batches
    position: int
    """Where in the file address 0 is; problems' offsets count from there, too."""


def is_segment(head: bytes) -> bool:
    """Whether a file with these first bytes, 17 or more, can be a log segment."""
    if len(head) < FRONT:
        return False
    size = int.from_bytes(head[8:12], signed=True) + OVERHEAD
    offset = int.from_bytes(head[:8], signed=True)
    sane = is_sane(np.array([head[16]], np.uint8), np.array([size]))
    return bool(sane.all()) and offset >= 0 and size <= MAX_BATCH


def read_segment(path: str | Path, *, block: int = BLOCK) -> Iterator[SegmentBlock]:
    """The batches of a segment, `block` bytes at a time; nothing for an empty file.

    `CaptureError` where the file cannot be read. Damage is in the batches' `problems`.
    """
    try:
        with Path(path).open("rb") as file:
            carried, position, more = b"", 0, True
            while more:
                # A batch larger than a block is not read anew with every block of it.
                fresh = file.read(max(block, len(carried)))
                more = len(fresh) > 0
                data = np.frombuffer(b"".join([carried, fresh, bytes(PAD)]), np.uint8)
                size = len(data) - PAD
                if not size:
                    return
                space = ContiguousBytes(data)
                batches = read_batches(space, np.array([0]), np.array([size]))
                settled = _settled(batches, size) if more else size
                yield SegmentBlock(space, _before(batches, settled, final=not more), position)
                carried = data[settled:size].tobytes()
                position += settled
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror or error}") from error


def _settled(batches: Batches, size: int) -> int:
    """Up to where the bytes that come next can change nothing."""
    settled = 0
    if len(batches):
        at, length = int(batches.address[-1]), int(batches.size[-1])
        settled = at + length if at + length <= size else at
    for _, problem in batches.problems:
        start, end = problem.offset or 0, (problem.offset or 0) + (problem.bytes or 0)
        if end == size:
            settled = size if problem.kind == "zero_bytes" else max(settled, start)
    if size - settled > MAX_BATCH:
        detail = f"neither a batch nor its end within {MAX_BATCH:,} bytes"
        problem = Problem("records", "bad_length", detail, offset=settled, bytes=size - settled)
        batches.problems.append((0, problem))
        settled = size
    return settled


def _before(batches: Batches, settled: int, *, final: bool) -> Batches:
    """What begins before that address."""
    problems = [pair for pair in batches.problems if (pair[1].offset or 0) < settled]
    some = take(batches, np.flatnonzero(batches.address < settled))
    return replace(some, cut_headers=batches.cut_headers if final else 0, problems=problems)
