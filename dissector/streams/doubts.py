"""Doubts: places where a chain of sizes cannot be right, and what a search finds there.

A place is doubtful if a header is impossible, if a message is smaller than its header, if a size is
impossible, or if the last message is incomplete and no evidence shows that it begins there.
"""

from __future__ import annotations

import numpy as np

from dissector import _native
from dissector.packets.block import Int64
from dissector.streams.connections.table import NEVER, RESUMED, Bools
from dissector.streams.frame_chain import BAD, CUT, ChainFrames, FrameChains, Walk
from dissector.streams.limits import CERTAINTY, SEEK_BYTES, USUAL_FRAME, WAITING_BYTES
from dissector.streams.search.bodies import CONSISTENT, UNKNOWN
from dissector.streams.search.header_evidence import (
    BORDER_BITS,
    CORRELATION_BITS,
    NEAR,
    NEAR_BITS,
    NO,
    REQUEST_BITS,
)
from dissector.streams.search.places import are_confirmed, segment_starts, weighed_chains
from dissector.streams.search.resync import SEGMENTS_BEHIND, Node, Search
from dissector.streams.stream_set import StreamSet

MAX_DOUBTFUL = 64
"""Maximum doubtful places of a stream that one walk examines. SASL tokens are such places."""
MAX_BACKTRACK = 64
"""Messages before a doubtful place among which the wrong size is searched."""
_HEADERS = 8, 4
"""Bytes of the smallest header of a request: API, version, correlation id; and of a response."""


