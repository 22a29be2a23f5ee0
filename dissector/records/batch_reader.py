"""Reads the batches of `records` fields into columns, for the `batches` table.

`batch_headers` follows the sizes to find the batches, `recovery` verifies them. If a checksum is
wrong, or bytes are not a batch, it finds the intact batches after the damage. So damage costs no
other batch. Without `verify`, only headers are read, and bytes that are not a batch cost
the remainder of their field.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dissector.byteview import ByteView
from dissector.packets.block import Int64
from dissector.problems import Problem
from dissector.records.batch_headers import Batches, follow_sizes, no_batch, read_headers


def read_batches(space: ByteView, start: Int64, length: Int64, *, verify: bool = True) -> Batches:
    """The batches of n `records` fields of `length` bytes at address `start`.

    Both are int64 of shape (n,); a null field has length 0 or less. Nothing is decompressed, and
    contiguous bytes are not copied. Damage raises nothing: it is in `crc_ok` and `problems`.
    """
    stop = start + np.maximum(length, 0)
    chain = follow_sizes(space, start, stop)
    batches = read_headers(space, chain, stop)
    problems: list[tuple[int, Problem]]
    if verify:
        from dissector.records.recovery import check_crc, recover

        batches.crc_ok[:] = check_crc(space, batches)
        repaired, problems = recover(space, chain, batches, stop)
        if repaired is not chain:
            batches = read_headers(space, repaired, stop)
            batches.crc_ok[:] = check_crc(space, batches)
    else:
        problems = [(index, no_batch(space, at, int(stop[index]))) for index, at in chain.broken]
    return replace(
        batches,
        problems=[
            (index, replace(problem, offset=(problem.offset or 0) - int(start[index])))
            for index, problem in problems
        ],
    )
