"""Framer: from segments in order to frames, with what is held in between.

One framer frames what packets carried; another what was decrypted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dissector.packets.block import Bytes, Int64
from dissector.streams.block_problems import BlockProblems
from dissector.streams.bodies import BodyCheck
from dissector.streams.carry import CarryBuffer
from dissector.streams.detection import ProtocolDetector
from dissector.streams.frame_chain import FrameChains
from dissector.streams.frame_parser import FrameParser
from dissector.streams.frames import FrameBlock
from dissector.streams.header_evidence import HeaderScorer
from dissector.streams.limits import SEEK_BYTES
from dissector.streams.proxy_protocol import without_headers
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


class Framer:
    """Frames the streams of a table. `carry` has what goes into the next block."""

    def __init__(
        self, table: ConnectionTable, streams: StreamTable, states: States, scorer: HeaderScorer,
        detector: ProtocolDetector, bodies: BodyCheck,
    ) -> None:  # fmt: skip
        self.carry = CarryBuffer()
        self._table = table
        self._streams = streams
        self._states = states
        self._scorer = scorer
        self._detector = detector
        self._bodies = bodies

    def walk(
        self,
        data: Bytes,
        stream_ids: Int64,
        ready: Segments,
        finished: Bools,
        waits: Bools,
        block_problems: BlockProblems,
    ) -> tuple[FrameBlock, Segments]:
        """The frames among segments that are in order, and the segments again, to be held.

        `stream_ids`: the stream of each local one. By local stream, `finished`: nothing more comes;
        `waits`: it has bytes that cannot be read yet. Streams whose frame is still not whole are
        not walked.
        """
        goes_on = self._goes_on(stream_ids, finished)
        walked, resting = ready, NO_SEGMENTS
        if not goes_on.all():
            wanted = goes_on[ready.stream]
            walked, resting = ready[wanted], ready[~wanted]
        self.carry.give(data, walked[walked.held != BLOCK])
        walked = without_headers(data, stream_ids, walked, self._table, self._streams)
        chains = FrameChains(data, walked)
        parser = FrameParser(
            chains, stream_ids, self._table, self._streams, self._states, self._scorer,
            self._detector, self._bodies, block_problems,
        )  # fmt: skip
        frames = parser.run(
            finished[chains.stream], goes_on[chains.stream], waits[chains.stream ^ 1]
        )
        return frames, walked + resting

    def hold(self, data: Bytes, stream_ids: Int64, segments: Segments) -> None:
        """Hold what is needed of this block and of those before it."""
        streams = self._streams
        boundary, state = streams.flat("boundary")[stream_ids], streams.flat("state")[stream_ids]
        framed = streams.is_framed(stream_ids)
        boundary = np.where(state == IGNORED, LAST_TIME, boundary)
        boundary[state == NEW] = FIRST_TIME
        front = np.maximum(boundary[segments.stream], segments.at) - segments.at
        kept = np.flatnonzero(front < segments.span)
        segments, front = segments[kept], front[kept]
        segments = segments.trimmed(front, segments.span - front)
        segments = segments[np.lexsort((segments.at, segments.stream))]
        stream = stream_ids[segments.stream]
        # The first borders are kept: where a size is wrong, messages begin there.
        joins = framed[segments.stream] & (segments.at < streams.flat("next_position")[stream])
        joins &= segments.at >= boundary[segments.stream] + SEEK_BYTES
        self.carry.keep(data, replace(segments, stream=stream), joins)

    def _goes_on(self, stream_ids: Int64, finished: Bools) -> Bools:
        """The streams that can go on: not those whose frame is still not whole."""
        streams = self._streams
        frame_end = streams.flat("frame_end")[stream_ids]
        expected = streams.flat("next_position")[stream_ids]
        whole = (
            (frame_end < 0)
            | (frame_end <= expected)
            | (streams.flat("check_from")[stream_ids] <= expected)
        )
        goes_on: Bools = np.where(streams.is_framed(stream_ids), whole | finished, True)
        goes_on &= ~np.isin(streams.flat("state")[stream_ids], (IGNORED, ENCRYPTED))
        return goes_on
