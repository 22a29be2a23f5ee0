"""Framer: from segments in order to frames, with what is held in between.

One framer frames what packets carried; another what was decrypted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dissector.packets.block import Bytes, Int64
from dissector.streams.bodies import BodyCheck
from dissector.streams.complaints import Complaints
from dissector.streams.frames import FrameBlock
from dissector.streams.framing import Chains
from dissector.streams.holding import Holding
from dissector.streams.judging import Judge
from dissector.streams.limits import SEEK_BYTES
from dissector.streams.proxied import without_headers
from dissector.streams.seeking import Seeker
from dissector.streams.segments import BLOCK, NO_SEGMENTS, Segments
from dissector.streams.state import States
from dissector.streams.table import (
    ENCRYPTED,
    FIRST_TIME,
    IGNORED,
    LAST_TIME,
    NEW,
    Bools,
    ConnectionTable,
    StreamTable,
)
from dissector.streams.walking import Walk


class Framer:
    """Frames the streams of a table. `holding` has what goes into the next block."""

    def __init__(
        self, table: ConnectionTable, streams: StreamTable, states: States, judge: Judge,
        seeker: Seeker, bodies: BodyCheck,
    ) -> None:  # fmt: skip
        self.holding = Holding()
        self._table = table
        self._streams = streams
        self._states = states
        self._judge = judge
        self._seeker = seeker
        self._bodies = bodies

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
        `waits`: it has bytes that cannot be read yet. Streams whose frame is still not whole are
        not walked.
        """
        goes_on = self._goes_on(who, finished)
        walked, resting = ready, NO_SEGMENTS
        if not goes_on.all():
            wanted = goes_on[ready.stream]
            walked, resting = ready[wanted], ready[~wanted]
        self.holding.give(data, walked[walked.held != BLOCK])
        walked = without_headers(data, who, walked, self._table, self._streams)
        chains = Chains(data, walked)
        walk = Walk(
            chains, who, self._table, self._streams, self._states, self._judge, self._seeker,
            self._bodies, complaints,
        )  # fmt: skip
        frames = walk.run(finished[chains.stream], goes_on[chains.stream], waits[chains.stream ^ 1])
        return frames, walked + resting

    def hold(self, data: Bytes, who: Int64, segments: Segments) -> None:
        """Hold what is needed of this block and of those before it."""
        streams = self._streams
        boundary, state = streams.flat("boundary")[who], streams.flat("state")[who]
        framed = streams.is_framed(who)
        boundary = np.where(state == IGNORED, LAST_TIME, boundary)
        boundary[state == NEW] = FIRST_TIME
        front = np.maximum(boundary[segments.stream], segments.at) - segments.at
        kept = np.flatnonzero(front < segments.span)
        segments, front = segments[kept], front[kept]
        segments = segments.trimmed(front, segments.span - front)
        segments = segments[np.lexsort((segments.at, segments.stream))]
        stream = who[segments.stream]
        # The first borders are kept: where a size is wrong, messages begin there.
        joins = framed[segments.stream] & (segments.at < streams.flat("expected")[stream])
        joins &= segments.at >= boundary[segments.stream] + SEEK_BYTES
        self.holding.keep(data, replace(segments, stream=stream), joins)

    def _goes_on(self, who: Int64, finished: Bools) -> Bools:
        """The streams that can go on: not those whose frame is still not whole."""
        streams = self._streams
        frame_end = streams.flat("frame_end")[who]
        expected = streams.flat("expected")[who]
        whole = (frame_end < 0) | (frame_end <= expected) | (streams.flat("due")[who] <= expected)
        goes_on: Bools = np.where(streams.is_framed(who), whole | finished, True)
        goes_on &= ~np.isin(streams.flat("state")[who], (IGNORED, ENCRYPTED))
        return goes_on
