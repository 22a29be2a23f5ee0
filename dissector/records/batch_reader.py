"""Reads the batches of `records` fields into columns, for the `batches` table.

`batch_headers` follows the sizes to find the batches, `checksums` verifies them. If a checksum is
wrong, or bytes are not a batch, `recovery` finds the intact batches after the damage. So damage
costs no other batch. Without `verify`, only headers are read, and bytes that are not a batch cost
the remainder of their field.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dissector.packets.block import Int64
from dissector.problems import Problem
from dissector.records.batch_headers import FRONT, Batches, follow_sizes, no_batch, read_headers
from dissector.streams.byteview import ByteView


def read_batches(
    space: ByteView,
    start: Int64,
    length: Int64,
    readable_end: Int64 | None = None,
    *,
    verify: bool = True,
) -> Batches:
    """The batches of n `records` fields of `length` bytes at address `start`.

    All arrays are int64 of shape (n,); a null field has length 0 or less. `readable_end`: the
    address up to which the bytes of a field are present, if the field may be cut. Nothing is
    decompressed, and contiguous bytes are not copied. Damage raises nothing: it is in `crc_ok` and
    `problems`.
    """
    stop = start + np.maximum(length, 0)
    if readable_end is not None:
        stop = np.minimum(stop, readable_end)
    chain = follow_sizes(space, start, stop)
    batches = read_headers(space, chain, stop)
    problems: list[tuple[int, Problem]]
    if verify:
        from dissector.records.checksums import check_crc
        from dissector.records.recovery import recover

        batches.crc_ok[:] = check_crc(space, batches)
        repaired, problems = recover(space, chain, batches, stop)
        if repaired is not chain:
            batches = read_headers(space, repaired, stop)
            batches.crc_ok[:] = check_crc(space, batches)
    else:
        problems = [(index, no_batch(space, at, int(stop[index]))) for index, at in chain.broken]
    return replace(
        batches,
        cut_headers=_cut_headers(batches, start, stop, problems),
        problems=[
            (index, replace(problem, offset=(problem.offset or 0) - int(start[index])))
            for index, problem in problems
        ],
    )


def _cut_headers(
    batches: Batches, start: Int64, stop: Int64, problems: list[tuple[int, Problem]]
) -> int:
    """The number of fields that end within the first bytes of a batch."""
    reached = start.copy()
    np.maximum.at(reached, batches.field, batches.address + batches.size)
    for index, problem in problems:
        reached[index] = max(reached[index], (problem.offset or 0) + (problem.bytes or 0))
    remaining = stop - reached
    return int(np.count_nonzero((remaining > 0) & (remaining < FRONT)))
