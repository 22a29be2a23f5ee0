"""Placing: from sequence numbers to positions in streams, and where streams begin.

A stream begins behind its SYN. Without one it begins with the lowest byte seen, once
`REORDER_PACKETS` packets have passed in which an earlier one could have come.

A damaged answer to a SYN would put all that the broker says out of place. So it is not believed
where the broker goes on with another number, and the client had acknowledged that one before it
said anything itself. (Where a client's own SYN is damaged, the answer does not fit it: see
`tracking`.) Where only one end is in the capture, its SYN is not believed if what ends the
handshake has the number of its first byte, and not the one behind the SYN.
"""

from __future__ import annotations

import numpy as np

from dissector.packets.block import ACK, FIN, RST, SYN, Int64, PacketBlock, UInt32
from dissector.streams import sequence
from dissector.streams.flows import Assignment
from dissector.streams.limits import GRACE, REORDER_PACKETS, WINDOW_AHEAD
from dissector.streams.segments import Segments
from dissector.streams.state import States
from dissector.streams.table import (
    FIRST_TIME,
    LAST_TIME,
    NEVER,
    NEW,
    Bools,
    ConnectionTable,
    StreamTable,
)


class OriginFinder:
    """Gives streams their origin and their beginning."""

    def __init__(self, table: ConnectionTable, streams: StreamTable, states: States) -> None:
        self._table = table
        self._streams = streams
        self._states = states
        self._packets = 0

    def place(self, block: PacketBlock, assignment: Assignment) -> None:
        """Give streams that are new an origin, and note where streams end."""
        self._find_origins(block, assignment)
        self._note_fins(block, assignment)

    def _find_origins(self, block: PacketBlock, assignment: Assignment) -> None:
        streams, stream_ids = self._streams, assignment.streams
        before, self._packets = self._packets, self._packets + len(block)
        new = ~streams.flat("has_origin")[stream_ids]
        if not new.any():
            return
        telling = (block.length > 0) | (block.flags & FIN != 0)
        packet = np.flatnonzero(telling & new[assignment.slot])
        first = np.full(len(stream_ids), -1)
        first[assignment.slot[packet[::-1]]] = packet[::-1]  # the last assignment stays
        slot = np.flatnonzero(first >= 0)
        packet, stream = first[slot], stream_ids[slot]
        seq = block.seq[packet] + (block.flags[packet] & SYN != 0)
        self._correct(block, assignment, packet, seq)
        isn = self._table.isn.reshape(-1)[stream]
        joined = np.flatnonzero(isn == NEVER)
        seq[joined] = _without_outliers(block, assignment, slot[joined], seq[joined])
        streams.flat("origin")[stream] = np.where(isn == NEVER, seq, _behind(isn))
        streams.flat("has_origin")[stream] = True
        streams.flat("origin_packet")[stream] = before + packet
        streams.flat("origin_time")[stream] = block.time[packet]

    def _correct(
        self, block: PacketBlock, assignment: Assignment, packet: Int64, seq: UInt32
    ) -> None:
        """Put right the initial sequence numbers that damaged SYNs, or answers to them, told.

        `packet`: the first one in which each of some streams says something, at `seq`.
        """
        isn, stream_ids = self._table.isn.reshape(-1), assignment.streams
        slot = assignment.slot[packet]
        own, other = isn[stream_ids[slot]], isn[stream_ids[slot ^ 1]]
        of_client = self._table.client[stream_ids[slot] >> 1] == slot & 1
        silent = self._table.packets.reshape(-1)[stream_ids[slot ^ 1]] == 0
        odd = (own != NEVER) & (seq != _behind(own))
        wrong = np.flatnonzero(odd & (silent | (other != NEVER) & ~of_client))
        if not len(wrong):
            return
        first = np.full(len(stream_ids), -1)
        first[slot[wrong] ^ ~silent[wrong]] = wrong
        told = first[assignment.slot]
        plain = (block.flags & (SYN | ACK | FIN | RST) == ACK) & (block.length == 0)
        answer = np.flatnonzero((told >= 0) & plain)
        answer = answer[answer < packet[told[answer]]]
        right = told[answer]
        fits = (block.ack[answer] == seq[right]) & (block.seq[answer] == _behind(other[right]))
        fits = np.where(silent[right], block.seq[answer] == seq[right], fits)
        right = right[fits]
        if silent[right].any():
            # What begins behind the SYN says that it is right, whenever it comes.
            some = np.flatnonzero((told >= 0) & (block.flags & SYN == 0))
            proven = told[some[block.seq[some] == _behind(own)[told[some]]]]
            right = np.setdiff1d(right, proven[silent[proven]])
        isn[stream_ids[slot[right]]] = (seq[right] - np.uint32(1)).astype(np.int64)

    def _positions(self, assignment: Assignment, packet: Int64, number: UInt32) -> Int64:
        """Positions of sequence numbers in the streams of these packets."""
        stream = assignment.streams[assignment.slot[packet]]
        return sequence.positions(
            number,
            self._streams.flat("origin")[stream],
            self._streams.flat("next_position")[stream],
        )

    def _note_fins(self, block: PacketBlock, assignment: Assignment) -> None:
        packet = np.flatnonzero(block.flags & FIN)
        if len(packet):
            behind = block.seq[packet] + block.length[packet].astype(np.uint32)
            stream = assignment.streams[assignment.slot[packet]]
            self._streams.flat("fin")[stream] = self._positions(assignment, packet, behind)

    def payloads(
        self, block: PacketBlock, packet: Int64, stream: Int64, stream_ids: Int64
    ) -> tuple[Int64, Int64 | None, Bools]:
        """Position of each payload, the bytes cut off it, and whether it is beyond any window."""
        streams, length, seq = self._streams, block.length[packet], block.seq[packet]
        syn = block.flags[packet] & SYN
        if syn.any():  # it takes a number before the payload (TCP Fast Open, RFC 7413)
            seq = seq + (syn != 0)
        near = streams.flat("next_position")[stream_ids]
        reference = sequence.numbers(near, streams.flat("origin")[stream_ids])
        near, reference = near[stream], reference[stream]
        if length.sum(dtype=np.int64) >= WINDOW_AHEAD:  # where little of each packet is captured
            passed = _passed(stream, length.astype(np.int64))
            near = near + passed
            reference = reference + passed.astype(np.uint32)
        ahead = sequence.ahead(seq, reference)
        cut = (length - block.captured[packet]).astype(np.int64)
        return near + ahead, cut if cut.any() else None, ahead > WINDOW_AHEAD

    def begin(self, stream_ids: Int64, segments: Segments, give_up: Bools, now: int) -> None:
        """Let streams begin whose first byte is known, or can be told by now."""
        streams = self._streams
        new = streams.flat("state")[stream_ids] == NEW
        if not new.any():
            return
        is_settled = give_up | (streams.flat("origin_time")[stream_ids] < now - GRACE)
        is_settled |= streams.flat("origin_packet")[stream_ids] <= self._packets - REORDER_PACKETS
        some = np.flatnonzero(new[segments.stream])
        lowest = np.full(len(stream_ids), LAST_TIME)
        np.minimum.at(lowest, segments.stream[some], segments.at[some])
        isn = self._table.isn.reshape(-1)[stream_ids]
        slot = np.flatnonzero((lowest != LAST_TIME) & (is_settled | (isn != NEVER)))
        stream, known = stream_ids[slot], isn[slot] != NEVER
        first = _behind(isn[slot])
        zero = np.zeros(len(slot), np.int64)
        exact = sequence.positions(first, streams.flat("origin")[stream], zero)
        begin = np.where(known, exact, lowest[slot])
        for name in ("next_position", "boundary", "search_from"):
            streams.flat(name)[stream] = begin
        streams.flat("framed_until")[stream] = np.where(known, begin, FIRST_TIME)
        self._states.begin(stream, known)


