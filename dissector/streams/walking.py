"""Walking: the frames of a block's streams, with chains taken up where they begin or break.

Requests come first, then responses: a response without known boundary is recognised by the
correlation ids that its client uses.
"""

from __future__ import annotations

import numpy as np

from dissector.packets.block import Int64
from dissector.streams.bytespace import ranges
from dissector.streams.complaints import Complaints
from dissector.streams.frames import FrameBlock
from dissector.streams.framing import BAD, FAR, LOST, WHOLE, Chains, Found
from dissector.streams.judging import RESERVED, Judge
from dissector.streams.limits import RESYNCS, SEEK_BYTES, WAITING_BYTES
from dissector.streams.seeking import Seeker
from dissector.streams.segments import last_of_each, running_maximum
from dissector.streams.sequence import numbers
from dissector.streams.table import (
    FRAMED,
    KAFKA,
    NEVER,
    SEEKING,
    UNDECIDED,
    Bools,
    ConnectionTable,
    StreamTable,
    unframed,
)

BACK = 8
"""Frames that are doubted where a chain comes to what cannot be: behind a wrong size, some bytes
may be sizes by chance."""
_HEADERS = 4, 8
"""Bytes of the smallest header of a response and of a request: correlation id; API and version."""
MANY = 3
"""Times that the chain of a stream has to be sought before all places are judged at once."""


