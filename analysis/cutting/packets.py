"""The packets of messages: which packets of a capture belong in a cut.

- Segments with bytes of a message, with their retransmissions. If they also have bytes of other
  messages, the cut has only the `Part` with bytes of chosen ones.
- Segments without payload that acknowledge such bytes, as duplicate acknowledgements and window
  updates do.
- The first byte of a segment of other messages, if a chosen message had to wait for the segment.
  Without it, the message would be readable earlier than in the capture.
- The handshake of each connection, and its FIN and RST. If a segment of another message begins
  (RFC 7413) or ends the handshake, its headers stay.
- With a context: all packets of the connection that are near a message in time, unchanged.
- If a packet was fragmented, all its fragments, unchanged.
- Of an encrypted connection: all packets up to the last message, because TLS records can be
  decrypted only in order.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from typing import Final

import numpy as np
from numpy.typing import NDArray

from analysis.cutting.gaps import ClosedGaps
from analysis.cutting.messages import Messages, Ranges, keys
from dissector.arrays import value
from dissector.packets.block import ACK, FIN, RST, SYN, Int64, PacketBlock, Place
from dissector.packets.trimming import Segment
from dissector.streams.connections.flows import Assignment
from dissector.streams.connections.table import NEVER, ConnectionTable
from dissector.streams.detection.declared import endpoint
from dissector.tls.record_layer import HANDSHAKE

NEAR: Final = 60 * 10**9
"""ns; a retransmission is at most this long before or after its message. Linux gives up later, but
sequence numbers of a fast connection repeat."""
PART_BYTES: Final = 60_000
"""Maximum number of bytes of a part: those of an IP packet."""

AWAITED: Final = "a selected message waited for this segment"
"""The comment on a segment of other messages."""

_HELLO: Final = re.compile(
    rb"\x16\x03.{3}(?:\x01.{5}(?P<random>.{32})|\x02.{37}(?:\x20(?P<session>.{32}))?)", re.S
)
"""A TLS record with a ClientHello or a ServerHello (RFC 8446, sections 4.1 and 5.1), which begins
the payload of a segment: the client random, or the session id."""
_HELLO_BYTES: Final = 76


@value
class Part:
    """A segment of which a cut has only some bytes."""

    segment: Segment
    ranges: list[tuple[int, int]]
    """Positions in the payload: begin and end."""
    numbers: list[tuple[int, int] | None]
    """Sequence number and acknowledgement of each range; None: as captured."""

    @property
    def removed(self) -> int:
        """Payload bytes that the cut does not have."""
        return self.segment.length - sum(end - begin for begin, end in self.ranges)


class _Packets:
    """The packets of a block that are of connections with chosen messages; arrays of shape (n,)."""

    def __init__(
        self, block: PacketBlock, index: Int64, row: Int64, end: Int64, table: ConnectionTable
    ) -> None:
        """`index`: indexes in the block. `row` and `end`: their connections and senders."""
        self.block = block
        self.index = index
        self.row = row
        self.isn = table.isn[row, end]
        """Initial sequence number of the sender; -1 if unknown."""
        self.opposite_isn = table.isn[row, 1 - end]
        self.flags = block.flags[index]
        self.length = block.length[index].astype(np.int64)
        self.is_empty = self.length == 0
        self.seq = block.seq[index]
        self.begin = self.seq.astype(np.int64) + (self.flags & SYN != 0)
        """Sequence number of the first byte of the payload."""
        self.is_first = self.begin == self.isn + 1
        """Whether it has the first sequence number after a SYN."""
        self.acknowledged = block.ack[index].astype(np.int64)
        self.times = block.time[index]
        self.place = np.stack([block.capture[index].astype(np.int64), block.number[index]])
        """Files and numbers, shape (2, n)."""
        self.is_joined = np.zeros(len(index), np.bool_)
        """Whether it was reassembled from fragments."""
        if block.fragments:
            places = zip(*self.place.tolist(), strict=True)
            self.is_joined[:] = [each in block.fragments for each in places]

    def place_of(self, number: int) -> Place:
        """The file and number of one of these packets."""
        file, packet = self.place[:, number].tolist()
        return file, packet


class PacketChoice:
    """Collects the packets of a cut; `observe` is a `PacketObserver` of `Pipeline`."""

    def __init__(
        self, messages: Messages, encrypted: Collection[int], context: int | None = None,
        closed: Collection[int] = (),
    ) -> None:  # fmt: skip
        """`encrypted`: the connection_id of each TLS connection. `context`: ns before and after a
        message; None for no context. `closed`: the connections whose gaps are closed; they
        are not encrypted, and have no context.
        """
        self.places: list[Int64] = []
        """Files and numbers of the chosen packets, shape (2, n), block by block."""
        self.fragmented: set[int] = set()
        """The connections with fragments among the chosen packets."""
        self.parts: dict[Place, Part] = {}
        self.comments: defaultdict[Place, list[tuple[int, str]]] = defaultdict(list)
        """Sequence number of the first byte of each message that begins in a packet, and its
        comment."""
        self.sessions: set[str] = set()
        """What identifies the secrets of chosen packets in a key log, in hex: the random in each
        ClientHello, and the session id in each ServerHello."""
        self._messages = messages
        self._context = context
        self._closed = np.array(sorted(closed), np.int64)
        self._gaps: dict[int, ClosedGaps] = {}
        """By stream."""
        self._opened: dict[int, bool] = {}
        """Whether the client has ended the handshake, by connection with a SYN."""
        self._arrival = np.full(len(messages), NEVER, np.int64)
        """Time of the packet with the first byte of each message; ns."""
        self._by_time = np.lexsort((messages.first_time, messages.connection))
        ids = self._ids = np.array(sorted(messages.ends), np.int64)
        addresses = [endpoint(*messages.ends[each][0]) for each in ids.tolist()]
        self._high, self._low, self._port = np.array(addresses, np.uint64).reshape(-1, 3).T
        self._is_encrypted = np.isin(ids, np.array(sorted(encrypted), np.int64))
        self._encrypted: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        """Messages of encrypted connections by stream and number of the packet."""
        for each in np.flatnonzero(np.isin(messages.connection, ids[self._is_encrypted])).tolist():
            place = int(messages.stream[each]), int(messages.packet[each])
            self._encrypted[place].append(each)
        self._last_time = np.zeros(len(ids), np.int64)
        np.maximum.at(
            self._last_time, np.searchsorted(ids, messages.connection), messages.last_time
        )

    def observe(
        self, block: PacketBlock, assignment: Assignment, connections: ConnectionTable
    ) -> None:
        """Choose among the packets of a block."""
        if not len(block):
            return
        row = assignment.rows[assignment.slot >> 1]
        packet = np.flatnonzero(np.isin(row, self._ids))
        if len(packet):
            end = assignment.slot[packet] & 1
            self._choose(_Packets(block, packet, row[packet], end, connections))

    def _choose(self, packets: _Packets) -> None:
        index = np.searchsorted(self._ids, packets.row)
        from_client = self._from_client(packets, index)
        stream = 2 * packets.row + from_client
        times, is_empty, place = packets.times, packets.is_empty, packets.place
        around = self._messages.around(int(times.min()) - NEAR, int(times.max()) + NEAR)
        ranges = Ranges.of(self._messages, around)
        joined = ranges.joined()
        start = keys(stream, packets.begin)
        first, count = _overlaps(joined, start, start + packets.length)
        count[is_empty] = 0
        is_encrypted = self._is_encrypted[index]
        is_whole = is_encrypted & (times <= self._last_time[index])
        if self._context is not None:
            is_whole |= self._is_near(packets.row, times)
        chosen = is_whole | (~is_encrypted & (count > 0)) | _are_signals(packets, stream, joined)
        ends_handshake = self._ends_handshake(packets, from_client == 1)
        self._comment(ranges, packets, start, ~is_encrypted)
        self._comment_encrypted(stream, place, is_encrypted & chosen & ~is_empty)
        is_closed = np.isin(packets.row, self._closed)
        others = np.flatnonzero(~(chosen | is_empty | is_encrypted | is_closed))
        is_awaited = self._is_awaited(around, stream[others], times[others], packets.begin[others])
        awaited = others[is_awaited]
        self._add_awaited(packets, awaited)
        is_cut = (count > 0) & ~is_whole & chosen
        is_cut &= ~_covers(joined, first, count, start, start + packets.length)
        is_closed &= chosen
        chosen[awaited] = True
        is_bare = (ends_handshake | (packets.flags & (SYN | FIN) != 0)) & ~chosen
        is_bare &= ~packets.is_joined
        chosen |= is_bare
        has_part = (is_cut | is_closed | is_bare) & ~packets.is_joined
        for each in np.flatnonzero(has_part).tolist():
            at, size, flags = int(first[each]), int(packets.length[each]), packets.flags[each]
            positions = _positions(joined, at, at + int(count[each]), int(start[each]), size)
            if flags & FIN and size not in [stop for _, stop in positions[-1:]]:
                positions.append((size, size))
            elif is_bare[each] or (flags & SYN and positions and positions[0][0]):
                positions.insert(0, (0, 0))
            part = _part(packets, each, positions)
            if np.isin(packets.row[each], self._closed):
                own, opposite = int(packets.isn[each]), int(packets.opposite_isn[each])
                self._close(part, int(stream[each]), own, opposite)
            self.parts[packets.place_of(each)] = part
        self.places.append(place[:, chosen])
        self._add_fragments(packets, chosen & packets.is_joined)
        first_byte = packets.block.data[packets.block.payload[packets.index]]
        may_be_hello = is_encrypted & chosen & ~is_empty & (first_byte == HANDSHAKE)
        for each in np.flatnonzero(may_be_hello).tolist():
            self._add_session(packets.block, int(packets.index[each]))

    def _add_awaited(self, packets: _Packets, awaited: Int64) -> None:
        """Choose the first byte of segments for which a chosen message had to wait."""
        for each in awaited.tolist():
            place = packets.place_of(each)
            if not packets.is_joined[each]:
                self.parts[place] = _part(packets, each, [(0, 1)])
            self.comments[place].append((int(packets.seq[each]), AWAITED))

    def _ends_handshake(
        self, packets: _Packets, from_client: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Whether each packet is the first ACK of its client after the SYN."""
        kind = packets.flags & (SYN | ACK | RST)
        is_syn = from_client & (kind == SYN)
        is_ack = from_client & packets.is_first & (kind == ACK)
        ends: NDArray[np.bool_] = np.zeros(len(kind), np.bool_)
        for each in np.flatnonzero(is_syn | is_ack).tolist():
            connection = int(packets.row[each])
            if is_syn[each]:
                self._opened.setdefault(connection, False)
            elif self._opened.get(connection) is False:
                ends[each] = self._opened[connection] = True
        return ends

    def _from_client(self, packets: _Packets, index: Int64) -> Int64:
        """1 for packets of the client. `index`: of their connections."""
        block, packet = packets.block, packets.index
        same: NDArray[np.bool_] = block.src_port[packet] == self._port[index]
        same &= block.src_high[packet] == self._high[index]
        same &= block.src_low[packet] == self._low[index]
        return same.astype(np.int64)

    def _add_fragments(self, packets: _Packets, chosen: NDArray[np.bool_]) -> None:
        """Choose all fragments of packets."""
        self.fragmented.update(packets.row[chosen].tolist())
        for file, number in packets.place[:, chosen].T.tolist():
            self.places.append(np.array(packets.block.fragments[file, number], np.int64).T)

    def _is_near(self, row: Int64, times: Int64) -> NDArray[np.bool_]:
        """Whether a message of the connection is near each time."""
        assert self._context is not None
        near = np.zeros(len(row), np.bool_)
        messages, order = self._messages, self._by_time
        connection = messages.connection[order]
        for each in np.unique(row).tolist():
            own = order[slice(*np.searchsorted(connection, [each, each + 1]))]
            packets = np.flatnonzero(row == each)
            first = messages.first_time[own] - self._context
            last = np.maximum.accumulate(messages.last_time[own]) + self._context
            before = np.searchsorted(first, times[packets], "right") - 1
            near[packets] = (before >= 0) & (times[packets] <= last[np.maximum(before, 0)])
        return near

    def _is_awaited(
        self, around: Int64, stream: Int64, times: Int64, begin: Int64
    ) -> NDArray[np.bool_]:
        """Whether a message after each segment arrived before it, and was readable at its time."""
        messages, arrival = self._messages, self._arrival[around]
        awaited = np.isin(times, messages.first_time[around])
        for each in np.flatnonzero(awaited).tolist():
            ahead = (messages.begin[around] - begin[each]) & 0xFFFFFFFF
            is_behind = messages.stream[around] == stream[each]
            is_behind &= messages.first_time[around] == times[each]
            is_behind &= (ahead > 0) & (ahead < 1 << 31) & (arrival != NEVER)
            is_behind &= arrival < times[each]
            awaited[each] = is_behind.any()
        return awaited

    def _comment(
        self, ranges: Ranges, packets: _Packets, start: Int64, chosen: NDArray[np.bool_]
    ) -> None:
        """Comment on the first packet of each message. `start`: keys of the first bytes."""
        low = np.searchsorted(ranges.begin, start)
        high = np.searchsorted(ranges.begin, start + packets.length)
        for each in np.flatnonzero((high > low) & chosen).tolist():
            for at in range(int(low[each]), int(high[each])):
                message = int(ranges.index[at])
                if self._arrival[message] == NEVER:
                    self._arrival[message] = packets.times[each]
                    number = int(packets.seq[each]) + int(ranges.begin[at] - start[each])
                    text = self._messages.comments[message]
                    self.comments[packets.place_of(each)].append((number, text))

    def _comment_encrypted(self, stream: Int64, place: Int64, chosen: NDArray[np.bool_]) -> None:
        """Comment on the packets in which messages of encrypted connections begin."""
        for each in np.flatnonzero(chosen).tolist():
            where = int(place[0, each]), int(place[1, each])
            for message in self._encrypted.pop((int(stream[each]), where[1]), ()):
                self.comments[where].append((0, self._messages.comments[message]))

    def _close(self, part: Part, stream: int, own: int, opposite: int) -> None:
        """Set the numbers of a segment. `own`, `opposite`: initial sequence numbers."""
        for each, isn in ((stream, own), (stream ^ 1, opposite)):
            if each not in self._gaps:
                known = None if isn == NEVER else isn
                self._gaps[each] = ClosedGaps.of(self._messages, each, known)
        segment = part.segment
        ack = segment.ack and self._gaps[stream ^ 1].number(segment.ack)  # 0 in a SYN
        part.ranges[:] = part.ranges or [(0, segment.length)]
        part.numbers[:] = [
            (self._gaps[stream].number(segment.sequence(begin)), ack) for begin, _ in part.ranges
        ]

    def _add_session(self, block: PacketBlock, packet: int) -> None:
        at = int(block.payload[packet])
        payload = block.data[at : at + min(int(block.captured[packet]), _HELLO_BYTES)].tobytes()
        if hello := _HELLO.match(payload):
            self.sessions.update(each.hex() for each in hello.groups() if each)


