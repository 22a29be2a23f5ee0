"""Round trips: how far each end of a connection is, and when it said that it is full.

A packet with payload that passes the capture is acknowledged by a packet that passes it later; the
time between is the way to that end and back (RFC 6298 takes the same measure at the sender). Only
those count that an end sends at once and for nothing else: an acknowledgement without payload, of
exactly the last byte that was sent, the first one that says so. With payload it would have waited
for a program; and what was sent twice may be acknowledged for either (Karn's algorithm). What
remains may still have been delayed by its receiver (RFC 9293, section 3.8.6.3): hence the median.

Trips are counted by their logarithm, so that any number of them takes little room.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import ACK, FIN, RST, SYN, Int64, PacketBlock, UInt32
from dissector.streams import sequence
from dissector.streams.flows import Assignment
from dissector.streams.table import NEVER, TripTable

PER_OCTAVE = 35
"""Bins for each doubling of a time: the middle of a bin is within 1 % of all in it."""

_BINS = 1 << 12
"""More than there are for 64 bits."""


class RoundTrips:
    """Takes the packets of a connection's two ends, block by block."""

    def __init__(self) -> None:
        self.table = TripTable()
        self._keys = np.zeros(0, np.int64)
        self._counts = np.zeros(0, np.int64)
        self._new: list[Int64] = []

    def feed(self, block: PacketBlock, assignment: Assignment) -> None:
        """Take a block of packets."""
        streams = assignment.streams
        missing = int(streams[-1]) // 2 + 1 - self.table.count if len(streams) else 0
        if missing > 0:
            self.table.add(missing)
        full = block.flags & (SYN | FIN | RST) == 0
        full &= block.window == 0
        np.add.at(self.table.flat("zero_windows"), streams[assignment.slot[full]], 1)
        self._trips(block, assignment.slot, streams)

    def forget(self, rows: Int64) -> None:
        """Let go of these connections."""
        self._merge()
        kept = ~np.isin(self._keys // _BINS >> 1, rows)
        self._keys, self._counts = self._keys[kept], self._counts[kept]
        self.table.forget(rows)

    def zero_windows(self, rows: Int64) -> Int64:
        """Packets in which each end of these connections says that it is full; shape (n, 2)."""
        found = np.zeros((len(rows), 2), np.int64)
        known = rows < self.table.count
        found[known] = self.table.zero_windows[rows[known]]
        return found

    def medians(self, rows: Int64) -> NDArray[np.float64]:
        """Median trip to each end of these connections, ms; NaN where none was seen. Shape (n, 2),
        by end."""
        self._merge()
        wanted = (2 * rows[:, None] + np.arange(2)).ravel()
        found = np.full(len(wanted), np.nan)
        stream, first = np.unique(self._keys // _BINS, return_index=True)
        if len(stream):
            before = np.concatenate([[0], np.cumsum(self._counts)])
            total = np.diff(np.append(before[first], before[-1]))
            middle = before[first] + (total + 1) // 2
            bin_ = self._keys[np.searchsorted(before[1:], middle)] % _BINS
            place = np.minimum(np.searchsorted(stream, wanted), len(stream) - 1)
            has = stream[place] == wanted
            found[has] = (2.0 ** (bin_ / PER_OCTAVE) / 1e6)[place[has]]
        return found.reshape(-1, 2)

    def _trips(self, block: PacketBlock, slot: Int64, streams: Int64) -> None:
        """Pair payloads with what acknowledges them."""
        sent_end, sent_time = (self.table.flat(name) for name in ("sent_end", "sent_time"))
        held = np.flatnonzero(self.table.flat("has_sent")[streams])
        data = np.flatnonzero(block.length)
        stream = np.concatenate([held, slot[data]])
        order = np.argsort(stream, kind="stable")
        stream = stream[order]
        at = np.concatenate([np.zeros(len(held), np.int64), data + 1])[order]
        ends = block.seq[data] + block.length[data].astype(np.uint32)
        end = np.concatenate([sent_end[streams[held]], ends])[order]
        time = np.concatenate([sent_time[streams[held]], block.time[data]])[order]
        time[_repeats(stream, end)] = NEVER
        width = len(block) + 1
        reply = np.flatnonzero(block.flags & (ACK | SYN | RST) == ACK)
        target = slot[reply] ^ 1
        found = np.searchsorted(stream * width + at, target * width + reply + 1) - 1
        if len(stream):
            fits = (found >= 0) & (stream[found] == target) & (block.ack[reply] == end[found])
            found, first = np.unique(found[fits], return_index=True)
            reply = reply[fits][first]
            trip = block.time[reply] - time[found]
            counts = (time[found] != NEVER) & (block.length[reply] == 0) & (trip >= 0)
            self._note(streams[slot[reply[counts]]], trip[counts])
            time[found] = NEVER  # acknowledged: what says so again tells nothing
            last = np.append(np.flatnonzero(np.diff(stream)), len(stream) - 1)
            sent_end[streams[stream[last]]] = end[last]
            sent_time[streams[stream[last]]] = time[last]
            self.table.flat("has_sent")[streams[stream[last]]] = True

    def _note(self, stream: Int64, trip: Int64) -> None:
        bin_ = np.round(np.log2(np.maximum(trip, 1)) * PER_OCTAVE).astype(np.int64)
        self._new.append(stream * _BINS + bin_)
        if sum(map(len, self._new)) > max(len(self._keys), 1 << 16):
            self._merge()

    def _merge(self) -> None:
        """Count what is new."""
        keys = np.concatenate([self._keys, *self._new])
        weights = np.ones(len(keys), np.int64)
        weights[: len(self._counts)] = self._counts
        self._keys, place = np.unique(keys, return_inverse=True)
        self._counts = np.bincount(place, weights, len(self._keys)).astype(np.int64)
        self._new = []


def _repeats(stream: Int64, end: UInt32) -> NDArray[Any]:
    """Payloads that do not go beyond the one before them in their stream."""
    found = np.zeros(len(stream), np.bool_)
    behind = sequence.ahead(end[1:], end[:-1]) <= 0
    found[1:] = (stream[1:] == stream[:-1]) & behind
    return found
