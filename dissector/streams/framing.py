"""Framer: from ordered segments to frames, with the bytes that are carried between blocks.

One framer treats the bytes of packets, another one decrypted bytes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dissector.packets.block import Bytes, Int64
from dissector.streams.block_problems import BlockProblems
from dissector.streams.connections.table import (
    ENCRYPTED,
    FIRST_TIME,
    IGNORED,
    LAST_TIME,
    NEW,
    Bools,
)
from dissector.streams.frame_chain import FrameChains
from dissector.streams.frame_parser import FrameParser
from dissector.streams.frames import FrameBlock
from dissector.streams.limits import SEEK_BYTES
from dissector.streams.proxies.skipping import without_proxies
from dissector.streams.reassembly.carry import CarryBuffer
from dissector.streams.segments import NO_SEGMENTS, Segments
from dissector.streams.stream_set import StreamSet


class Framer:
    """Frames a set of streams. `carry`: the segments for the next block."""

    def __init__(self, stream_set: StreamSet) -> None:
        self.carry = CarryBuffer()
        self._set = stream_set
        self._streams = stream_set.streams
        self._free = 0
        """Free bytes at the front of the block's data."""

    def due(
        self, data: Bytes, reserve: int, stream_ids: Int64, ready: Segments, finished: Bools
    ) -> tuple[Segments, Segments]:
        """The segments to walk, whose bytes are in the data; and those of streams whose frame is
        still incomplete.

        `reserve`: free bytes at the front of the data, at least as many as are carried.
        `stream_ids`: the stream of each slot. `finished`: by slot, whether the stream has ended.
        """
        self._free = reserve
        goes_on = self._goes_on(stream_ids, finished)
        if goes_on.all():
            return self.load(data, ready), NO_SEGMENTS
        is_due = goes_on[ready.stream]
        return self.load(data, ready[is_due]), ready[~is_due]

    def load(self, data: Bytes, segments: Segments) -> Segments:
        """Copy the bytes of carried segments to the front of the data."""
        segments, self._free = self.carry.load(data, self._free, segments)
        return segments

    def walk(
        self, data: Bytes, stream_ids: Int64, segments: Segments, finished: Bools, waits: Bools,
        block_problems: BlockProblems,
    ) -> tuple[FrameBlock, Segments]:  # fmt: skip
        """The frames of ordered segments; and the segments, to be passed to `hold`.

        By slot, `finished`: the stream has ended; `waits`: it has bytes that cannot be read yet.
        """
        walked, pending = without_proxies(
            data, stream_ids, segments, finished, self._set.table, self._streams
        )
        chains = FrameChains(data, walked, stream_ids)
        ended, peer_waits = finished[chains.slot], waits[chains.slot ^ 1]
        parser = FrameParser(chains, self._set, ended, peer_waits, block_problems)
        return parser.run(), walked + pending

    def hold(self, data: Bytes, stream_ids: Int64, segments: Segments) -> None:
        """Carry the segments that later blocks need."""
        streams = self._streams
        boundary, state = streams.boundary[stream_ids], streams.state[stream_ids]
        framed = streams.is_framed(stream_ids)
        boundary = np.where(state == IGNORED, LAST_TIME, boundary)
        boundary[state == NEW] = FIRST_TIME
        # The ends are compared: LAST_TIME less a negative position does not fit in int64.
        begin = np.maximum(boundary[segments.stream], segments.at)
        kept = np.flatnonzero(begin < segments.at + segments.span)
        segments, front = segments[kept], begin[kept] - segments.at[kept]
        segments = segments.trimmed(front, segments.span - front)
        segments = segments[np.lexsort((segments.at, segments.stream))]
        stream = stream_ids[segments.stream]
        # The first borders are kept: if a size is wrong, messages begin at them.
        joins = framed[segments.stream] & (segments.at < streams.next_position[stream])
        joins &= segments.at >= boundary[segments.stream] + SEEK_BYTES
        self.carry.store(data, replace(segments, stream=stream), joins)

    def _goes_on(self, stream_ids: Int64, finished: Bools) -> Bools:
        """The streams to walk: not those whose frame is still incomplete."""
        streams = self._streams
        frame_end = streams.frame_end[stream_ids]
        end = streams.next_position[stream_ids]
        is_due = (frame_end < 0) | (frame_end <= end) | (streams.check_from[stream_ids] <= end)
        goes_on: Bools = np.where(streams.is_framed(stream_ids), is_due | finished, True)
        goes_on &= ~np.isin(streams.state[stream_ids], (IGNORED, ENCRYPTED))
        return goes_on