class Walk:
    """The walk through one block. `who`: the stream of each local number."""

    def __init__(
        self, chains: Chains, who: Int64, table: ConnectionTable, streams: StreamTable,
        judge: Judge, seeker: Seeker, complaints: Complaints,
    ) -> None:  # fmt: skip
        self._chains = chains
        self._who = who
        self._stream = stream = who[chains.stream]
        self._table = table
        self._streams = streams
        self._judge = judge
        self._seeker = seeker
        self._complaints = complaints
        self._found: list[Found] = []
        self._strange: list[Found] = []
        self._noted = 0
        self._breaks: dict[int, int] = {}
        self._places: dict[int, Int64] = {}
        self._other_waits = np.zeros(len(stream), np.bool_)
        judge.begin_block(stream)

    def run(self, finished: Bools, goes_on: Bools, other_waits: Bools) -> FrameBlock:
        """Find all frames. `finished`: streams in which nothing more comes. `goes_on`: those of
        which the frame at their boundary is whole, as far as its size is right. `other_waits`:
        those whose other end sent bytes that cannot be read yet."""
        self._other_waits = other_waits
        self._leave_lost_heads()
        self._seeker.decide(self._chains, self._stream, finished)
        self._follow_decisions(self._stream)
        index = np.flatnonzero(goes_on)
        of_clients = self._of_clients(index)
        self._all(index[of_clients])
        self._leave_old_heads(finished, other_waits)
        # Where neither side was known, what was found may have told.
        self._all(index[~(of_clients & self._of_clients(index))])
        self._doubt_strange()
        self._look_inside()
        self._cut(np.flatnonzero(finished))
        return self._frames()

    def _of_clients(self, index: Int64) -> Bools:
        """Streams that a client sends, or may send."""
        client = self._table.client[self._stream[index] >> 1]
        asks: Bools = (client < 0) | (client == self._stream[index] & 1)
        return asks

    def _all(self, index: Int64) -> None:
        """Walk these streams, until all are at their end or at a loss."""
        for _ in range(RESYNCS):
            if not len(index):
                break
            index = self._some(index)

    def _some(self, index: Int64) -> Int64:
        """Seek where no boundary is known, walk from there; the streams whose chain broke."""
        sync = self._streams.flat("sync")
        stream = self._stream[index]
        seeking = (sync[stream] == SEEKING) & ~self._streams.flat("at_head")[stream]
        if seeking.any():
            self._note()
            self._seek(index[seeking])
        index = index[sync[stream] == FRAMED]
        stream = self._stream[index]
        boundary, frame_end = self._streams.flat("boundary"), self._streams.flat("frame_end")
        at = self._chains.address_of(index, boundary[stream])
        found, at, ended, behind = self._chains.walk(index, at)
        bad = np.flatnonzero(ended == BAD)
        small, start = self._small(index, found)
        if len(bad) or len(small):
            self._note()
        self._found += found
        again = np.zeros(0, np.int64)
        for some, where in ((small, start), (bad, at[bad])):
            place = self._take_back(index[some], where, where - FAR)
            back = some[place >= 0]
            self._drop(index[back], where[place >= 0])
            at[back], ended[back], behind[back] = place[place >= 0], WHOLE, -1
            again = np.union1d(again, back)
        boundary[stream] = self._chains.position_of(index, at)
        frame_end[stream] = np.where(behind < 0, NEVER, self._chains.position_of(index, behind))
        broken = np.flatnonzero((ended == LOST) | (ended == BAD))
        for each in broken[ended[broken] == BAD].tolist():
            self._complaints.add(
                "frames", "bad_size", "four bytes cannot be the size of a frame",
                int(stream[each]), int(boundary[stream[each]]), 4,
            )  # fmt: skip
        self._lose(stream[broken])
        return index[np.union1d(broken, again)]

    def _small(self, index: Int64, found: list[Found]) -> tuple[Int64, Int64]:
        """Which of these streams have frames of less than a header, and where the first of each is.

        Such frames can be: tokens of SASL have no header, and may be empty. But mostly they are not
        where a frame begins.
        """
        some = Found.joined([each.where(each.size < _HEADERS[-1]) for each in found])
        local = self._chains.pieces.stream[some.piece]
        stream = self._who[local]
        asks = self._table.client[stream >> 1] == stream & 1
        less = some.where(some.size < np.array(_HEADERS)[asks.astype(np.int64)])
        local, first = np.unique(self._chains.pieces.stream[less.piece], return_index=True)
        return np.searchsorted(self._chains.stream[index], local), less.start[first]

    def _drop(self, index: Int64, at: Int64) -> None:
        """Give up all frames of these streams from some addresses on."""
        if len(index):
            for number, each in enumerate(self._found):
                low = np.searchsorted(each.start, at)
                high = np.searchsorted(each.start, self._chains.end[index])
                gone = ranges(low, np.maximum(high - low, 0))[0]
                self._found[number] = each.without(each.start[gone])

    def _take_back(self, index: Int64, at: Int64, since: Int64) -> Int64:
        """Give up the last frames of these streams from one on in which others begin: then its size
        was wrong, and so is all that seemed to follow. Where these begin; -1 for streams in which
        that cannot be seen.

        `at`: where the walk of each came to something that is not right. `since`: addresses before
        which nothing is given up.
        """
        if not len(at):
            return np.zeros(0, np.int64)
        known = self._noted
        self._found = [Found.joined(self._found[:known]), Found.joined(self._found[known:])]
        self._noted = 1
        every = Found.joined(self._found)
        place, first = np.full(len(at), -1), np.zeros(len(at), np.int64)
        since = np.maximum(since, self._chains.address[self._chains.first[index]])
        behind, frame = at.copy(), np.searchsorted(every.start, at) - 1
        last, live = frame.copy(), np.arange(len(at))
        for _ in range(BACK):
            live = live[frame[live] >= 0]
            start = every.start[frame[live]]
            follows = start + 4 + every.size[frame[live]] == behind[live]
            live = live[follows & (start >= since[live])]
            if not len(live):
                break
            start, some = every.start[frame[live]], index[live]
            found = self._seeker.inside(self._chains, some, self._stream[some], start, behind[live])
            good = live[found >= 0]
            place[good], first[good] = found[found >= 0], frame[good]
            behind[live] = start
            frame[live] -= 1
        some = np.flatnonzero(place >= 0)
        self._tell_long(index[some], every.start[first[some]], place[some])
        gone = every.start[ranges(first[some], last[some] + 1 - first[some])[0]]
        self._found = [each.without(gone) for each in self._found]
        return place

    def _tell_long(self, index: Int64, at: Int64, place: Int64) -> None:
        """Say that messages begin inside those at some addresses."""
        begin = self._chains.position_of(index, at)
        for each, stream in enumerate(self._stream[index].tolist()):
            self._complaints.add(
                "frames", "bad_size", "messages begin inside one that says to be longer",
                stream, int(begin[each]), int(place[each] - at[each]),
            )  # fmt: skip

    def _lose(self, stream: Int64) -> None:
        """From their boundary on, no boundary of these streams is known any more."""
        streams = self._streams
        streams.flat("sync")[stream] = SEEKING
        streams.flat("at_head")[stream] = False
        for name in ("sought", "scanned"):
            streams.flat(name)[stream] = streams.flat("boundary")[stream]

    def _seek(self, index: Int64) -> None:
        """Take up these chains again, where that is possible."""
        streams, stream = self._streams, self._stream[index]
        found = self._again(index)
        rest = np.flatnonzero(found < 0)
        if len(rest):
            found[rest] = self._seeker.seek(
                self._chains, index[rest], stream[rest], self._other_waits[index[rest]]
            )
            self._follow_decisions(stream)
        some = np.flatnonzero(found >= 0)
        index, stream = index[some], stream[some]
        place = self._chains.position_of(index, found[some])
        streams.flat("sync")[stream] = FRAMED
        streams.flat("boundary")[stream] = place
        self._skipped(stream, place)

    def _again(self, index: Int64) -> Int64:
        """Where to take up chains that broke before in this block: every place of these streams
        was judged by then. -1 where none is known."""
        found = np.full(len(index), -1)
        for each, stream in enumerate(self._stream[index].tolist()):
            one = index[each : each + 1]
            breaks = self._breaks[stream] = self._breaks.get(stream, 0) + 1
            if breaks == MANY:
                self._places[stream] = self._seeker.places(self._chains, one, self._stream[one])
            if breaks >= MANY:
                boundary = self._streams.flat("boundary")[self._stream[one]]
                at = int(self._chains.address_of(one, boundary)[0])
                places = self._places[stream]
                next_one = int(np.searchsorted(places, at))
                if next_one < len(places):
                    found[each] = places[next_one]
        return found

    def _skipped(self, stream: Int64, until: Int64) -> None:
        """Say what was passed over for want of a boundary."""
        since = self._streams.flat("sought")[stream]
        for each in np.flatnonzero(until > since).tolist():
            self._complaints.add_skipped(
                int(stream[each]), int(since[each]), int(until[each] - since[each])
            )

    def _leave_lost_heads(self) -> None:
        """Where a stream's first bytes are lost, it begins at any other place."""
        chains, streams, stream = self._chains, self._streams, self._stream
        gone = chains.pieces.at[chains.first[:-1]] != streams.flat("boundary")[stream]
        streams.flat("at_head")[stream[gone]] = False

    def _leave_old_heads(self, finished: Bools, other_waits: Bools) -> None:
        """What a broker sent first waits for what its client did, but not for ever."""
        chains, stream = self._chains, self._stream
        size = chains.end - chains.address[chains.first[:-1]]
        asks = self._table.client[stream >> 1] == stream & 1
        # Where it is there, but for its beginning, that hole is filled or given up by and by.
        begins = self._streams.flat("at_head")[stream ^ 1]
        begins &= self._table.bytes.reshape(-1)[stream ^ 1] > 0
        begins |= other_waits
        gone = ((size > np.where(begins, WAITING_BYTES, SEEK_BYTES)) | finished) & ~asks
        self._streams.flat("at_head")[stream[gone]] = False

    def _follow_decisions(self, stream: Int64) -> None:
        """What is known of connections is known of both their streams."""
        streams = self._streams
        both = np.concatenate([stream, stream ^ 1])
        protocol, sync = self._table.protocol[both >> 1], streams.flat("sync")
        sync[both] = unframed(self._table, both >> 1, sync[both])
        head = both[(protocol == KAFKA) & streams.flat("at_head")[both]]
        sync[head] = FRAMED
        streams.flat("at_head")[head] = False

    def _note(self) -> None:
        """Tell the judge the correlation ids of what was found since the last time."""
        found = Found.joined(self._found[self._noted :])
        self._noted = len(self._found)
        local = self._chains.pieces.stream[found.piece]
        stream = self._who[local]
        client = self._table.client[stream >> 1]
        asks, answers = client == stream & 1, client == 1 - (stream & 1)
        number = self._correlation(found.start + np.where(asks, 8, 4))
        asks &= number < RESERVED
        answers &= number < RESERVED
        if asks.any():
            who, asked = stream[asks], number[asks]
            last = last_of_each(who)
            first = np.append(0, last[:-1] + 1)
            descent = running_maximum(local[asks], asked, -(1 << 40)) + 1 - asked
            self._judge.note_requests(
                who[last], np.minimum.reduceat(asked, first), np.maximum.reduceat(asked, first),
                np.maximum.reduceat(descent, first),
            )  # fmt: skip
        some = np.flatnonzero(answers)
        strange = some[self._judge.is_strange(stream[some], number[some])]
        if len(strange):
            begins = np.append(True, (np.diff(strange) > 1) | (np.diff(local[strange]) > 0))
            self._strange.append(found.where(strange[begins]))
            place = np.searchsorted(self._chains.stream, local)
            until = np.full(len(self._chains.stream), len(local))
            np.minimum.at(until, place[strange], strange)
            some = some[some < until[place[some]]]
        if len(some):
            last = some[last_of_each(stream[some])]
            self._judge.note_responses(stream[last], number[last])

    def _correlation(self, at: Int64) -> Int64:
        """The correlation ids at these addresses, which may lie behind all that is there."""
        space = self._chains.space
        return space.number(np.minimum(at, space.size), "i4").astype(np.int64)

    def _doubt_strange(self) -> None:
        """Responses to what was not asked may be sizes by chance, behind a wrong one."""
        for _ in range(RESYNCS):
            self._note()
            strange, self._strange = Found.joined(self._strange), []
            local = self._chains.pieces.stream[strange.piece]
            few = np.arange(len(local)) - np.searchsorted(local, local) < BACK
            at, index = strange.start[few], np.searchsorted(self._chains.stream, local[few])
            if not len(at):
                break
            place = self._take_back(index, at, at - FAR)
            good = np.flatnonzero(place >= 0)
            index, first = np.unique(index[good], return_index=True)
            self._drop(index, at[good[first]])
            self._go_on(index, place[good[first]])

    def _go_on(self, index: Int64, place: Int64) -> None:
        """Walk these streams from some addresses on, where frames begin."""
        streams, stream = self._streams, self._stream[index]
        streams.flat("sync")[stream] = FRAMED
        streams.flat("boundary")[stream] = self._chains.position_of(index, place)
        streams.flat("frame_end")[stream] = NEVER
        self._all(index)

    def _look_inside(self) -> None:
        """A message that is not whole yet may have a wrong size: others begin inside it, or inside
        those shortly before it, if it does not begin a segment."""
        streams, chains = self._streams, self._chains
        boundary, expected = streams.flat("boundary"), streams.flat("expected")
        index = np.arange(len(self._stream))
        for _ in range(RESYNCS):
            stream = self._stream[index]
            cut = (streams.flat("sync")[stream] == FRAMED) & (boundary[stream] < expected[stream])
            index, stream = index[cut], stream[cut]
            at = chains.address_of(index, boundary[stream])
            place = self._seeker.inside(chains, index, stream, at, chains.end[index])
            doubted = np.flatnonzero((place >= 0) | (chains.address[chains.piece_of(at)] != at))
            back = np.full(len(index), -1)
            near = at[doubted] - SEEK_BYTES
            back[doubted] = self._take_back(index[doubted], at[doubted], near)
            some = np.flatnonzero((place >= 0) & (back < 0))
            self._tell_long(index[some], at[some], place[some])
            place = np.where(back < 0, place, back)
            some = np.flatnonzero(place >= 0)
            if not len(some):
                break
            index, place = index[some], place[some]
            self._go_on(index, place)

    def _cut(self, index: Int64) -> None:
        """Give out frames that will not become whole any more."""
        streams, chains, stream = self._streams, self._chains, self._stream[index]
        boundary, expected = streams.flat("boundary"), streams.flat("expected")
        sync = streams.flat("sync")[stream]
        lost = (sync == SEEKING) & (self._table.protocol[stream >> 1] == KAFKA)
        self._skipped(stream[lost], expected[stream[lost]])
        boundary[stream[sync == SEEKING]] = expected[stream[sync == SEEKING]]
        since = streams.flat("sought")[stream]
        self._lose(stream[sync == SEEKING])
        undecided = self._table.protocol[stream >> 1] == UNDECIDED
        streams.flat("sought")[stream[undecided]] = since[undecided]  # to report if it is Kafka
        some = np.flatnonzero((sync == FRAMED) & (boundary[stream] < expected[stream]))
        index, stream = index[some], stream[some]
        at = chains.address_of(index, boundary[stream])
        known = streams.flat("frame_end")[stream] >= 0
        size = chains.space.number(at, "i4").astype(np.int64)
        piece = chains.piece_of(at[known])
        self._found.append(Found(at[known], size[known], piece))
        missing = at + 4 + size - chains.end[index]
        for each in np.flatnonzero(known).tolist():
            self._complaints.add(
                "frames", "cut_message", "nothing more came behind a part of a message",
                int(stream[each]), int(boundary[stream[each]]), int(missing[each]),
            )  # fmt: skip
        boundary[stream] = np.where(known, streams.flat("frame_end")[stream], expected[stream])
        streams.flat("frame_end")[stream] = NEVER
        for each in np.flatnonzero(~known).tolist():
            self._complaints.add(
                "frames", "cut_size", "nothing more came behind a part of a size",
                int(stream[each]), int(expected[stream[each]]),
                int(chains.end[index[each]] - at[each]),
            )  # fmt: skip
        self._lose(stream[~known])

    def _frames(self) -> FrameBlock:
        chains, pieces, table = self._chains, self._chains.pieces, self._table
        self._note()
        found = Found.joined(self._found)
        start, size, first = found.start, found.size, found.piece
        local = pieces.stream[first]
        stream = self._who[local]
        body, behind = start + 4, start + 4 + size
        # Most frames are in one piece; where not, the pieces of body and end are looked up.
        holder, last = first.copy(), first.copy()
        edge = chains.address[first] + pieces.length[first] if len(first) else start
        several = np.flatnonzero(behind > edge)
        holder[several] = chains.piece_of(body[several])
        end = chains.end[np.searchsorted(chains.stream, local[several])]
        last[several] = chains.piece_of(np.minimum(behind[several], end) - 1)
        inside = body - chains.address[holder] if len(first) else body
        flat = inside + size <= pieces.length[holder] if len(first) else body.astype(np.bool_)
        there = behind.copy()
        there[several] = np.minimum(chains.there_until(body[several]), end)
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
            problems=self._complaints.problems,
        )

    def _numbered(self, stream: Int64, begin: Int64, end: Int64) -> tuple[Int64, Int64]:
        """Rank and run of frames, see `FrameBlock`; by stream, with their positions."""
        streams, last = self._streams, last_of_each(stream)
        framed, frames, breaks = (streams.flat(each) for each in ("framed", "frames", "breaks"))
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
