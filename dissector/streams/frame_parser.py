"""FrameParser: the frames of a block's streams.

While no byte is missing and all sizes and headers are possible, the chain of sizes is the truth,
whatever the frames contain. `resync` searches if

- a size is impossible, or its bytes are missing;
- a header is impossible, or a message is smaller than its header;
- the last message of the chain is incomplete, and no evidence shows that a message begins there;
- the body of an incomplete message ends before its size, or is invalid;
- the stream ends inside a message whose body does not confirm its size.

Requests are parsed first, then responses: the correlation ids of a client's requests identify
responses without a known boundary. So a search for responses waits while requests are after a hole
that may be filled.
"""

from __future__ import annotations

import numpy as np

from dissector import _native
from dissector.packets.block import Int64
from dissector.streams.block_problems import BlockProblems
from dissector.streams.connections.state import ALIGNED, BROKEN, FOUND, HEAD_LOST
from dissector.streams.connections.table import (
    FIRST_TIME,
    HEAD,
    KAFKA,
    LAST_TIME,
    NEVER,
    NEW,
    RESUMED,
    SEARCHING,
    UNDECIDED,
    Bools,
)
from dissector.streams.doubts import Doubts
from dissector.streams.frame_chain import BAD, LOST, WHOLE, ChainFrames, FrameChains, Walk
from dissector.streams.frames import FrameBlock, frame_block
from dissector.streams.limits import CLOCK_SKEW, RESYNCS, SEEK_BYTES, WAITING_BYTES
from dissector.streams.search.bodies import CONSISTENT, SURPLUS, UNKNOWN
from dissector.streams.search.header_evidence import CONTROLLED_SHUTDOWN, RESERVED, YES
from dissector.streams.search.places import segment_starts
from dissector.streams.stream_set import StreamSet
from dissector.tls.alerts import ALERT_RECORD, clear_alert

FIRST_CHECK = 64
"""Bytes of an incomplete message at which its body is first checked; then each time that it has
grown by half. Requests inside it should be found before their responses arrive."""


