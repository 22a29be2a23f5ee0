"""Framer: from segments in order to frames, with what is held in between.

One framer frames what packets carried; another what was decrypted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dissector.packets.block import Bytes, Int64
from dissector.streams.complaints import Complaints
from dissector.streams.frames import FrameBlock
from dissector.streams.framing import Chains
from dissector.streams.holding import Holding
from dissector.streams.judging import Judge
from dissector.streams.proxied import without_headers
from dissector.streams.seeking import Seeker
from dissector.streams.segments import BLOCK, NO_SEGMENTS, Segments
from dissector.streams.table import (
    FIRST_TIME,
    FRAMED,
    IGNORED,
    LAST_TIME,
    PASSED_ON,
    Bools,
    ConnectionTable,
    StreamTable,
)
from dissector.streams.walking import Walk


class Framer:
    """Frames the streams of a table. `holding` has what goes into the next block."""

    def __init__(
        self, table: ConnectionTable, streams: StreamTable, judge: Judge, seeker: Seeker
    ) -> None:
        self.holding = Holding()
        self._table = table
        self._streams = streams
        self._judge = judge
        self._seeker = seeker

    def walk(
        self,
        data: Bytes,
        who: Int64,
        ready: Segments,
        finished: Bools,
        waits: Bools,
        complaints: Complaints,
    ) -> tuple[FrameBlock, Segments]:
        """The frames among segments that are in order, and the segments again, to be held.

        `who`: the stream of each local one. By local stream, `finished`: nothing more comes;
        `waits`: it has bytes that cannot be read yet. Of a stream whose frame is still not whole
        only what is new is walked.
        """
        goes_on = self._goes_on(who, finished)
        some, rest = ready, NO_SEGMENTS
        if not goes_on.all():
            framed = self._streams.flat("sync")[who] == FRAMED
            new = ready.at >= self._streams.flat("looked")[who][ready.stream]
            wanted = goes_on[ready.stream] | (framed[ready.stream] & new)
            some, rest = ready[wanted], ready[~wanted]
        self.holding.give(data, some[some.held != BLOCK])
        some = without_headers(data, who, some, self._table, self._streams)
        chains = Chains(data, some)
        walk = Walk(chains, who, self._table, self._streams, self._judge, self._seeker, complaints)
        frames = walk.run(finished[chains.stream], goes_on[chains.stream], waits[chains.stream ^ 1])
        self._streams.flat("looked")[who] = self._streams.flat("expected")[who]
        return frames, some + rest

    def hold(self, data: Bytes, who: Int64, segments: Segments) -> None:
        """Hold what is needed of this block and of those before it."""
        streams = self._streams
        boundary, framed = streams.flat("boundary")[who], streams.flat("sync")[who] == FRAMED
        ignored = streams.flat("sync")[who] == IGNORED
        boundary = np.where(ignored, LAST_TIME, boundary)
        boundary[~streams.flat("begun")[who]] = FIRST_TIME
        front = np.maximum(boundary[segments.stream], segments.at) - segments.at
        kept = np.flatnonzero(front < segments.span)
        segments, front = segments[kept], front[kept]
        segments = segments.trimmed(front, segments.span - front)
        segments = segments[np.lexsort((segments.at, segments.stream))]
        stream = who[segments.stream]
        joins = framed[segments.stream] & (segments.at < streams.flat("expected")[stream])
        self.holding.keep(data, replace(segments, stream=stream), joins)

    def _goes_on(self, who: Int64, finished: Bools) -> Bools:
        """The streams that can go on: not those whose frame is still not whole."""
        streams = self._streams
        frame_end = streams.flat("frame_end")[who]
        whole = (frame_end < 0) | (frame_end <= streams.flat("expected")[who])
        goes_on: Bools = whole | finished | (streams.flat("sync")[who] != FRAMED)
        goes_on &= ~np.isin(streams.flat("sync")[who], (IGNORED, PASSED_ON))
        return goes_on