def _are_signals(
    packets: _Packets, stream: Int64, joined: tuple[Int64, Int64]
) -> NDArray[np.bool_]:
    """Whether packets belong to connections as a whole, or acknowledge bytes of messages. `joined`:
    the ranges of the messages."""
    acknowledges = packets.is_empty & (packets.flags & ACK != 0)
    acknowledged = keys(stream ^ 1, packets.acknowledged)
    overlaps = _overlaps(joined, acknowledged, acknowledged)[1] > 0
    overlaps |= packets.is_first & (packets.acknowledged == packets.opposite_isn + 1)
    are_signals: NDArray[np.bool_] = packets.flags & RST != 0
    are_signals |= packets.is_empty & (packets.flags & (SYN | FIN) != 0)
    are_signals |= acknowledges & overlaps
    return are_signals


def _part(packets: _Packets, number: int, ranges: list[tuple[int, int]]) -> Part:
    """A part of one of these packets."""
    block, packet = packets.block, int(packets.index[number])
    segment = Segment(
        src=(int(block.src_high[packet]), int(block.src_low[packet])),
        dst=(int(block.dst_high[packet]), int(block.dst_low[packet])),
        src_port=int(block.src_port[packet]), dst_port=int(block.dst_port[packet]),
        seq=int(block.seq[packet]), ack=int(block.ack[packet]),
        length=int(block.length[packet]), is_syn=bool(block.flags[packet] & SYN),
    )  # fmt: skip
    return Part(segment, ranges, [None] * len(ranges))


