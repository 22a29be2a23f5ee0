"""Packets that the capture itself dropped, as pcapng files count them.

    interface statistics      isb_ifdrop, isb_osdrop   since the start of the capture
    enhanced packet           epb_dropcount            since the packet before it
    packet (obsolete)         drop count of 16 bits    since the packet before it

All of them count by interface. A later count of statistics contains the earlier ones, and those of
packets. So `DropCounts` returns what a count adds to those before it, and the sum is that of the
last count.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import numpy as np

from dissector.packets.block import Bytes, Int64
from dissector.packets.formats.capture_reader import gather

_TOTALS: Final = (5, 7)
"""isb_ifdrop and isb_osdrop. Programs use them differently, but count each packet only once."""
_DROP_COUNT: Final = 4  # epb_dropcount
_UNKNOWN: Final = 0xFFFF
"""A drop count of an obsolete packet."""
_MOST: Final = 1 << 40
"""A larger count is damaged, or stands for an unknown one (2^64 - 1)."""
_MOST_OPTIONS: Final = 32
"""Options of a packet that are read."""


class DropCounts:
    """The counts of a file so far."""

    def __init__(self) -> None:
        self._before_packets: dict[int, int] = {}  # by interface: sum of the counts of packets
        self._reported: dict[int, int] = {}

    @property
    def context(self) -> tuple[tuple[int, int], ...]:
        """What later counts are compared with."""
        return (*self._before_packets.items(), *self._reported.items())

    def before_packet(self, interface: int, count: int) -> int:
        """The newly dropped packets, by the count of a packet."""
        total = self._before_packets.get(interface, 0) + count
        self._before_packets[interface] = total
        return self.in_all(interface, total)

    def in_all(self, interface: int, total: int) -> int:
        """The newly dropped packets, by the count since the start of the capture."""
        reported = self._reported.get(interface, 0)
        if total > reported:
            self._reported[interface] = total
        return max(total - reported, 0)


def total_drops(options: Iterable[tuple[int, bytes]], order: str) -> int:
    """The dropped packets in the options of interface statistics."""
    values = (value for code, value in options if code in _TOTALS and len(value) == 8)
    counts = (struct.unpack(f"{order}Q", value)[0] for value in values)
    return sum(count for count in counts if count <= _MOST)


def obsolete_drops(counts: Int64) -> Int64:
    """The dropped packets before each obsolete packet."""
    return np.where(counts == _UNKNOWN, 0, counts)


def packet_drops(data: Bytes, at: Int64, end: Int64, order: str) -> Int64:
    """The dropped packets before each enhanced packet, whose options are between these positions;
    0 if they are unknown."""
    layout = np.dtype([("code", f"{order}u2"), ("size", f"{order}u2"), ("value", f"{order}u8")])
    drops = np.zeros(len(at), np.int64)
    at = at.copy()
    rows = np.arange(len(at))
    for _ in range(_MOST_OPTIONS):
        rows = rows[at[rows] + layout.itemsize <= end[rows]]
        if not len(rows):
            break
        option = gather(data, at[rows], layout)
        is_count = (option["code"] == _DROP_COUNT) & (option["size"] == 8)
        is_count &= option["value"] <= _MOST
        drops[rows[is_count]] = option["value"][is_count]
        at[rows] += 4 + (option["size"].astype(np.int64) + 3) // 4 * 4
        rows = rows[option["code"] != 0]
    return drops
