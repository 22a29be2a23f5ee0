"""Segments that the network damaged: the receiver drops them, and the sender sends them again.

RFC 9293, section 3.1: a segment with a wrong checksum is discarded. But a wrong checksum does not
prove damage, because network cards complete the checksums of packets after their capture, and tools
that change addresses may leave them unchanged. So a segment is damaged only if segments of its
block have a correct checksum, contain all of its bytes, and differ in one of them. Their borders
may differ: senders and network cards join and divide segments.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from dissector import _native
from dissector.packets.block import SYN, Int64, PacketBlock
from dissector.streams import sequence
from dissector.streams.connections.flows import Assignment

_SEQUENCE_BITS: Final = 33
"""So that no segment reaches into the numbers of another stream."""
_NOWHERE: Final = np.iinfo(np.int64).min
"""A position before all others."""


def damaged_copies(block: PacketBlock, assignment: Assignment) -> Int64:
    """The packets of a block with such a segment."""
    slot = assignment.slot
    reach, repeats = np.full(len(assignment.streams), -1), np.empty(len(block), np.int64)
    count = _native.find_repeats(slot, block.seq, block.length, reach, repeats)
    if not count:
        return repeats[:0]
    begin = block.seq + (block.flags & SYN != 0)
    at = (slot << _SEQUENCE_BITS) + sequence.ahead(begin, reach.astype(np.uint32)[slot])
    repeat = repeats[:count]
    repeat = repeat[np.argsort(at[repeat])]
    reached = np.maximum.accumulate(at[repeat] + block.length[repeat])
    packet = np.flatnonzero((block.length > 0) & (block.captured == block.length))
    before = at[repeat].searchsorted(at[packet] + block.length[packet])
    packet = packet[np.append(_NOWHERE, reached)[before] > at[packet]]
    packet = packet[np.argsort(at[packet], kind="stable")]
    is_damaged = np.zeros(len(block), np.uint8)
    _native.find_damaged(
        block.data, packet, at[packet], np.empty_like(packet), block.src_high, block.src_low,
        block.dst_high, block.dst_low, block.src_port, block.dst_port, block.seq, block.ack,
        block.payload, block.length, is_damaged,
    )  # fmt: skip
    return np.flatnonzero(is_damaged)


def without_payload(block: PacketBlock, packet: Int64) -> PacketBlock:
    """The block without the payloads of these packets."""
    length, captured = block.length.copy(), block.captured.copy()
    length[packet] = captured[packet] = 0
    return replace(block, length=length, captured=captured)