def _positions(
    joined: tuple[Int64, Int64], first: int, last: int, start: int, length: int
) -> list[tuple[int, int]]:
    """The positions in a payload of ranges of sequence numbers. `start`: key of its first byte."""
    positions = []
    for begin, end in zip(
        joined[0][first:last].tolist(), joined[1][first:last].tolist(), strict=True
    ):
        low, high = max(begin - start, 0), min(end - start, length)
        positions += [(at, min(at + PART_BYTES, high)) for at in range(low, high, PART_BYTES)]
    return positions


def _overlaps(ranges: tuple[Int64, Int64], begin: Int64, end: Int64) -> tuple[Int64, Int64]:
    """First range with a byte of [begin, end), and the number of such ranges.

    An empty [begin, begin) overlaps a range if it is inside it, or at its border.
    """
    is_empty = begin == end
    first = np.searchsorted(ranges[1], begin - is_empty, "right")
    last = np.searchsorted(ranges[0], end + is_empty, "left")
    return first, np.maximum(last - first, 0)


def _covers(
    ranges: tuple[Int64, Int64], first: Int64, count: Int64, begin: Int64, end: Int64
) -> NDArray[np.bool_]:
    """Whether the first of the overlapping ranges contains [begin, end)."""
    if not len(ranges[0]):
        return np.zeros(len(begin), np.bool_)
    at = np.minimum(first, len(ranges[0]) - 1)
    covers: NDArray[np.bool_] = (count == 1) & (ranges[0][at] <= begin) & (ranges[1][at] >= end)
    return covers