class FrameParser:
    """Parses one block."""

    def __init__(
        self, chains: FrameChains, stream_set: StreamSet, finished: Bools, peer_waits: Bools,
        block_problems: BlockProblems,
    ) -> None:  # fmt: skip
        """By stream, `finished`: it has ended. `peer_waits`: the opposite stream has bytes that
        cannot be read yet."""
        self._chains = chains
        self._stream = chains.stream
        self._table = stream_set.table
        self._streams = stream_set.streams
        self._states = stream_set.states
        self._scorer = stream_set.scorer
        self._detector = stream_set.detector
        self._bodies = stream_set.bodies
        self._block_problems = block_problems
        self._chain_frames: list[ChainFrames] = []
        self._recorded_count = 0
        self._doubts = Doubts(chains, stream_set)
        self._finished = finished
        self._peer_waits = peer_waits

    def run(self) -> FrameBlock:
        """Find all frames."""
        self._scorer.begin_block(self._stream)
        self._lose_missing_heads()
        self._detector.decide(self._chains, self._finished)
        may_be_client = self._scorer.may_be_client(self._stream)
        self._parse(np.flatnonzero(may_be_client), of_clients=True)
        self._record_ids()
        self._stop_waiting_for_heads()
        # Requests that were found may show that the sender of another stream is the broker.
        may_be_client &= self._scorer.may_be_client(self._stream)
        self._parse(np.flatnonzero(~may_be_client), of_clients=False)
        self._record_ids()
        self._open_incomplete()
        self._finish_streams(np.flatnonzero(self._finished))
        self._record_ids()
        return frame_block(
            self._chains, self._chain_frames, self._table, self._streams,
            self._block_problems.problems,
        )  # fmt: skip

    def _parse(self, index: Int64, *, of_clients: bool) -> None:
        """Parse these streams, until each is at its end or has no boundary."""
        for _ in range(RESYNCS):
            # If the connection was just decided, its responses wait for all of its requests.
            index = index[self._scorer.may_be_client(self._stream[index]) == of_clients]
            if not len(index):
                break
            index = self._parse_once(index, of_clients=of_clients)

    def _parse_once(self, index: Int64, *, of_clients: bool) -> Int64:
        """Search for missing boundaries, and walk the chains. Returns the streams to walk again."""
        streams, chains = self._streams, self._chains
        stream = self._stream[index]
        lost = streams.state[stream] == SEARCHING
        if lost.any():
            self._record_ids()
            self._find_boundaries(index[lost], of_clients=of_clients)
        index = index[streams.is_framed(stream)]
        stream = self._stream[index]
        begin = chains.address_of(index, streams.boundary[stream])
        walk = chains.walk(index, begin)
        at, ended, behind = walk.at, walk.ended, walk.behind
        large = self._doubts.large_messages(index, at, ended)
        ended[large], behind[large] = WHOLE, at[large] + 4 + chains.number(at[large], "i4")
        resumed = self._resolve_doubts(index, begin, walk)
        whole = large[(behind[large] >= 0) & (behind[large] <= chains.end[index[large]])]
        if len(whole):
            size = behind[whole] - at[whole] - 4
            self._chain_frames.append(chains.frames_at(at[whole], size))
            at[whole], behind[whole] = behind[whole], -1
        streams.boundary[stream] = chains.position_of(index, at)
        streams.frame_end[stream] = np.where(behind < 0, NEVER, chains.position_of(index, behind))
        streams.check_from[stream] = streams.boundary[stream] + FIRST_CHECK
        is_border = chains.is_border(at)
        self._states.advance(stream[(at != begin) & is_border], ALIGNED)
        self._states.advance(stream[resumed], FOUND)
        broken = np.flatnonzero((ended == LOST) | (ended == BAD))
        for each in broken[ended[broken] == BAD].tolist():
            if self._skip_alert(int(index[each])):
                continue
            self._block_problems.add(
                "frames", "bad_size", "four bytes cannot be the size of a frame",
                int(stream[each]), int(streams.boundary[stream[each]]), 4,
            )  # fmt: skip
        self._lose_boundary(stream[broken])
        unfinished: Int64 = np.unique(np.concatenate([broken, resumed, whole]))
        return index[unfinished]

    def _resolve_doubts(self, index: Int64, begin: Int64, walk: Walk) -> Int64:
        """Search at the doubtful places of a walk, and keep the frames before them. Changes where
        and why the walk of a stream ended. Returns the streams that continue after such a place,
        by their place in `index`."""
        chains, frames, at = self._chains, walk.frames, walk.at
        kept = np.ones(len(frames.start), np.bool_)
        resumed = []
        for each, places in self._doubts.find(index, begin, walk).items():
            chain = int(index[each])
            low, high = np.searchsorted(frames.start, [begin[each], chains.end[chain]])
            starts = frames.start[low:high]
            drop, at[each], goes_on = self._doubts.resolve(
                chain, starts, places, int(at[each]), int(walk.ended[each]),
                is_finished=bool(self._finished[chain]),
            )  # fmt: skip
            if drop >= 0:
                if goes_on:
                    long = drop if drop <= at[each] else int(starts[starts < at[each]][-1])
                    self._report_long(chain, long, int(at[each]))
                kept[low + np.searchsorted(starts, drop) : high] = False
                walk.ended[each], walk.behind[each] = WHOLE, -1
                resumed += [each] * goes_on
        self._chain_frames.append(frames[kept])
        return np.array(resumed, np.int64)

    def _skip_alert(self, index: int) -> bool:
        """Report a TLS alert at the start of a broker's stream, and move the boundary after it: a
        client without TLS has connected to a listener that requires it."""
        chains, stream = self._chains, int(self._stream[index])
        if self._streams.boundary[stream] or self._table.client[stream >> 1] == stream & 1:
            return False
        begin = int(chains.address[chains.first[index]])
        size = min(ALERT_RECORD, int(chains.end[index]) - begin)
        name = clear_alert(chains.space.bytes(begin, size))
        if name is None:
            return False
        detail = f"TLS failed: alert {name} to a client without TLS"
        self._block_problems.add("tls", "tls_alert", detail, stream, 0, size)
        self._streams.boundary[stream] = size
        return True

    def _report_long(self, index: int, at: int, place: int) -> None:
        """Report that a message begins at a place inside the message at `at`."""
        chain = np.array([index, index])
        begin, inside = self._chains.position_of(chain, np.array([at, place])).tolist()
        self._block_problems.add(
            "frames", "bad_size",
            "a message is shorter than its size: another message begins inside it",
            int(self._stream[index]), begin, inside - begin,
        )  # fmt: skip

    def _lose_boundary(self, stream: Int64) -> None:
        """Mark the boundaries of these streams as unknown from here on."""
        streams = self._streams
        self._states.advance(stream, BROKEN)
        streams.search_from[stream] = streams.boundary[stream]

    def _find_boundaries(self, index: Int64, *, of_clients: bool) -> None:
        """Resynchronise these streams, where possible."""
        streams, chains, stream = self._streams, self._chains, self._stream[index]
        begin = chains.address_of(index, streams.boundary[stream])
        pending, place = begin.copy(), np.full(len(index), -1)
        is_undecided = streams.protocol[stream >> 1] == UNDECIDED
        waits = self._peer_waits[index] & is_undecided
        if is_undecided.any():
            pending[is_undecided] = self._detector.seek(
                chains, index[is_undecided], waits[is_undecided]
            )
        # If a connection was just decided, its responses wait for all of its requests.
        is_kafka = streams.protocol[stream >> 1] == KAFKA
        is_searched = is_kafka & (self._scorer.may_be_client(stream) == of_clients)
        is_early = self._peer_waits[index] & ~self._finished[index] & (not of_clients)
        is_early &= is_kafka & (chains.end[index] - begin < WAITING_BYTES)
        is_searched &= ~is_early
        searched = np.flatnonzero(is_searched)
        pending[searched] = begin[searched]
        place[searched] = self._doubts.entries(index[searched], begin[searched])
        missed = np.flatnonzero((place < 0) & (is_searched | ~is_kafka))
        self._detector.move_on(chains, index[missed], pending[missed], waits[missed])
        resumed = place >= 0
        index, stream, place = index[resumed], stream[resumed], place[resumed]
        position = chains.position_of(index, place)
        self._states.advance(stream, FOUND)
        streams.boundary[stream] = position
        self._report_skipped(stream, position)

    def _report_skipped(self, stream: Int64, until: Int64) -> None:
        """Report bytes that were skipped because no boundary was known."""
        since = self._streams.search_from[stream]
        for each in np.flatnonzero(until > since).tolist():
            self._block_problems.add_skipped(
                int(stream[each]), int(since[each]), int(until[each] - since[each])
            )

    def _lose_missing_heads(self) -> None:
        """Mark streams whose first bytes are lost: they may begin at any other place."""
        chains, streams, stream = self._chains, self._streams, self._stream
        is_lost = chains.pieces.at[chains.first[:-1]] != streams.boundary[stream]
        self._states.advance(stream[is_lost], HEAD_LOST)

    def _stop_waiting_for_heads(self) -> None:
        """Stop holding a broker's first bytes once the client's first bytes cannot arrive."""
        chains, stream = self._chains, self._stream
        size = chains.end - chains.address[chains.first[:-1]]
        is_client = self._table.is_client(stream)
        # If the client's bytes arrived after a hole, that hole is filled or given up later. If no
        # bytes arrived, its clock may be behind: then the broker's first bytes are a response.
        peer = self._streams.state[stream ^ 1]
        is_pending = (peer == HEAD) & self._table.has_bytes(stream ^ 1)
        is_pending |= self._peer_waits
        server_only = np.flatnonzero((peer == NEW) & (size > SEEK_BYTES) & ~is_client)
        server = stream[server_only]
        duration = self._streams.readable_time[server] - self._streams.origin_time[server]
        server_only = server_only[duration <= CLOCK_SKEW]
        begin = chains.address[chains.first[server_only]]
        verdict = self._scorer.responses(chains, begin, server_only)[1]
        is_pending[server_only] |= verdict == YES
        is_over = (size > np.where(is_pending, WAITING_BYTES, SEEK_BYTES)) | self._finished
        self._states.advance(stream[is_over & ~is_client], HEAD_LOST)

    # Evidence

    def _record_ids(self) -> None:
        """Record the correlation ids of the frames that were found since the last call."""
        new, self._recorded_count = self._recorded_count, len(self._chain_frames)
        parts = self._chain_frames[new:]
        frames = ChainFrames.joined(parts or [ChainFrames.empty()])
        if not len(frames):
            return
        if len(parts) > 1:
            frames = frames[np.argsort(frames.start, kind="stable")]
        self._record_requests(frames)
        stream, slot = self._chains.stream_ids, self._chains.pieces.stream
        is_broker = self._table.client[stream >> 1] == 1 - (stream & 1)
        lowest, highest = self._scorer.plausible_ids(stream)
        lowest[~is_broker] = LAST_TIME  # nobody responds in these streams
        latest = np.full(len(stream), FIRST_TIME)
        _native.read_response_ids(
            frames.piece, frames.first, slot, lowest, np.minimum(highest, RESERVED - 1), latest
        )
        has_latest = latest != FIRST_TIME
        self._scorer.record_responses(stream[has_latest], latest[has_latest])

    def _record_requests(self, frames: ChainFrames) -> None:
        """Record the correlation ids of requests, and the sizes of client ids."""
        chains, stream = self._chains, self._chains.stream_ids
        client = np.where(self._table.is_client(stream), stream, -1)
        least, most, fall = np.zeros((3, len(stream)), np.int64)
        earliest = np.full(len(stream), -1)
        key, kind = np.empty(len(frames.start), np.int64), np.empty(len(frames.start), np.int32)
        count = _native.read_request_ids(
            frames.piece, frames.first, frames.second, chains.pieces.stream, client, RESERVED,
            least, most, fall, earliest, key, kind,
        )  # fmt: skip
        self._bodies.log.add(key[:count], kind[:count])
        slot = np.flatnonzero(earliest >= 0)
        index, stream = chains.slot.searchsorted(slot), stream[slot]
        first = frames[earliest[slot]]
        begin = chains.position_of(index, first.start)
        is_head = begin == self._streams.framed_until[stream]
        has_id = first.first != CONTROLLED_SHUTDOWN << 16
        self._scorer.record_client_ids(stream[has_id], first.third[has_id])
        self._scorer.record_requests(stream, least[slot], most[slot], fall[slot], is_head)

    # Incomplete messages

    def _open_incomplete(self) -> None:
        """Continue inside incomplete messages whose bodies show that their sizes are wrong."""
        for _ in range(RESYNCS):
            opened = np.array([index for index in self._due() if self._opens(index)], np.int64)
            if not len(opened):
                break
            self._parse(opened, of_clients=True)
            self._record_ids()
            self._parse(opened, of_clients=False)

    def _due(self) -> list[int]:
        """Streams whose incomplete message is to be checked: the stream has ended, or the message
        has grown and seems to contain another one."""
        streams, stream, chains = self._streams, self._stream, self._chains
        boundary, end = streams.boundary[stream], streams.next_position[stream]
        due = streams.is_framed(stream) & (boundary < end)
        due &= streams.frame_end[stream] >= 0
        due &= self._finished | (end >= streams.check_from[stream])
        # The bytes of streams that do not continue are not in this block.
        at = chains.address_of(np.arange(len(stream)), boundary)
        due &= at >= chains.address[chains.first[:-1]]
        index = np.flatnonzero(due & ~self._finished)
        if not len(index):
            return [*np.flatnonzero(due).tolist()]
        place, owner = segment_starts(chains, index, chains.piece_of(at[index]) + 1)
        owner = index[owner]
        state = self._scorer.headers(chains, place, owner)[1]
        without_inner = np.setdiff1d(index, owner[state == YES])
        due[without_inner] = False
        length = end[without_inner] - boundary[without_inner]
        next_check = boundary[without_inner] + 3 * length // 2
        streams.check_from[stream[without_inner]] = next_check
        due_streams: list[int] = np.flatnonzero(due).tolist()
        return due_streams

    def _opens(self, index: int) -> bool:
        """Check the incomplete message at the boundary of a stream. If its size is wrong and
        another message begins inside it, move the boundary there and return True."""
        streams, stream = self._streams, int(self._stream[index])
        chain = np.array([index])
        boundary = streams.boundary[[stream]]
        at, end = int(self._chains.address_of(chain, boundary)[0]), int(self._chains.end[index])
        verdict, _ = self._bodies.check(self._chains, index, at)
        streams.check_from[stream] = boundary[0] + 3 * (end - at) // 2
        is_last = bool(self._finished[index])
        if verdict in (SURPLUS, UNKNOWN) and not (is_last or self._is_answered(stream)):
            return False
        if verdict == CONSISTENT and not (is_last and self._is_unsure(index, at)):
            return False
        inside = self._doubts.search_of(index).inside(at, is_last=is_last)
        if inside < 0:
            return False
        self._report_long(index, at, inside)
        position = self._chains.position_of(chain, np.array([inside]))
        streams.boundary[[stream]] = position
        streams.frame_end[stream] = NEVER
        self._states.advance(self._stream[chain], FOUND)
        return True

    def _is_answered(self, stream: int) -> bool:
        """Whether the broker has responded to a request after all known ones of this client."""
        if self._table.client[stream >> 1] != stream & 1:
            return False
        streams, both = self._streams, np.array([stream, stream ^ 1])
        request, response = streams.correlation[both].tolist()
        return bool(streams.has_correlation[both].all()) and response > request

    def _is_unsure(self, index: int, at: int) -> bool:
        """Whether a message after missing or damaged bytes has little evidence: it does not begin
        a segment, and its header is not certain."""
        if self._streams.state[self._stream[index]] != RESUMED:
            return False
        sure, _ = self._scorer.is_sure(self._chains, np.array([at]), np.array([index]))
        return not sure[0]

    def _finish_streams(self, index: Int64) -> None:
        """Return the incomplete frames at the ends of streams, and report them."""
        streams, chains, stream = self._streams, self._chains, self._stream[index]
        boundary, end = streams.boundary, streams.next_position
        self._states.advance(stream, HEAD_LOST)
        is_searching = streams.state[stream] == SEARCHING
        decided = stream[is_searching & (streams.protocol[stream >> 1] != UNDECIDED)]
        self._report_skipped(decided, end[decided])
        boundary[stream[is_searching]] = end[stream[is_searching]]
        # The skipped bytes of undecided connections are reported if they turn out to be Kafka.
        streams.search_from[decided] = end[decided]
        incomplete = np.flatnonzero(streams.is_framed(stream) & (boundary[stream] < end[stream]))
        index, stream = index[incomplete], stream[incomplete]
        at = chains.address_of(index, boundary[stream])
        has_size = streams.frame_end[stream] >= 0
        size = chains.space.number(at, "i4")
        self._chain_frames.append(chains.frames_at(at[has_size], size[has_size]))
        missing = at + 4 + size - chains.end[index]
        for each in np.flatnonzero(has_size).tolist():
            self._block_problems.add(
                "frames", "cut_message", "a message is incomplete: no more bytes arrived",
                int(stream[each]), int(boundary[stream[each]]), int(missing[each]),
            )  # fmt: skip
        boundary[stream] = np.where(has_size, streams.frame_end[stream], end[stream])
        streams.frame_end[stream] = NEVER
        for each in np.flatnonzero(~has_size).tolist():
            self._block_problems.add(
                "frames", "cut_size", "the size of a message is incomplete: no more bytes arrived",
                int(stream[each]), int(end[stream[each]]),
                int(chains.end[index[each]] - at[each]),
            )  # fmt: skip
        self._lose_boundary(stream[~has_size])
