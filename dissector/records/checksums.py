"""Checksums of batches: CRC-32C from a batch's attributes on, CRC-32 from a message's magic on.

The checksum of a batch does not cover its base offset, length and leader epoch, since the broker
sets them; the checksum of a message does not cover its offset and length. So a wrong length shows
as a wrong checksum, but a wrong base offset or leader epoch does not show.
"""

from __future__ import annotations

import numpy as np
from crc32c import crc32c
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from dissector.records.batch_headers import Batches
from dissector.records.contiguous import slices
from dissector.streams.byteview import ByteView

COVERED_FROM = np.array([16, 16, 21])
"""Offset of the first byte that the checksum covers, by magic."""


def check_crc(space: ByteView, batches: Batches) -> NDArray[np.int8]:
    """For each batch: 1 for a valid checksum, 0 for an invalid one, -1 if the batch is cut."""
    result = np.full(len(batches), -1, np.int8)
    complete = np.flatnonzero(~batches.truncated)
    magic = batches.magic[complete]
    skip = COVERED_FROM[magic]
    covered = slices(space, batches.address[complete] + skip, batches.size[complete] - skip)
    values: list[int] = []
    for number, memory in zip(magic.tolist(), covered.memory(), strict=True):
        checksum = crc32c if number == 2 else crc32
        value = 0
        for part in memory:
            value = checksum(part, value)
        values.append(value)
    result[complete] = np.array(values, np.uint32) == batches.crc[complete]
    return result
