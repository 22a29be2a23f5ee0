"""Reads log segments: a broker's `.log` file is one long `records` field.

It is read in blocks of 16 MB. A batch that crosses the end of a block goes into the next block; a
batch larger than a block enlarges the block. Only the last batch of a file can be truncated, after
a crash. Zeros at the end of a preallocated segment are one problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from dissector.arrays import arrays
from dissector.byteview import ContiguousBytes
from dissector.errors import CaptureError, reason
from dissector.packets.block import PAD
from dissector.problems import Problem
from dissector.records.batch_headers import FRONT, MIN_SIZE, OVERHEAD, Batches, take
from dissector.records.batch_reader import read_batches

BLOCK = 16 << 20
MAX_BATCH = 256 << 20
"""A batch with a larger length is treated as damaged."""


@arrays
class SegmentBlock:
    """The batches of a part of a segment; `read_records(space, batches)` reads their records."""

    space: ContiguousBytes
    """The bytes to which the addresses of the batches refer."""
    batches: Batches
    position: int
    """Offset of address 0 in the file; offsets of problems are relative to it too."""


def is_segment(head: bytes) -> bool:
    """Whether a file that begins with `head`, 17 bytes or more, can be a log segment."""
    if len(head) < FRONT or int.from_bytes(head[:8], signed=True) < 0:  # the base offset
        return False
    size, magic = int.from_bytes(head[8:12], signed=True) + OVERHEAD, head[16]
    return magic < len(MIN_SIZE) and MIN_SIZE[magic] <= size <= MAX_BATCH


def read_segment(path: str | Path, *, block: int = BLOCK) -> Iterator[SegmentBlock]:
    """The batches of a segment, `block` bytes at a time; nothing for an empty file.

    Raises CaptureError if the file cannot be read. Damage is in the `problems` of the batches.
    """
    try:
        with Path(path).open("rb") as file:
            carried, position, has_more = b"", 0, True
            while has_more:
                # The block grows, so that a large batch is not read again with every block.
                fresh = file.read(max(block, len(carried)))
                has_more = len(fresh) > 0
                data = np.frombuffer(b"".join([carried, fresh, bytes(PAD)]), np.uint8)
                size = len(data) - PAD
                if not size:
                    return
                space = ContiguousBytes(data)
                batches = read_batches(space, np.array([0]), np.array([size]))
                final_end = _final_end(batches, size) if has_more else size
                yield SegmentBlock(space, _before(batches, final_end), position)
                carried = data[final_end:size].tobytes()
                position += final_end
    except OSError as error:
        raise CaptureError(f"{path}: {reason(error)}") from error


def _final_end(batches: Batches, size: int) -> int:
    """The address up to which later bytes cannot change the result."""
    final_end = 0
    if len(batches):
        at, length = int(batches.address[-1]), int(batches.size[-1])
        final_end = at + length if at + length <= size else at
    for _, problem in batches.problems:
        start, end = problem.offset or 0, (problem.offset or 0) + (problem.bytes or 0)
        if end == size:
            final_end = size if problem.kind == "zero_bytes" else max(final_end, start)
    if size - final_end > MAX_BATCH:
        detail = f"no batch, or no end of a batch, within {MAX_BATCH:,} bytes"
        problem = Problem("records", "bad_length", detail, offset=final_end, bytes=size - final_end)
        batches.problems.append((0, problem))
        final_end = size
    return final_end


def _before(batches: Batches, final_end: int) -> Batches:
    """The batches and problems that begin before an address."""
    problems = [pair for pair in batches.problems if (pair[1].offset or 0) < final_end]
    selected = take(batches, np.flatnonzero(batches.address < final_end))
    return replace(selected, problems=problems)
