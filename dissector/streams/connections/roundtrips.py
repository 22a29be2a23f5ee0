"""Round trips: the round-trip time to each end of a connection, and its announcements of a zero
window.

A sample is the time from a packet with payload to the packet that acknowledges it, at the capture
point: the way to that end and back (RFC 6298 measures the same at the sender). Samples are only
acknowledgements that an end sends at once: the first one without payload of exactly the last byte
that was sent. An acknowledgement with payload may have waited for a program. The acknowledgement of
a retransmission is ambiguous (Karn's algorithm). A receiver may still delay acknowledgements (RFC
9293, section 3.8.6.3): hence the median.

Samples are counted by their logarithm, so that any number of them takes little memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissector.packets.block import ACK, FIN, RST, SYN, Int64, PacketBlock, UInt32
from dissector.streams import sequence
from dissector.streams.connections.flows import Assignment
from dissector.streams.connections.rows import places
from dissector.streams.connections.table import NEVER, Columns, TripTable, streams_at

PER_OCTAVE = 35
"""Bins for each doubling of a time: the centre of a bin is within 1 % of all its samples."""

_BINS = 1 << 12
"""More bins than a time of 64 bits needs."""


class RoundTrips:
    """Measures the round trips of all connections, block by block."""

    def __init__(self) -> None:
        self.table = TripTable()
        self._keys = np.zeros(0, np.int64)
        self._counts = np.zeros(0, np.int64)
        self._new: list[Int64] = []

    def feed(self, block: PacketBlock, assignment: Assignment) -> None:
        """Measure a block of packets."""
        streams = assignment.streams
        self.table.grow(int(streams[-1]) // 2 + 1 if len(streams) else 0)
        has_zero_window = block.flags & (SYN | FIN | RST) == 0
        has_zero_window &= block.window == 0
        np.add.at(self.table.zero_windows, streams[assignment.slot[has_zero_window]], 1)
        self._measure(block, assignment.slot, streams)

    def forget(self, rows: Int64) -> None:
        """Drop the samples of these connections."""
        self._merge()
        kept = ~np.isin(self._keys // _BINS >> 1, rows)
        self._keys, self._counts = self._keys[kept], self._counts[kept]
        self.table.forget(rows)

    def take(
        self, rows: Int64, *, with_samples: bool = True
    ) -> tuple[Columns, Int64, Int64, Int64]:
        """The state of these connections, and their samples: stream, bin and count. Streams are
        numbered like `rows`."""
        if not with_samples:
            return self.table.take(rows), *np.zeros((3, 0), np.int64)
        self._merge()
        index, stream = places(self._keys // _BINS, streams_at(rows))
        return self.table.take(rows), stream, self._keys[index] % _BINS, self._counts[index]

    def put(self, rows: Int64, taken: tuple[Columns, Int64, Int64, Int64]) -> None:
        """Overwrite the state of these connections with what `take` returned, and add the samples.

        `rows`: the row of each connection.
        """
        columns, stream, bin_, count = taken
        self.table.put(rows, columns)
        self._count(streams_at(rows)[stream] * _BINS + bin_, count)

    def clear_samples(self) -> None:
        """Forget the samples of all connections, and the zero windows."""
        self._keys, self._counts, self._new = np.zeros(0, np.int64), np.zeros(0, np.int64), []
        self.table.zero_windows[:] = 0

    def zero_windows(self, rows: Int64) -> Int64:
        """Packets with a receive window of 0, by the end that sends them; shape (n, 2)."""
        return self.table.take(rows)["zero_windows"]

    def medians(self, rows: Int64) -> NDArray[np.float64]:
        """Median round trip to each end of these connections, ms; NaN without samples. Shape
        (n, 2), by end."""
        self._merge()
        wanted = streams_at(rows)
        medians = np.full(len(wanted), np.nan)
        ends = np.array([wanted.min(), wanted.max() + 1]) if len(wanted) else np.zeros(2, np.int64)
        part = slice(*np.searchsorted(self._keys, ends * _BINS))
        keys, counts = self._keys[part], self._counts[part]
        stream, first = np.unique(keys // _BINS, return_index=True)
        if len(stream):
            before = np.concatenate([[0], np.cumsum(counts)])
            total = np.diff(np.append(before[first], before[-1]))
            middle = before[first] + (total + 1) // 2
            bin_ = keys[np.searchsorted(before[1:], middle)] % _BINS
            place = np.minimum(np.searchsorted(stream, wanted), len(stream) - 1)
            has_samples = stream[place] == wanted
            medians[has_samples] = (2.0 ** (bin_ / PER_OCTAVE) / 1e6)[place[has_samples]]
        return medians.reshape(-1, 2)

    def _measure(self, block: PacketBlock, slot: Int64, streams: Int64) -> None:
        """Match payloads with their acknowledgements."""
        sent_end, sent_time = self.table.sent_end, self.table.sent_time
        carried = np.flatnonzero(self.table.has_sent[streams])
        data = np.flatnonzero(block.length)
        stream = np.concatenate([carried, slot[data]])
        order = np.argsort(stream, kind="stable")
        stream = stream[order]
        at = np.concatenate([np.zeros(len(carried), np.int64), data + 1])[order]
        ends = block.seq[data] + block.length[data].astype(np.uint32)
        end = np.concatenate([sent_end[streams[carried]], ends])[order]
        time = np.concatenate([sent_time[streams[carried]], block.time[data]])[order]
        time[_is_repeated(stream, end)] = NEVER
        width = len(block) + 1
        ack = np.flatnonzero(block.flags & (ACK | SYN | RST) == ACK)
        target = slot[ack] ^ 1
        payload = np.searchsorted(stream * width + at, target * width + ack + 1) - 1
        if len(stream):
            fits = (payload >= 0) & (stream[payload] == target) & (block.ack[ack] == end[payload])
            payload, first = np.unique(payload[fits], return_index=True)
            ack = ack[fits][first]
            trip = block.time[ack] - time[payload]
            is_sample = (time[payload] != NEVER) & (block.length[ack] == 0) & (trip >= 0)
            self._add_samples(streams[slot[ack[is_sample]]], trip[is_sample])
            time[payload] = NEVER  # only the first acknowledgement is a sample
            last = np.append(np.flatnonzero(np.diff(stream)), len(stream) - 1)
            sent_end[streams[stream[last]]] = end[last]
            sent_time[streams[stream[last]]] = time[last]
            self.table.has_sent[streams[stream[last]]] = True

    def _add_samples(self, stream: Int64, trip: Int64) -> None:
        bin_ = np.round(np.log2(np.maximum(trip, 1)) * PER_OCTAVE).astype(np.int64)
        self._new.append(stream * _BINS + bin_)
        if sum(map(len, self._new)) > max(len(self._keys), 1 << 16):
            self._merge()

    def _merge(self) -> None:
        """Merge new samples into the counts."""
        if self._new:
            new, self._new = np.concatenate(self._new), []
            self._count(new, np.ones(len(new), np.int64))

    def _count(self, keys: Int64, counts: Int64) -> None:
        """Add to the counts of these keys."""
        keys, counts = np.append(self._keys, keys), np.append(self._counts, counts)
        self._keys, place = np.unique(keys, return_inverse=True)
        self._counts = np.bincount(place, counts, len(self._keys)).astype(np.int64)


def _is_repeated(stream: Int64, end: UInt32) -> NDArray[Any]:
    """Whether each payload ends no later than the previous one in its stream."""
    is_repeated = np.zeros(len(stream), np.bool_)
    is_behind = sequence.ahead(end[1:], end[:-1]) <= 0
    is_repeated[1:] = (stream[1:] == stream[:-1]) & is_behind
    return is_repeated
