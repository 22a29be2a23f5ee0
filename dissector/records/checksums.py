"""Checksums of batches: CRC-32C over a batch from its attributes on, CRC-32 over a message from its
magic on.

A batch's checksum does not cover its base offset, its length and its leader epoch, since the broker
sets these; a message's does not cover its offset and length. So a wrong length shows as a wrong
checksum, but a wrong base offset or leader epoch shows nowhere.
"""

from __future__ import annotations

import numpy as np
from crc32c import crc32c
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from dissector.packets.block import Int64, UInt32
from dissector.records.batch_headers import Batches
from dissector.records.contiguous import slices
from dissector.streams.byteview import ByteView

COVERED_FROM = np.array([16, 16, 21])
"""Where in a batch the bytes begin that its checksum covers, by magic."""


def check_crc(space: ByteView, batches: Batches) -> NDArray[np.int8]:
    """For each batch 1 where its checksum holds, 0 where it does not, -1 where the batch is cut."""
    result = np.full(len(batches), -1, np.int8)
    whole = np.flatnonzero(~batches.truncated)
    result[whole] = crc_holds(
        space, batches.address[whole], batches.size[whole], batches.magic[whole], batches.crc[whole]
    )
    return result


def crc_holds(
    space: ByteView, address: Int64, size: Int64, magic: NDArray[np.int8], crc: UInt32
) -> NDArray[np.bool_]:
    """Whether the checksum of each of n whole batches is `crc`."""
    skip = COVERED_FROM[magic]
    covered = slices(space, address + skip, size - skip)
    holds = np.zeros(len(address), np.bool_)
    for index, (magic_, stored) in enumerate(zip(magic.tolist(), crc.tolist(), strict=True)):
        checksum = crc32c if magic_ == 2 else crc32
        value = 0
        for part in covered.of(index):
            value = checksum(part, value)
        holds[index] = value == stored
    return holds