class Doubts:
    """Doubtful places of the chains of a block, and the search in each stream."""

    def __init__(self, chains: FrameChains, stream_set: StreamSet) -> None:
        self._chains = chains
        self._table = stream_set.table
        self._streams = stream_set.streams
        self._scorer = stream_set.scorer
        self._bodies = stream_set.bodies
        self._searches: dict[int, Search] = {}
        self._confirmed = np.zeros(0, np.int64)
        """Addresses of messages that need no search, in the chains that are examined."""
        self._is_examined = np.zeros(len(chains.stream), np.bool_)

    def find(self, index: Int64, begin: Int64, walk: Walk) -> dict[int, list[int]]:
        """Doubtful addresses of the chains, by the place of their stream in `index`. `begin`: where
        the walk of each one began."""
        frames, until, at, ended, _ = walk
        implausible = self._implausible_headers(frames, until, self._chains.stream[index])
        # The sizes of a segment and of the one before it are right, whatever their headers. Devices
        # between client and broker may send responses in any order.
        is_segment = self._are_segments(frames, implausible)
        is_segment &= self._are_segments(frames, np.maximum(implausible - 1, 0))
        implausible = implausible[~is_segment]
        owner = until.searchsorted(implausible, "right")
        cut = np.flatnonzero(ended == CUT)
        doubtful = self._doubtful_ends(index[cut], begin[cut], at[cut])
        doubtful = np.union1d(doubtful, self._repeated_ends(index[cut], at[cut], frames))
        last = np.union1d(cut[doubtful], np.flatnonzero(ended == BAD))
        places = np.append(frames.start[implausible], at[last]).tolist()
        doubtful_places: dict[int, list[int]] = {}
        for each, address in zip(np.append(owner, last).tolist(), places, strict=True):
            doubtful_places.setdefault(each, []).append(address)
        return doubtful_places

    def large_messages(self, index: Int64, at: Int64, ended: Int64) -> Int64:
        """Which chains end at a message that is larger than `USUAL_FRAME`, and whose header and
        body confirm its size. `at` and `ended`: as in `Walk`."""
        chains, bad = self._chains, np.flatnonzero(ended == BAD)
        bad = bad[chains.number(at[bad], "i4") > USUAL_FRAME]
        if not len(bad):
            return bad
        sure, _ = self._scorer.is_sure(chains, at[bad], index[bad], any_size=True)
        large = []
        for each in bad[sure].tolist():
            message = int(index[each]), int(at[each])
            verdict, _ = self._bodies.check(chains, *message, most=WAITING_BYTES)
            large += [each] * (verdict in (CONSISTENT, UNKNOWN))
        return np.array(large, np.int64)

    def _doubtful_ends(self, index: Int64, begin: Int64, at: Int64) -> Int64:
        """Which chains have an incomplete last message without evidence that it begins there.

        `begin` and `at`: where the walk of each chain began, and where that message begins.
        """
        if not len(index):
            return index
        chains, stream = self._chains, self._chains.stream[index]
        sure, impossible = self._scorer.is_sure(chains, at, index)
        # A message begins where the walk began, and where a segment begins. After a search, the
        # start of a segment is not sufficient evidence, unless the bytes of the body are missing.
        is_border = chains.is_border(at)
        is_unreadable = is_border & (chains.gap_after(at) < chains.end[index])
        begins = (at == begin) | (is_border & (self._streams.state[stream] != RESUMED))
        for each in np.flatnonzero(sure & ~begins).tolist():
            verdict = self._bodies.check(chains, int(index[each]), int(at[each]))[0]
            sure[each] = verdict == CONSISTENT or (verdict == UNKNOWN and is_unreadable[each])
        return np.flatnonzero(impossible | ~(sure | begins))

    def _repeated_ends(self, index: Int64, at: Int64, frames: ChainFrames) -> Int64:
        """Which of these incomplete last messages are responses with impossible ids, compared with
        the previous responses. `frames`: those of all chains."""
        if not len(index):
            return index
        chains, stream = self._chains, self._chains.stream[index]
        previous = frames.start.searchsorted(at) - 1  # -1: none
        is_first = np.append(frames.start, NEVER)[previous] < chains.address[chains.first[index]]
        before = np.where(is_first, NEVER, np.append(frames.first, NEVER)[previous])
        has_number = at + 8 <= np.minimum(chains.end[index], chains.gap_after(at))
        number = chains.number(at + 4, "i4")
        implausible = self._scorer.implausible_responses(stream, number, before, are_whole=False)
        return np.flatnonzero(implausible & has_number & ~self._table.is_client(stream))

    def _are_segments(self, frames: ChainFrames, row: Int64) -> Bools:
        """Whether each of these frames is a segment: then its size is right."""
        chains, start = self._chains, frames.start[row]
        end = start + 4 + frames.size[row]
        are_segments: Bools = chains.is_border(start) & chains.is_segment_end(end)
        are_segments &= chains.piece_of(start) == chains.piece_of(end - 1)
        return are_segments

    def _implausible_headers(self, frames: ChainFrames, until: Int64, stream: Int64) -> Int64:
        """The frames that are smaller than a header, or have an impossible header.

        `stream`: the streams of the frames. `until`: number of frames up to the last one of each.
        """
        is_client = self._table.is_client(stream)
        lowest, highest = self._scorer.plausible_ids(stream)
        unusual = np.empty(len(frames.start), np.int64)
        count = _native.find_unusual(
            until, is_client.view(np.uint8), self._scorer.newest, lowest, highest,
            frames.size, frames.first, frames.third, unusual,
        )  # fmt: skip
        row = unusual[:count]
        if not count:
            return row
        owner, number, size = until.searchsorted(row, "right"), frames.first[row], frames.size[row]
        is_first = row == np.append(0, until)[owner]
        before = np.where(is_first, NEVER, frames.first[row - 1])
        is_request = is_client[owner]
        implausible = size < np.where(is_request, *_HEADERS)
        request, response = np.flatnonzero(is_request), np.flatnonzero(~is_request)
        header = number[request], frames.third[row[request]], size[request]
        is_strange = self._scorer.implausible_requests(*header)
        is_unknown = is_strange & ~self._scorer.implausible_requests(*header, any_api=True)
        unknown = request[is_unknown]
        is_strange[is_unknown] = ~self._are_requests(
            frames, row[unknown], is_first[unknown], until[owner[unknown]], stream[owner[unknown]],
            row,
        )  # fmt: skip
        implausible[request] |= is_strange
        implausible[response] |= self._scorer.implausible_responses(
            stream[owner[response]], number[response], before[response], are_whole=True
        )
        return row[implausible]

    def _are_requests(
        self, frames: ChainFrames, row: Int64, is_first: Bools, until: Int64, stream: Int64,
        unusual: Int64,
    ) -> Bools:  # fmt: skip
        """Whether the neighbours of requests show that they begin and end there, although their
        APIs or versions are unknown: correlation ids follow each other, segments have the same
        borders, or known requests are after them.

        `row`: rows of `frames`. `is_first`, `until`: whether they are the first of the chain of the
        `stream`, and where it ends. `unusual`: rows of frames without the header of a known API.
        """
        chains, streams, number = self._chains, self._streams, frames.second[row]
        known = streams.has_correlation[stream]
        earlier = np.where(known, streams.correlation[stream], NEVER)
        before = np.where(is_first, earlier, frames.second[row - 1])
        behind = np.where(row + 1 == until, NEVER, np.append(frames.second, NEVER)[row + 1])
        end = frames.start + 4 + frames.size
        border = chains.is_border(frames.start[row]), chains.is_segment_end(end[row])
        bits = BORDER_BITS * np.add(*border, dtype=np.int64)
        for low, high in ((before, number), (number, behind)):
            step = np.where((low == NEVER) | (high == NEVER), 0, high - low)
            is_near = (np.abs(step) <= NEAR) & (step != 0)
            bits += np.select([step == 1, is_near], [CORRELATION_BITS, NEAR_BITS], 0)
        usual = np.setdiff1d(np.arange(len(frames.start)), unusual)
        place = usual.searchsorted(row)
        usual = np.append(usual, [len(frames.start)] * 2)
        later, last = usual[place], np.minimum(usual[place], until - 1)
        goes_on = (usual[place + 1] == later + 1) & (later + 1 < until)
        goes_on |= chains.is_segment_end(end[last])
        bits += np.where(later < until, REQUEST_BITS + BORDER_BITS * goes_on, 0)
        are_requests: Bools = bits >= CERTAINTY
        return are_requests

    def resolve(
        self, index: int, starts: Int64, places: list[int], at: int, ended: int, *,
        is_finished: bool,
    ) -> tuple[int, int, bool]:  # fmt: skip
        """Search at the doubtful places of a chain.

        `starts`: addresses of its messages. `at` and `ended`: where and why it ended. Returns the
        address from which on its messages are dropped, or -1; where the chain continues; and
        whether it continues in this block.
        """
        search = self.search_of(index)
        first, end = at, int(self._chains.end[index])
        is_last = ended == CUT and places[-1] == at and not is_finished
        for place in places[:MAX_DOUBTFUL]:
            chain = self._chain_before(index, starts, place)
            if is_last and place == at and self._is_growing(index, at):
                return chain[0], chain[0], False
            is_bad = ended == BAD and place == at
            wrong, entry = _deviation(search.path(chain, place), chain, place, is_bad=is_bad)
            if wrong == chain[0] or (is_bad and wrong < 0):
                # Bytes that lead to no message may look like a certain header.
                longer = self._chain_before(index, starts, place, by_header=False)
                left = _deviation(search.path(longer, place), longer, place, is_bad=is_bad)
                if left[1] >= 0:
                    chain, (wrong, entry) = longer, left
            if entry >= 0 and not self._leads_to(index, entry, starts, wrong, at):
                return wrong, entry, True
            first = chain[0]
        # A wrong size before an impossible one shows by the messages after both.
        waits = ended == BAD and first < at and not is_finished and self._is_near_end(index, at)
        if (is_last or waits) and end - first < SEEK_BYTES:
            return first, first, False  # later bytes will decide
        return -1, at, False

    def _is_near_end(self, index: int, at: int) -> bool:
        """Whether a search at this address would include segments that are not in this block."""
        behind = self._chains.address.searchsorted(at, "right")
        return bool(self._chains.first[index + 1] - behind < SEGMENTS_BEHIND)

    def _is_growing(self, index: int, at: int) -> bool:
        """Whether an incomplete message may be a request of an unknown API that will be complete
        soon: then its end, and what follows it, show whether it is."""
        chains, place, chain = self._chains, np.array([at]), np.array([index])
        if not self._table.is_client(chains.stream[chain])[0]:
            return False
        size, state, _ = self._scorer.requests(chains, place, chain, any_api=True)
        is_lost = chains.gap_after(place)[0] < chains.end[index]
        return state[0] != NO and size[0] < SEEK_BYTES and not is_lost

    def _leads_to(self, index: int, entry: int, starts: Int64, begin: int, at: int) -> bool:
        """Whether a chain leads from `begin` to an entry, over messages that begin segments or have
        certain headers.

        Then its sizes are right, whatever headers these messages have: SASL tokens have none.
        `starts` and `at`: as in `resolve`.
        """
        low, high = np.searchsorted(starts, [begin, entry])
        is_next = int(starts[high]) == entry if high < len(starts) else at == entry
        return is_next and bool(self._begin_here(index, starts[low:high]).all())

    def _chain_before(
        self, index: int, starts: Int64, place: int, *, by_header: bool = True
    ) -> list[int]:
        """Messages before a doubtful place, from the last one whose start is certain. `by_header`:
        not only the start of a segment shows it, but also the header."""
        last = int(np.searchsorted(starts, place))
        chain = starts[max(last - MAX_BACKTRACK, 0) : last]
        if not len(chain):
            return [place]
        begin_here = self._begin_here(index, chain) if by_header else self._chains.is_border(chain)
        sure = np.flatnonzero(begin_here)
        messages: list[int] = chain[sure[-1] if len(sure) else 0 :].tolist()
        return messages

    def _begin_here(self, index: int, at: Int64) -> Bools:
        """Whether messages certainly begin at these addresses of a chain: a segment does, or the
        header shows it."""
        is_sure, _ = self._scorer.is_sure(self._chains, at, np.full(len(at), index))
        begin_here: Bools = is_sure | self._chains.is_border(at)
        return begin_here

    def _confirm(self, index: Int64) -> None:
        """Find the messages at the first bytes of these chains, and after missing bytes, that need
        no search."""
        chains = self._chains
        self._is_examined[index] = True
        behind = chains.address + chains.pieces.length
        piece = 1 + np.flatnonzero(behind[:-1] < chains.address[1:])
        piece = np.union1d(piece, chains.first[index])
        owner = chains.first.searchsorted(piece, "right") - 1
        piece, owner = piece[np.isin(owner, index)], owner[np.isin(owner, index)]
        at = chains.address[piece]
        is_confirmed = are_confirmed(chains, self._scorer, at, owner)
        self._confirmed = np.union1d(self._confirmed, at[is_confirmed])

    def entries(self, index: Int64, begin: Int64) -> Int64:
        """Addresses of the first messages of chains without a known boundary, or -1.

        `begin`: where the search begins in each chain.
        """
        if not self._is_examined[index].all():
            self._confirm(index[~self._is_examined[index]])
        piece = np.maximum(self._chains.address.searchsorted(begin), self._chains.first[index])
        first = np.append(self._chains.address, -1)[piece]
        is_confirmed = np.isin(first, self._confirmed) & (piece < self._chains.first[index + 1])
        entry = np.where(is_confirmed, first, -1)
        unconfirmed = np.flatnonzero(entry < 0)
        self.prepare(index[unconfirmed])
        for each in unconfirmed.tolist():
            entry[each] = self.search_of(int(index[each])).entry(int(begin[each]))
        return entry

    def search_of(self, index: int) -> Search:
        """The search in a stream. It caches its nodes for this block."""
        if index not in self._searches:
            self.prepare(np.array([index]))
        return self._searches[index]

    def prepare(self, index: Int64) -> None:
        """Create the searches of these streams."""
        index = np.setdiff1d(index, list(self._searches))
        if not len(index):
            return
        chains, is_client = self._chains, self._table.is_client(self._chains.stream[index])
        at, owner = segment_starts(chains, index, chains.first[index])
        segments = weighed_chains(chains, self._scorer, at, index[owner])
        for each, is_request in zip(index.tolist(), is_client.tolist(), strict=True):
            self._searches[each] = Search(
                chains, each, self._scorer, self._bodies, segments, is_request=is_request
            )


def _deviation(
    path: list[Node], chain: list[int], doubtful: int, *, is_bad: bool
) -> tuple[int, int]:
    """Where a path leaves a chain before a doubtful place, and where the path continues; or -1.

    `is_bad`: no message can begin at the doubtful place.
    """
    at = chain[0]
    for node in path:
        if is_bad and at == doubtful:
            break
        if node.at != at:
            return at, node.at
        at = node.end
        if node.at == chain[-1] and at < doubtful:
            return doubtful, at  # its size is too large, and it contains the next message
        if node.at == doubtful:
            break
    return -1, -1
