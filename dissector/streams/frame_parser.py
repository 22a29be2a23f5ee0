"""Walking: the frames of a block's streams.

A frame is what its size says, as long as no byte is missing and every size and header of the chain
is possible, whatever the frame contains. Where something is wrong, `resync` searches:

- a size is impossible, or its bytes are missing;
- a header is impossible, or a message is smaller than its header;
- the last message of the chain is incomplete, and nothing shows that a message begins there;
- the body of an incomplete message ends before its size does, or cannot be read;
- the stream ends inside a message whose body does not confirm its size.

Requests come first, then responses: a response without known boundary is recognised by the
correlation ids that its client uses.
"""

from __future__ import annotations

import numpy as np

from dissector.packets.block import Int64
from dissector.streams.block_problems import BlockProblems
from dissector.streams.bodies import CONSISTENT, SURPLUS, UNKNOWN, BodyCheck
from dissector.streams.byteview import ranges
from dissector.streams.detection import ProtocolDetector
from dissector.streams.frame_chain import BAD, CUT, LOST, WHOLE, ChainFrames, FrameChains
from dissector.streams.frames import FrameBlock
from dissector.streams.header_evidence import RESERVED, YES, HeaderScorer
from dissector.streams.limits import RESYNCS, SEEK_BYTES, WAITING_BYTES
from dissector.streams.resync import Node, Search, weighed_segments
from dissector.streams.segments import last_of_each, running_maximum
from dissector.streams.sequence import numbers
from dissector.streams.state import ALIGNED, BROKEN, FOUND, HEAD_LOST, States
from dissector.streams.table import (
    HEAD,
    KAFKA,
    NEVER,
    RESUMED,
    SEARCHING,
    UNDECIDED,
    Bools,
    ConnectionTable,
    StreamTable,
)

DOUBTS = 64
"""Doubtful places of a stream that are looked into in one walk. Tokens of SASL are such places."""
BACK = 64
"""Messages before a doubtful place among which the wrong size is searched."""
FIRST_CHECK = 64
"""Bytes of an incomplete message with which its body is read first; then each time that half as
many have come again. Requests inside it should be found before their responses come."""
_HEADERS = 4, 8
"""Bytes of the smallest header of a response and of a request: correlation id; API and version."""


