"""The batches of `records` fields, checked, as columns: what the `batches` table is made of.

A walk along the lengths finds the batches (`headers`), their checksums are compared (`checksums`),
and where one does not hold, or the walk met something else than a batch, the good batches behind it
are found again (`recovery`), so that damage costs no other batch. Without `verify` only the headers
are looked at, and whatever is no batch costs the rest of its field.
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
    """The batches of n `records` fields, each `length` bytes from the address `start` on.

    All arrays int64, of shape (n,); a null field has length 0 or less. `readable_end` is the
    address up to which a field's bytes are there, where that may be less than its length says.
    Nothing is decompressed, nothing copied that lies in one row. Damage raises nothing: it is in
    `crc_ok` and `problems`.
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
        mended, problems = recover(space, chain, batches, stop)
        if mended is not chain:
            batches = read_headers(space, mended, stop)
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
    """How many fields end within the first bytes of a batch."""
    reached = start.copy()
    np.maximum.at(reached, batches.field, batches.address + batches.size)
    for index, problem in problems:
        reached[index] = max(reached[index], (problem.offset or 0) + (problem.bytes or 0))
    left = stop - reached
    return int(np.count_nonzero((left > 0) & (left < FRONT)))