def _without_outliers(
    block: PacketBlock, assignment: Assignment, slot: Int64, seq: UInt32
) -> UInt32:
    """First sequence numbers of streams without SYN; those from damaged packets are replaced.

    `slot` and `seq`: the slot of each stream, and its first number. A number is damaged if most
    others of the stream in this block, or acknowledgements of the peer, are out of its reach.
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
        answers = np.flatnonzero((assignment.slot == slot[each] ^ 1) & (block.flags & ACK != 0))
        numbers = np.concatenate([block.seq[sent[stream == each]], block.ack[answers]])
        is_far = np.abs(sequence.ahead(numbers, seq[each])) > WINDOW_AHEAD
        if 2 * np.count_nonzero(is_far) > len(numbers):
            corrected[each] = numbers[is_far][0]
    return corrected


def _behind(isn: Int64) -> UInt32:
    """The sequence number behind each SYN."""
    return (isn + 1).astype(np.uint32)


def _passed(stream: Int64, length: Int64) -> Int64:
    """Bytes of the same stream before each packet."""
    order = np.argsort(stream, kind="stable")
    before = np.cumsum(length[order]) - length[order]
    first = np.searchsorted(stream[order], stream[order])
    passed = np.empty(len(stream), np.int64)
    passed[order] = before - before[first]
    return passed