class FrameParser:
    """The walk through one block. `stream_ids`: the stream of each local number."""

    def __init__(
        self, chains: FrameChains, stream_ids: Int64, table: ConnectionTable, streams: StreamTable,
        states: States, scorer: HeaderScorer, detector: ProtocolDetector, bodies: BodyCheck,
        block_problems: BlockProblems,
    ) -> None:  # fmt: skip
        self._chains = chains
        self._stream_ids = stream_ids
        self._stream = stream = stream_ids[chains.stream]
        self._table = table
        self._streams = streams
        self._states = states
        self._scorer = scorer
        self._detector = detector
        self._bodies = bodies
        self._block_problems = block_problems
        self._chain_frames: list[ChainFrames] = []
        self._noted_count = 0
        self._searches: dict[int, Search] = {}
        self._finished = np.zeros(len(stream), np.bool_)
        self._peer_waits = np.zeros(len(stream), np.bool_)
        scorer.begin_block(stream)

    def run(self, finished: Bools, goes_on: Bools, peer_waits: Bools) -> FrameBlock:
        """Find all frames. `finished`: streams in which nothing more comes. `goes_on`: those of
        which the frame at their boundary is whole, as far as its size is right. `peer_waits`:
        those whose other end sent bytes that cannot be read yet."""
        self._finished, self._peer_waits = finished, peer_waits
        self._lose_missing_heads()
        self._detector.decide(self._chains, self._stream, finished)
        index = np.flatnonzero(goes_on)
        of_clients = self._of_clients(index)
        self._parse(index[of_clients], of_clients=True)
        self._note_ids()
        self._stop_waiting_for_heads(finished, peer_waits)
        # Where neither side was known, what was found may have told.
        self._parse(index[~(of_clients & self._of_clients(index))], of_clients=False)
        self._open_incomplete()
        self._finish_streams(np.flatnonzero(finished))
        return self._frames()

    def _of_clients(self, index: Int64) -> Bools:
        """Streams that a client sends, or may send."""
        client = self._table.client[self._stream[index] >> 1]
        is_client: Bools = (client < 0) | (client == self._stream[index] & 1)
        return is_client

    def _parse(self, index: Int64, *, of_clients: bool) -> None:
        """FrameParser these streams, until all are at their end or at a loss."""
        for _ in range(RESYNCS):
            # Responses of a connection that was just decided come when its requests are known.
            index = index[self._of_clients(index) == of_clients]
            if not len(index):
                break
            index = self._parse_once(index)

    def _parse_once(self, index: Int64) -> Int64:
        """Search where no boundary is known, walk from there; the streams to be walked again."""
        streams, chains = self._streams, self._chains
        stream = self._stream[index]
        lost = streams.flat("state")[stream] == SEARCHING
        if lost.any():
            self._note_ids()
            self._search_entries(index[lost])
        index = index[streams.is_framed(stream)]
        stream = self._stream[index]
        begin = chains.address_of(index, streams.flat("boundary")[stream])
        found, at, ended, behind = chains.walk(index, begin)
        kept = np.ones(len(found.start), np.bool_)
        again = []
        for each, places in self._find_doubts(index, found, begin, at, ended).items():
            low, high = np.searchsorted(found.start, [begin[each], chains.end[index[each]]])
            drop, at[each], goes_on = self._resolve_doubts(
                int(index[each]), found.start[low:high], places, int(at[each]), int(ended[each])
            )
            if drop >= 0:
                kept[low + np.searchsorted(found.start[low:high], drop) : high] = False
                ended[each], behind[each] = WHOLE, -1
                again += [each] * goes_on
        self._chain_frames.append(found if kept.all() else found.where(kept))
        streams.flat("boundary")[stream] = chains.position_of(index, at)
        streams.flat("frame_end")[stream] = np.where(
            behind < 0, NEVER, chains.position_of(index, behind)
        )
        streams.flat("check_from")[stream] = streams.flat("boundary")[stream] + FIRST_CHECK
        is_border = chains.address[chains.piece_of(at)] == at
        self._states.advance(stream[(at != begin) & is_border], ALIGNED)
        self._states.advance(stream[np.array(again, np.int64)], FOUND)
        broken = np.flatnonzero((ended == LOST) | (ended == BAD))
        for each in broken[ended[broken] == BAD].tolist():
            self._block_problems.add(
                "frames", "bad_size", "four bytes cannot be the size of a frame",
                int(stream[each]), int(streams.flat("boundary")[stream[each]]), 4,
            )  # fmt: skip
        self._lose_boundary(stream[broken])
        return index[np.union1d(broken, np.array(again, np.int64))]

    # Doubts

    def _find_doubts(
        self, index: Int64, found: ChainFrames, begin: Int64, at: Int64, ended: Int64
    ) -> dict[int, list[int]]:
        """Addresses where something is wrong, by the place of their stream in `index`.

        `begin` and `at`: where the walk of each stream began and ended. `ended`: how it ended.
        """
        chains = self._chains
        owner = np.searchsorted(chains.end[index], found.start, side="right")
        stream = self._stream[index]
        is_client = self._is_client(stream)
        odd = np.flatnonzero(self._odd_headers(found, owner, stream, is_client))
        cut = np.flatnonzero(ended == CUT)
        where = chains, at[cut], stream[cut], is_client[cut], chains.end[index[cut]]
        sure, impossible = self._scorer.is_sure(*where)
        # Where the walk began, and where a segment begins, a message begins; behind a search, a
        # segment is not enough.
        is_border = chains.address[chains.piece_of(at[cut])] == at[cut]
        is_border &= self._streams.flat("state")[stream[cut]] != RESUMED
        begins = (at[cut] == begin[cut]) | is_border
        for each in np.flatnonzero(sure & ~begins).tolist():
            place = int(stream[cut[each]]), int(at[cut[each]]), int(chains.end[index[cut[each]]])
            sure[each] = self._bodies.check(chains, *place)[0] == CONSISTENT
        doubtful = cut[impossible | ~(sure | begins)]
        last = np.union1d(doubtful, np.flatnonzero(ended == BAD))
        doubts: dict[int, list[int]] = {}
        for each, address in zip(owner[odd].tolist(), found.start[odd].tolist(), strict=True):
            doubts.setdefault(each, []).append(address)
        for each in last.tolist():
            doubts.setdefault(each, []).append(int(at[each]))
        return doubts

    def _odd_headers(
        self, found: ChainFrames, owner: Int64, stream: Int64, is_client: Bools
    ) -> Bools:
        """Which frames are smaller than a header, or have one that cannot be.

        `owner`: index of the stream of each one in `stream` and `is_client`.
        """
        odd = found.size < np.array(_HEADERS)[is_client[owner].astype(np.int64)]
        number = self._number(found.start + 4)
        request = np.flatnonzero(is_client[owner])
        client = self._number(found.start[request] + 10) & 0xFFFF
        client = np.where(client < 1 << 15, client, client - (1 << 16))
        odd[request] |= self._scorer.odd_requests(number[request], client, found.size[request])
        response = np.flatnonzero(~is_client[owner])
        before = np.append(NEVER, number[:-1])[: len(number)]
        before[1:][np.diff(owner) > 0] = NEVER
        odd[response] |= self._scorer.odd_responses(
            stream[owner[response]], number[response], before[response]
        )
        return odd

    def _resolve_doubts(
        self, index: int, starts: Int64, places: list[int], at: int, ended: int
    ) -> tuple[int, int, bool]:
        """What to do about doubtful places of a chain.

        `starts`: addresses of its messages. `at` and `ended`: where and how it ended. Returns the
        address from which on its messages are dropped, or -1; where it goes on; and whether it goes
        on at once.
        """
        search = self._search_of(index)
        first = at
        for place in places[:DOUBTS]:
            chain = self._chain_before(index, starts, place)
            is_bad = ended == BAD and place == at
            wrong, entry = _left(search.path(chain, place), chain, place, is_bad=is_bad)
            if entry >= 0:
                self._report_long(index, wrong, entry)
                return wrong, entry, True
            first = chain[0]
        is_long = int(self._chains.end[index]) - first >= SEEK_BYTES
        if ended == CUT and places[-1] == at and not (is_long or self._finished[index]):
            return first, first, False  # until more bytes show what follows
        return -1, at, False

    def _chain_before(self, index: int, starts: Int64, place: int) -> list[int]:
        """Messages before a doubtful place, from one on that surely begins where it seems to."""
        last = int(np.searchsorted(starts, place))
        chain = starts[max(last - BACK, 0) : last]
        if not len(chain):
            return [place]
        one = np.full(len(chain), index)
        stream = self._stream[one]
        is_sure, _ = self._scorer.is_sure(
            self._chains, chain, stream, self._is_client(stream), self._chains.end[one]
        )
        is_sure |= self._chains.address[self._chains.piece_of(chain)] == chain
        sure = np.flatnonzero(is_sure)
        found: list[int] = chain[sure[-1] if len(sure) else 0 :].tolist()
        return found

    def _search_of(self, index: int) -> Search:
        """The search in a stream. It keeps what it weighed, as long as the block is walked."""
        if index not in self._searches:
            self._prepare(np.array([index]))
        return self._searches[index]

    def _prepare(self, index: Int64) -> None:
        """Begin the search in each of these streams."""
        stream, is_client = self._stream[index], self._is_client(self._stream[index])
        segments = weighed_segments(self._chains, self._scorer, index, stream, is_client)
        for each, number, is_request in zip(
            index.tolist(), stream.tolist(), is_client.tolist(), strict=True
        ):
            self._searches[each] = Search(
                self._chains, each, number, self._scorer, self._bodies, segments,
                is_request=is_request,
            )  # fmt: skip

    def _is_client(self, stream: Int64) -> Bools:
        """Which streams are those of clients."""
        is_client: Bools = self._table.client[stream >> 1] == stream & 1
        return is_client

    def _report_long(self, index: int, at: int, place: int) -> None:
        """Report that a message begins inside the one at an address."""
        one = np.array([index, index])
        begin, inside = self._chains.position_of(one, np.array([at, place])).tolist()
        self._block_problems.add(
            "frames", "bad_size", "messages begin inside one that says to be longer",
            int(self._stream[index]), begin, inside - begin,
        )  # fmt: skip

    def _lose_boundary(self, stream: Int64) -> None:
        """From their boundary on, no boundary of these streams is known any more."""
        streams = self._streams
        self._states.advance(stream, BROKEN)
        streams.flat("search_from")[stream] = streams.flat("boundary")[stream]

    def _search_entries(self, index: Int64) -> None:
        """Take up these chains again, where that is possible."""
        streams, chains, stream = self._streams, self._chains, self._stream[index]
        undecided = streams.protocol[stream >> 1] == UNDECIDED
        place = np.full(len(index), -1)
        if undecided.any():
            waits = self._peer_waits[index[undecided]]
            place[undecided] = self._detector.seek(
                chains, index[undecided], stream[undecided], waits
            )
        # What decided a connection need not be its first message.
        searched = (streams.protocol[stream >> 1] == KAFKA) & (~undecided | self._is_client(stream))
        begin = chains.address_of(index, streams.flat("boundary")[stream])
        self._prepare(np.setdiff1d(index[searched], list(self._searches)))
        for each in np.flatnonzero(searched).tolist():
            first = self._search_of(int(index[each])).entry(int(begin[each]))
            place[each] = first if first >= 0 else place[each]
        missed = np.flatnonzero(searched & (place < 0))
        self._detector.move_on(chains, index, stream, missed, begin)
        index, stream, place = index[place >= 0], stream[place >= 0], place[place >= 0]
        position = chains.position_of(index, place)
        self._states.advance(stream, FOUND)
        streams.flat("boundary")[stream] = position
        self._report_skipped(stream, position)

    def _report_skipped(self, stream: Int64, until: Int64) -> None:
        """Say what was passed over for want of a boundary."""
        since = self._streams.flat("search_from")[stream]
        for each in np.flatnonzero(until > since).tolist():
            self._block_problems.add_skipped(
                int(stream[each]), int(since[each]), int(until[each] - since[each])
            )

    def _lose_missing_heads(self) -> None:
        """Where a stream's first bytes are lost, it begins at any other place."""
        chains, streams, stream = self._chains, self._streams, self._stream
        gone = chains.pieces.at[chains.first[:-1]] != streams.flat("boundary")[stream]
        self._states.advance(stream[gone], HEAD_LOST)

    def _stop_waiting_for_heads(self, finished: Bools, peer_waits: Bools) -> None:
        """What a broker sent first waits for what its client did, but not for ever."""
        chains, stream = self._chains, self._stream
        size = chains.end - chains.address[chains.first[:-1]]
        is_client = self._table.client[stream >> 1] == stream & 1
        # Where it is there, but for its beginning, that hole is filled or given up by and by.
        begins = self._streams.flat("state")[stream ^ 1] == HEAD
        begins &= self._table.bytes.reshape(-1)[stream ^ 1] > 0
        begins |= peer_waits
        gone = ((size > np.where(begins, WAITING_BYTES, SEEK_BYTES)) | finished) & ~is_client
        self._states.advance(stream[gone], HEAD_LOST)

    # Evidence

    def _note_ids(self) -> None:
        """Tell the judge the correlation ids of what was found since the last time."""
        found = ChainFrames.joined(self._chain_frames[self._noted_count :])
        self._noted_count = len(self._chain_frames)
        slot = self._chains.pieces.stream[found.piece]
        stream = self._stream_ids[slot]
        client = self._table.client[stream >> 1]
        is_client, answers = client == stream & 1, client == 1 - (stream & 1)
        number = self._number(found.start + np.where(is_client, 8, 4))
        kind = self._number(found.start[is_client] + 4)
        self._bodies.log.add(stream[is_client], number[is_client], kind)
        is_client &= number < RESERVED
        answers &= number < RESERVED
        if is_client.any():
            clients, asked = stream[is_client], number[is_client]
            last = last_of_each(clients)
            first = np.append(0, last[:-1] + 1)
            id_regression = running_maximum(slot[is_client], asked, -(1 << 40)) + 1 - asked
            self._scorer.note_requests(
                clients[last], np.minimum.reduceat(asked, first), np.maximum.reduceat(asked, first),
                np.maximum.reduceat(id_regression, first),
            )  # fmt: skip
        some = np.flatnonzero(answers)
        some = some[~self._scorer.is_implausible(stream[some], number[some])]
        if len(some):
            last = some[last_of_each(stream[some])]
            self._scorer.note_responses(stream[last], number[last])

    def _number(self, at: Int64) -> Int64:
        """The 4-byte numbers at these addresses, which may lie behind all that is there."""
        space = self._chains.space
        return space.number(np.minimum(at, space.size), "i4").astype(np.int64)

    # Incomplete messages

    def _open_incomplete(self) -> None:
        """Go on inside incomplete messages whose sizes are wrong, as their bodies show."""
        for _ in range(RESYNCS):
            opened = np.array([index for index in self._due() if self._is_opened(index)], np.int64)
            if not len(opened):
                break
            self._parse(opened, of_clients=True)
            self._note_ids()
            self._parse(opened, of_clients=False)

    def _due(self) -> list[int]:
        """Streams that end inside a message; while more may come, those of which the message has
        grown and seems to contain another one."""
        streams, stream, chains = self._streams, self._stream, self._chains
        boundary, expected = streams.flat("boundary")[stream], streams.flat("next_position")[stream]
        due = streams.is_framed(stream) & (boundary < expected)
        due &= streams.flat("frame_end")[stream] >= 0
        due &= self._finished | (expected >= streams.flat("check_from")[stream])
        # Of the other ones, which do not go on, the bytes are not at hand.
        at = chains.address_of(np.arange(len(stream)), boundary)
        due &= at >= chains.address[chains.first[:-1]]
        index = np.flatnonzero(due & ~self._finished)
        first = chains.piece_of(at[index]) + 1
        count = np.maximum(chains.first[index + 1] - first, 0)
        place, owner = chains.address[ranges(first, count)[0]], np.repeat(index, count)
        state = self._scorer.headers(
            chains, place, chains.end[owner], stream[owner], self._is_client(stream[owner])
        )[1]
        plain = np.setdiff1d(index, owner[state == YES])
        due[plain] = False
        there = expected[plain] - boundary[plain]
        streams.flat("check_from")[stream[plain]] = boundary[plain] + 3 * there // 2
        found: list[int] = np.flatnonzero(due).tolist()
        return found

    def _is_opened(self, index: int) -> bool:
        """Whether a message begins inside the incomplete one at the boundary of a stream, since the
        size of that one is wrong. The boundary moves there."""
        streams, stream = self._streams, int(self._stream[index])
        one = np.array([index])
        boundary = streams.flat("boundary")[[stream]]
        at, end = int(self._chains.address_of(one, boundary)[0]), int(self._chains.end[index])
        verdict, _ = self._bodies.check(self._chains, stream, at, end)
        streams.flat("check_from")[stream] = boundary[0] + 3 * (end - at) // 2
        if verdict == CONSISTENT or (verdict in (SURPLUS, UNKNOWN) and not self._finished[index]):
            return False
        inside = self._search_of(index).inside(at, is_last=bool(self._finished[index]))
        if inside < 0:
            return False
        self._report_long(index, at, inside)
        position = self._chains.position_of(one, np.array([inside]))
        streams.flat("boundary")[[stream]] = position
        streams.flat("frame_end")[stream] = NEVER
        self._states.advance(self._stream[one], FOUND)
        return True

    def _finish_streams(self, index: Int64) -> None:
        """Give out frames that will not become whole any more."""
        streams, chains, stream = self._streams, self._chains, self._stream[index]
        boundary, expected = streams.flat("boundary"), streams.flat("next_position")
        self._states.advance(stream, HEAD_LOST)
        is_searching = streams.flat("state")[stream] == SEARCHING
        decided = stream[is_searching & (streams.protocol[stream >> 1] != UNDECIDED)]
        self._report_skipped(decided, expected[decided])
        boundary[stream[is_searching]] = expected[stream[is_searching]]
        streams.flat("search_from")[decided] = expected[
            decided
        ]  # of undecided ones if they are Kafka
        some = np.flatnonzero(streams.is_framed(stream) & (boundary[stream] < expected[stream]))
        index, stream = index[some], stream[some]
        at = chains.address_of(index, boundary[stream])
        known = streams.flat("frame_end")[stream] >= 0
        size = chains.space.number(at, "i4").astype(np.int64)
        piece = chains.piece_of(at[known])
        self._chain_frames.append(ChainFrames(at[known], size[known], piece))
        missing = at + 4 + size - chains.end[index]
        for each in np.flatnonzero(known).tolist():
            self._block_problems.add(
                "frames", "cut_message", "nothing more came behind a part of a message",
                int(stream[each]), int(boundary[stream[each]]), int(missing[each]),
            )  # fmt: skip
        boundary[stream] = np.where(known, streams.flat("frame_end")[stream], expected[stream])
        streams.flat("frame_end")[stream] = NEVER
        for each in np.flatnonzero(~known).tolist():
            self._block_problems.add(
                "frames", "cut_size", "nothing more came behind a part of a size",
                int(stream[each]), int(expected[stream[each]]),
                int(chains.end[index[each]] - at[each]),
            )  # fmt: skip
        self._lose_boundary(stream[~known])

    def _frames(self) -> FrameBlock:
        chains, pieces, table = self._chains, self._chains.pieces, self._table
        self._note_ids()
        found = ChainFrames.joined(self._chain_frames)
        start, size, first = found.start, found.size, found.piece
        slot = pieces.stream[first]
        stream = self._stream_ids[slot]
        body, behind = start + 4, start + 4 + size
        # Most frames are in one piece; where not, the pieces of body and end are looked up.
        holder, last = first.copy(), first.copy()
        edge = chains.address[first] + pieces.length[first] if len(first) else start
        several = np.flatnonzero(behind > edge)
        holder[several] = chains.piece_of(body[several])
        end = chains.end[np.searchsorted(chains.stream, slot[several])]
        last[several] = chains.piece_of(np.minimum(behind[several], end) - 1)
        inside = body - chains.address[holder] if len(first) else body
        flat = inside + size <= pieces.length[holder] if len(first) else body.astype(np.bool_)
        there = behind.copy()
        there[several] = np.minimum(chains.gap_after(body[several]), end)
        position = pieces.at[first] + start - chains.address[first] if len(first) else start
        rank, run = self._numbered(stream, position, position + 4 + size)
        return FrameBlock(
            data=chains.data,
            space=chains.space,
            connection=(stream >> 1).astype(np.int32),
            is_request=(stream & 1) == table.client[stream >> 1],
            start=body,
            position=np.where(flat, pieces.source[holder] + inside, -1),
            size=size,
            readable=np.clip(there - body, 0, size),
            capture=pieces.capture[first].astype(np.int32),
            packet=pieces.number[first],
            time=pieces.time[first],
            end_time=pieces.time[last],
            sequence=numbers(position, self._streams.flat("origin")[stream]).astype(np.int64),
            acknowledged=pieces.acknowledged[first],
            rank=rank,
            run=run,
            problems=self._block_problems.problems,
        )

    def _numbered(self, stream: Int64, begin: Int64, end: Int64) -> tuple[Int64, Int64]:
        """Rank and run of frames, see `FrameBlock`; by stream, with their positions."""
        streams, last = self._streams, last_of_each(stream)
        framed, frames, breaks = (
            streams.flat(each) for each in ("framed_until", "frame_count", "gap_count")
        )
        first = np.append(0, last[:-1] + 1)[: len(last)]
        before = np.append(0, end[:-1])[: len(end)]
        before[first] = framed[stream[first]]
        missing = np.cumsum(begin != before)
        length = last + 1 - first
        earlier = missing[first] - (begin[first] != before[first])
        rank = np.arange(len(stream)) + np.repeat(frames[stream[first]] + 1 - first, length)
        run = missing + np.repeat(breaks[stream[first]] - earlier, length)
        framed[stream[last]], frames[stream[last]] = end[last], rank[last]
        breaks[stream[last]] = run[last]
        return rank, run


def _left(path: list[Node], chain: list[int], doubtful: int, *, is_bad: bool) -> tuple[int, int]:
    """Where a path leaves a chain up to a doubtful place, and where it goes on; or -1.

    `is_bad`: no message can begin at the doubtful place.
    """
    at = chain[0]
    for node in path:
        if node.at != at:
            return at, node.at
        at = node.end
        if doubtful == (at if is_bad else node.at):
            break
    return -1, -1
