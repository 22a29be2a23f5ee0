"""OriginFinder: where streams begin, and the positions of sequence numbers.

A stream begins after its SYN. Without a SYN it begins with the lowest byte seen, once an earlier
byte can no longer arrive.

A damaged SYN-ACK would misplace all bytes of the broker. So it is ignored if the broker's first
payload has another number, and the client acknowledged that number before it sent any payload. (A
damaged SYN of a client does not fit the SYN-ACK: see `flows`.) If the capture has only one end, its
SYN is ignored if the last ACK before the first payload has the number of that payload, and not the
one after the SYN: a stream that begins so waits for an earlier byte or a packet of the other end.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dissector import _native
from dissector.arrays import arrays
from dissector.packets.block import ACK, FIN, RST, SYN, Int64, PacketBlock, UInt32
from dissector.streams import sequence
from dissector.streams.connections.flows import Assignment
from dissector.streams.connections.state import States
from dissector.streams.connections.table import (
    FIRST_TIME,
    IGNORED,
    LAST_TIME,
    NEVER,
    NEW,
    Bools,
    ConnectionTable,
    StreamTable,
)
from dissector.streams.limits import (
    CLOCK_SKEW,
    GRACE,
    REORDER_BYTES,
    REORDER_PACKETS,
    WINDOW_AHEAD,
    WINDOW_BEHIND,
)
from dissector.streams.segments import Segments

NOWHERE = -(1 << 62)
"""Position of a packet that is not a segment."""

LIMITS = np.array([WINDOW_AHEAD, WINDOW_BEHIND, REORDER_PACKETS, GRACE, CLOCK_SKEW])
"""Numbers that jump beyond any window are damaged, or more bytes than a window are missing. After
a silence of more than `GRACE`, such payloads wait after a hole, and `Reassembler` decides. A gap
of almost 4 GiB seems to lead beyond the window, as do packets of another capture point: the silence
before it is longer than `CLOCK_SKEW`. `REORDER_PACKETS` such payloads become the reference of those
that follow."""


@arrays
class Positions:
    """The positions of the payloads of n packets."""

    at: Int64
    """The position of each payload, below all positions where a packet has none, or where a payload
    only repeats bytes."""
    count: Int64
    """Number of payloads of each slot."""
    lowest: Int64
    """The lowest position of a payload of each slot."""
    beyond: Int64
    """Packets and positions of payloads that are beyond any window; shape (strays, 2)."""
    ends: tuple[Int64, Int64, Int64] | None
    """If all payloads are complete, and each one follows those before it in its stream: for each
    slot their end, highest start, and latest time."""


class OriginFinder:
    """Sets the origin and the first position of streams."""

    def __init__(self, table: ConnectionTable, streams: StreamTable, states: States) -> None:
        self._table = table
        self._streams = streams
        self._states = states

    def place(self, block: PacketBlock, assignment: Assignment, held: Segments) -> Segments:
        """Set the origins of new streams, and record where streams end. Returns the carried
        segments `held`, whose streams may have other origins now."""
        held = self._move_origins(assignment.streams, held)
        self._find_origins(block, assignment)
        self._record_fins(block, assignment)
        return held

    def _move_origins(self, stream_ids: Int64, held: Segments) -> Segments:
        """Move the origins of streams whose SYN arrived in a block after their first payload."""
        streams = self._streams
        new = (streams.state[stream_ids] == NEW) & streams.has_origin[stream_ids]
        if not new.any():
            return held
        slot = np.flatnonzero(new)
        stream = stream_ids[slot]
        before = streams.origin[stream]
        streams.origin[stream] = self._origin(stream, before)
        shift = np.zeros(len(stream_ids), np.int64)
        shift[slot] = sequence.ahead(before, streams.origin[stream])
        for column, unknown in ((streams.highest, FIRST_TIME), (streams.acknowledged, FIRST_TIME),
                                (streams.fin, LAST_TIME)):  # fmt: skip
            column[stream] += np.where(column[stream] == unknown, 0, shift[slot])
        return replace(held, at=held.at + shift[held.stream])

    def _find_origins(self, block: PacketBlock, assignment: Assignment) -> None:
        streams, stream_ids = self._streams, assignment.streams
        new = ~streams.has_origin[stream_ids]
        if not new.any():
            return
        sent = np.flatnonzero(new[assignment.slot])
        packet = sent[(block.length[sent] > 0) | (block.flags[sent] & FIN != 0)]
        first = np.full(len(stream_ids), -1)
        first[assignment.slot[packet[::-1]]] = packet[::-1]  # the last assignment wins
        slot = np.flatnonzero(first >= 0)
        packet, stream = first[slot], stream_ids[slot]
        seq = block.seq[packet] + (block.flags[packet] & SYN != 0)
        self._anchor(block, assignment, sent, first)
        self._correct(block, assignment, packet, seq)
        isn = self._table.isn.reshape(-1)[stream]
        joined = np.flatnonzero(isn == NEVER)
        seq[joined] = _without_outliers(block, assignment, slot[joined], seq[joined])
        streams.origin[stream] = self._origin(stream, seq)
        streams.has_origin[stream] = True
        # So a gap after the SYN is a gap after a silence, as between two payloads: see `LIMITS`.
        opened = stream[isn != NEVER]
        streams.payload_time[opened] = self._table.first_time[opened >> 1]
        # A damaged time in the future must not delay the start of a stream.
        streams.origin_time[stream] = np.minimum(block.time[packet], block.time[-1:])

    def _origin(self, stream: Int64, seq: UInt32) -> UInt32:
        """The origin of streams: after their SYN, or without one their first payload at `seq`."""
        isn = self._table.isn.reshape(-1)[stream]
        is_far = np.abs(sequence.ahead(seq, _behind(isn))) > REORDER_BYTES
        is_far &= self._may_lack_syn(stream, seq)
        return np.where((isn == NEVER) | is_far, seq, _behind(isn))

    def _anchor(
        self, block: PacketBlock, assignment: Assignment, sent: Int64, first: Int64
    ) -> None:
        """Make the last ACK before the first payload the anchor of a stream with a SYN; but one
        that begins after the SYN, if there is any.

        `sent`: the packets of new streams. `first`: the first one with payload or FIN of each
        slot; -1 without one.
        """
        is_ack = (block.flags[sent] & (SYN | ACK | FIN | RST) == ACK) & (block.length[sent] == 0)
        ack = sent[is_ack]
        slot = assignment.slot[ack]
        stream = assignment.streams[slot]
        is_early = (ack < first[slot]) | (first[slot] < 0)
        is_early &= self._table.isn.reshape(-1)[stream] != NEVER
        ack, stream = ack[is_early], stream[is_early]
        anchor = self._streams.anchor
        behind_syn = _behind(self._table.isn.reshape(-1)[stream])
        is_confirmed = anchor[stream] == behind_syn
        confirms = block.seq[ack] == behind_syn
        for chosen in (~is_confirmed & ~confirms, confirms):  # the last assignment wins
            anchor[stream[chosen]] = block.seq[ack[chosen]]

    def _may_lack_syn(self, stream: Int64, seq: UInt32) -> Bools:
        """Whether the only end in the capture may have a damaged SYN.

        `seq`: the lowest sequence number of payload of each stream.
        """
        is_one_way = self._table.packets.reshape(-1)[stream ^ 1] == 0
        isn = self._table.isn.reshape(-1)[stream]
        is_anchored = self._streams.anchor[stream] == seq
        result: Bools = is_one_way & is_anchored & (isn != NEVER) & (seq != _behind(isn))
        return result

    def _correct(
        self, block: PacketBlock, assignment: Assignment, packet: Int64, seq: UInt32
    ) -> None:
        """Correct initial sequence numbers taken from damaged SYN-ACK packets.

        `packet`: index of each stream's first packet with payload or FIN; `seq`: its sequence
        number.
        """
        isn, stream_ids = self._table.isn.reshape(-1), assignment.streams
        slot = assignment.slot[packet]
        own, peer = isn[stream_ids[slot]], isn[stream_ids[slot ^ 1]]
        is_client = self._table.client[stream_ids[slot] >> 1] == slot & 1
        differs = (own != NEVER) & (seq != _behind(own))
        doubtful = np.flatnonzero(differs & (peer != NEVER) & ~is_client)
        if not len(doubtful):
            return
        confirms = np.full(len(stream_ids), -1)
        confirms[slot[doubtful] ^ 1] = doubtful
        candidate = confirms[assignment.slot]
        is_ack = (block.flags & (SYN | ACK | FIN | RST) == ACK) & (block.length == 0)
        ack = np.flatnonzero((candidate >= 0) & is_ack)
        ack = ack[ack < packet[candidate[ack]]]
        damaged = candidate[ack]
        fits = (block.ack[ack] == seq[damaged]) & (block.seq[ack] == _behind(peer[damaged]))
        damaged = damaged[fits]
        isn[stream_ids[slot[damaged]]] = (seq[damaged] - np.uint32(1)).astype(np.int64)

    def _record_fins(self, block: PacketBlock, assignment: Assignment) -> None:
        packet = np.flatnonzero(block.flags & FIN)
        if len(packet):
            behind = block.seq[packet] + block.length[packet].astype(np.uint32)
            stream = assignment.streams[assignment.slot[packet]]
            is_acknowledged = self._streams.receiver_ack[stream] == behind + np.uint32(1)
            # The last assignment wins: a FIN that the receiver acknowledged.
            for chosen in (~is_acknowledged & ~self._is_closed(stream), is_acknowledged):
                position = self._streams.positions(stream[chosen], behind[chosen])
                self._streams.fin[stream[chosen]] = position

    def _is_closed(self, stream: Int64) -> Bools:
        """Whether the receiver acknowledged the FIN of each stream, after data. A FIN that it did
        not acknowledge may be damaged, and one before all data may be a damaged SYN."""
        streams, fin = self._streams, self._streams.fin[stream]
        behind = sequence.numbers(fin + 1, streams.origin[stream])
        is_closed: Bools = (fin > 0) & (fin != LAST_TIME)
        is_closed &= streams.receiver_ack[stream] == behind
        return is_closed

    def positions(self, block: PacketBlock, assignment: Assignment) -> Positions:
        """The positions of the payloads of a block."""
        streams, stream_ids = self._streams, assignment.streams
        near, end = (streams.next_position[stream_ids] for _ in range(2))
        highest, latest = streams.highest[stream_ids], streams.readable_time[stream_ids]
        reference = streams.next_sequence(stream_ids).astype(np.int64)
        state = streams.state[stream_ids]
        is_ignored = (state == IGNORED).view(np.uint8)
        least = np.where(state == NEW, near, FIRST_TIME)  # a new stream may begin with any byte
        at, stray = np.empty(len(block), np.int64), np.empty((len(block), 2), np.int64)
        count, cut, repeated, jumps = np.zeros((4, len(stream_ids)), np.int64)
        payload_time = streams.payload_time[stream_ids]
        payload_end = streams.payload_end[stream_ids]
        lowest = np.full(len(stream_ids), LAST_TIME)
        strays, in_order = _native.find_positions(
            assignment.slot, block.seq, block.flags, block.length, block.captured, block.time, near,
            reference, is_ignored, least, LIMITS, at, count, lowest, cut, end, highest, latest,
            repeated, bool((highest <= near).all()), stray.reshape(-1), payload_time, payload_end,
            jumps,
        )  # fmt: skip
        streams.payload_time[stream_ids] = payload_time
        streams.payload_end[stream_ids] = payload_end
        self._table.cut.reshape(-1)[stream_ids] += cut
        self._table.retransmitted.reshape(-1)[stream_ids] += repeated
        behind = self._behind_fins(block, assignment, at)
        beyond = np.concatenate([stray[:strays], np.stack([behind, at[behind]], axis=1)])
        at[behind] = NOWHERE
        count -= np.bincount(assignment.slot[behind], minlength=len(count))
        ends = (end, highest, latest) if in_order and not len(beyond) else None
        return Positions(at, count, lowest, beyond, ends)

    def _behind_fins(self, block: PacketBlock, assignment: Assignment, at: Int64) -> Int64:
        """The packets whose payload, at these positions, is after the FIN of a closed stream: the
        receiver ignores them (RFC 9293, section 3.10.7.4)."""
        is_closed = self._is_closed(assignment.streams)
        if not is_closed.any():
            return np.zeros(0, np.int64)
        fin, slot = self._streams.fin[assignment.streams], assignment.slot
        return np.flatnonzero(is_closed[slot] & (at >= fin[slot]) & (block.length > 0))

    def begin(self, stream_ids: Int64, lowest: Int64, is_due: Bools) -> None:
        """Start streams whose first byte is known, and those that are due: no earlier byte can
        arrive any more.

        `lowest`: the lowest position of a segment of each slot.
        """
        streams = self._streams
        new = streams.state[stream_ids] == NEW
        if not new.any():
            return
        isn = self._table.isn.reshape(-1)
        origin = streams.origin[stream_ids]
        damaged = new & (lowest != LAST_TIME)
        seq = sequence.numbers(np.where(damaged, lowest, 0), origin)
        damaged &= self._may_lack_syn(stream_ids, seq)
        over = np.flatnonzero(damaged & is_due)
        isn[stream_ids[over]] = (seq[over] - np.uint32(1)).astype(np.int64)
        known = (isn[stream_ids] != NEVER) & ~damaged
        slot = np.flatnonzero(new & (lowest != LAST_TIME) & (is_due | known))
        stream, known = stream_ids[slot], isn[stream_ids[slot]] != NEVER
        first = _behind(isn[stream])
        zero = np.zeros(len(slot), np.int64)
        exact = sequence.positions(first, streams.origin[stream], zero)
        begin = np.where(known, exact, lowest[slot])
        for column in (streams.next_position, streams.boundary, streams.search_from):
            column[stream] = begin
        streams.framed_until[stream] = np.where(known, begin, FIRST_TIME)
        self._states.begin(stream, known)


def _without_outliers(
    block: PacketBlock, assignment: Assignment, slot: Int64, seq: UInt32
) -> UInt32:
    """First sequence numbers of streams without SYN; numbers of damaged packets are replaced.

    `slot` and `seq`: the slot of each stream, and its first number. A number is damaged if most
    other numbers of the stream in this block, and acknowledgements of the peer, are far from it.
    """
    if not len(slot) or block.length.sum(dtype=np.int64) >= WINDOW_AHEAD:
        return seq
    index = np.full(len(assignment.streams), -1)
    index[slot] = np.arange(len(slot))
    sent = np.flatnonzero((block.length > 0) & (index[assignment.slot] >= 0))
    stream = index[assignment.slot[sent]]
    outliers = stream[np.abs(sequence.ahead(block.seq[sent], seq[stream])) > WINDOW_AHEAD]
    corrected = seq.copy()
    for each in np.unique(outliers).tolist():
        acks = np.flatnonzero((assignment.slot == slot[each] ^ 1) & (block.flags & ACK != 0))
        numbers = np.concatenate([block.seq[sent[stream == each]], block.ack[acks]])
        is_far = np.abs(sequence.ahead(numbers, seq[each])) > WINDOW_AHEAD
        if 2 * np.count_nonzero(is_far) > len(numbers):
            corrected[each] = numbers[is_far][0]
    return corrected


def _behind(isn: Int64) -> UInt32:
    """The sequence number after each SYN."""
    return (isn + 1).astype(np.uint32)
