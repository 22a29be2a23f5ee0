"""Reads log segments: a broker's `.log` file is one long `records` field.

It is read in blocks of 16 MB. A batch that crosses the end of a block goes into the next block; a
batch larger than a block enlarges the block. Only the last batch of a file can be truncated, after
a crash. Zeros at the end of a preallocated segment are one problem. Damaged and missing batches are
problems of the file: see `problems.FILE_KINDS`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import field, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from dissector.arrays import arrays
from dissector.byteview import ContiguousBytes
from dissector.errors import CaptureError, reason
from dissector.packets.block import PAD
from dissector.problems import Problem
from dissector.records.batch_headers import FRONT, MIN_SIZE, OVERHEAD, Batches, no_batch, take
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
    """Offset of address 0 in the file."""
    end: int
    """Offset in the file after the block, and after zeros that follow it."""
    problems: list[Problem] = field(default_factory=list)
    """Those of the file in this block; offsets are those in the file."""


def is_segment(head: bytes) -> bool:
    """Whether a file that begins with `head`, 17 bytes or more, can be a log segment."""
    if len(head) < FRONT or int.from_bytes(head[:8], signed=True) < 0:  # the base offset
        return False
    size, magic = int.from_bytes(head[8:12], signed=True) + OVERHEAD, head[16]
    return magic < len(MIN_SIZE) and MIN_SIZE[magic] <= size <= MAX_BATCH


def read_segment(path: str | Path, *, block: int = BLOCK) -> Iterator[SegmentBlock]:
    """The batches of a segment, `block` bytes at a time; nothing for an empty file.

    Raises CaptureError if the file cannot be read. Damage is in the `problems` of the blocks.
    """
    try:
        with Path(path).open("rb") as file:
            file_size = os.fstat(file.fileno()).st_size
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
                if not has_more:
                    batches.problems.extend(_last_zeros(space, batches))
                if _ends_in_zeros(batches, size):
                    _skip_zeros(file)
                part = SegmentBlock(space, _before(batches, final_end), position, file.tell())
                part.problems.extend(_file_problems(part, final_end, file_size))
                yield part
                carried = data[final_end:size].tobytes()
                position = file.tell() - len(carried)
    except OSError as error:
        raise CaptureError(f"{path}: {reason(error)}") from error


def _final_end(batches: Batches, size: int) -> int:
    """The address up to which later bytes cannot change the result."""
    final_end = 0
    if len(batches):
        at, length = int(batches.address[-1]), int(batches.size[-1])
        final_end = at + length if at + length <= size else at
    for _, problem in batches.problems:
        if _end(problem) == size:
            is_skipped = problem.kind == "zero_bytes"
            final_end = size if is_skipped else max(final_end, problem.offset or 0)
    if size - final_end > MAX_BATCH:
        detail = f"no batch, or no end of a batch, within {MAX_BATCH:,} bytes"
        problem = Problem("records", "no_batch", detail, offset=final_end, bytes=size - final_end)
        batches.problems.append((0, problem))
        final_end = size
    return final_end


def _end(problem: Problem) -> int:
    return (problem.offset or 0) + (problem.bytes or 0)


def _remainder(batches: Batches) -> int:
    """The address after the last batch or damage: fewer bytes than those of a header follow."""
    end = int(batches.address[-1] + batches.size[-1]) if len(batches) else 0
    return max([end, *(_end(problem) for _, problem in batches.problems)])


def _last_zeros(space: ContiguousBytes, batches: Batches) -> list[tuple[int, Problem]]:
    """The problem of the last bytes of a file if they are zeros, fewer than those of a header."""
    start, end = _remainder(batches), space.size
    is_zero = start < end and not any(space.bytes(start, end - start))
    return [(0, no_batch(space, start, end))] if is_zero else []


def _ends_in_zeros(batches: Batches, size: int) -> bool:
    """Whether a block of `size` bytes ends in zeros where a batch should begin."""
    return any(each.kind == "zero_bytes" and _end(each) == size for _, each in batches.problems)


def _skip_zeros(file: BinaryIO) -> None:
    """Move the position of `file` over zeros, to a possible batch after them."""
    start = file.tell()
    while chunk := file.read(BLOCK):
        data = np.frombuffer(chunk, np.uint8)
        if data.any():
            nonzero = file.tell() - len(chunk) + int((data != 0).argmax())
            # The base offset and three bytes of the length may be zeros.
            file.seek(max(start, nonzero - OVERHEAD + 1))
            return


def _before(batches: Batches, final_end: int) -> Batches:
    """The batches and problems that begin before an address."""
    problems = [pair for pair in batches.problems if (pair[1].offset or 0) < final_end]
    selected = take(batches, np.flatnonzero(batches.address < final_end))
    return replace(selected, problems=problems)


def _file_problems(block: SegmentBlock, final_end: int, file_size: int) -> list[Problem]:
    """The problems of the bytes before `final_end`, by offset.

    An intact batch with a wrong length is not damage of the file, nor are preallocated zeros.
    """
    position, damaged = block.position, _damaged_batches(block, final_end)
    problems = {}
    for _, problem in block.batches.problems:
        at, end = problem.offset or 0, _end(problem)
        is_harmless = problem.kind == "bad_length" and at not in damaged
        if problem.kind == "zero_bytes" and end == block.space.size:
            end = block.end - position
            is_harmless = block.end == file_size
        if not is_harmless:
            detail = f"byte {position + at}: {problem.detail}"
            problem = replace(problem, kind="damaged_file", detail=detail)
        problems[at] = replace(problem, offset=position + at, bytes=end - at)
    for at in damaged.keys() - problems.keys():
        kind, detail = "damaged_file", f"byte {position + at}: a batch with a wrong checksum"
        if damaged[at] > final_end:
            kind = "truncated_file"
            detail = f"the file ends within the batch that begins at byte {position + at}"
        size = min(damaged[at], final_end) - at
        problems[at] = Problem("records", kind, detail, offset=position + at, bytes=size)
    return [problems[at] for at in sorted(problems)]


def _damaged_batches(block: SegmentBlock, final_end: int) -> dict[int, int]:
    """Start and stated end of the batches that are truncated or have a wrong checksum."""
    batches = block.batches
    start, end = batches.address, batches.address + batches.size
    rows = np.flatnonzero(batches.crc_ok != 1)
    damaged = dict(zip(start[rows].tolist(), end[rows].tolist(), strict=True))
    remainder = _remainder(batches)
    if remainder < final_end:
        damaged[remainder] = remainder + FRONT
    return damaged
