"""Incarnations: the connections of a port pair that follow each other within a short time.

Packets of two incarnations may be mixed. They are assigned by arrival, but by sequence number and
time if they are out of order: bytes before the new SYN belong to the old connection, although they
arrived later. So does the RST with which a client responds to an ACK of the old connection (RFC
9293, section 3.10.7.3).
"""

from __future__ import annotations

from dataclasses import field
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from dissector.arrays import mutable
from dissector.packets.block import ACK, FIN, RST, SYN, Int64, PacketBlock, UInt8, UInt32, UInt64
from dissector.streams import sequence
from dissector.streams.connections.table import (
    FIRST_TIME,
    NEVER,
    NEW,
    OPEN,
    Bools,
    ConnectionTable,
    StreamTable,
    streams_at,
)
from dissector.streams.limits import (
    GRACE,
    PATIENCE,
    REORDER_BYTES,
    REORDER_PACKETS,
    SYN_BYTES,
    WINDOW_BEHIND,
)

_LATEST: Final = 4
"""Closes of a connection that are kept: FIN and RST of both ends."""

Numbers: TypeAlias = tuple[int, int]
"""Sequence number and acknowledgement number of a packet, in the order of the ends; -1 if
unknown."""


class Begin(NamedTuple):
    """Where a connection began: the index of its first packet in the block, negative before it; and
    the time in ns."""

    row: int
    packet: int = -REORDER_PACKETS - 1
    time: int = FIRST_TIME


@mutable
class Incarnation:
    """One of the connections of a port pair. Lists are by end."""

    row: int
    begin: int
    """Index of its first packet in the block; negative before the block."""
    time: int
    """Time of its first packet; ns."""
    isn: list[int]
    """-1 if unknown; likewise `anchor`."""
    anchor: list[int]
    """A sequence number near its first one; see `StreamTable.anchor`."""
    closes: list[tuple[Numbers, int]] = field(default_factory=list)
    """Numbers and times of the latest packets that closed it."""

    def owns(self, end: int, isn: int, acknowledged: int) -> bool:
        """Whether a SYN belongs to this connection. `acknowledged`: -1 if it has no ACK."""
        known = self.isn[end], self.isn[1 - end], self.anchor[end]
        return bool(are_own_syns(*known, isn, acknowledged))

    def is_answered_by(self, end: int, acknowledged: int, time: int) -> bool:
        """Whether a SYN that no connection owns comes directly after the SYN of the other end and
        acknowledges another number: then one of the two numbers is damaged."""
        is_open = self.isn[end] == self.anchor[end] == NEVER and self.isn[1 - end] != NEVER
        return is_open and acknowledged != NEVER and 0 <= time - self.time <= GRACE

    def distance(self, numbers: Numbers) -> int:
        """How far these numbers are ahead of the first ones: the larger distance, of both ends."""
        first = [
            anchor if isn == NEVER else isn
            for isn, anchor in zip(self.isn, self.anchor, strict=True)
        ]
        known = [
            (number - start) % sequence.MODULO
            for number, start in zip(numbers, first, strict=True)
            if NEVER not in (number, start)
        ]
        return max(known, default=sequence.MODULO)


def are_own_syns(
    own: Int64 | int, peer: Int64 | int, anchor: Int64 | int, isn: Int64 | int,
    acknowledged: Int64 | int,
) -> Bools:  # fmt: skip
    """Whether SYNs belong to connections. `own`, `peer`: initial sequence numbers of their sender
    and of the other end. `anchor`: see `Incarnation`. NEVER for an unknown number."""
    is_answer = (np.subtract(acknowledged, peer) - 1) % sequence.MODULO < SYN_BYTES
    is_near = (np.subtract(anchor, isn) - 1) % sequence.MODULO <= REORDER_BYTES
    has_answered = np.not_equal(acknowledged, NEVER) & np.not_equal(peer, NEVER)
    fits = np.where(has_answered, is_answer, np.equal(anchor, NEVER) | is_near)
    are_own: Bools = np.where(np.not_equal(own, NEVER), np.equal(own, isn), fits)
    return are_own


def or_never(is_known: Bools, number: UInt32) -> Int64:
    """The numbers that are known, NEVER instead of the others."""
    return np.where(is_known, number.astype(np.int64), NEVER)


def is_late(numbers: Numbers, last: Numbers) -> bool:
    """Whether a packet with these numbers may be a late one of a connection that ended with the
    numbers `last`."""
    return all(
        (number - end + REORDER_BYTES) % sequence.MODULO <= 2 * REORDER_BYTES
        for number, end in zip(numbers, last, strict=True)
        if NEVER not in (number, end)
    )


@mutable
class Pairs:
    """The port pairs of a block."""

    key: UInt64
    """Hash of the two endpoints of each pair."""
    sender: Int64
    """Sender of each packet: twice its pair, plus its end."""
    row: Int64
    """Connection of each pair at the start of the block, or the one of its first packet."""
    first: Int64
    """Index of the first packet of each pair."""
    incarnations: dict[int, list[Incarnation]] = field(default_factory=dict)
    """Incarnations of pairs with events in this block, and of recently reused pairs; oldest
    first."""

    def code(self, packet: Int64) -> Int64:
        """Pair of each of these packets."""
        return self.sender[packet] >> 1

    def end(self, packet: Int64) -> Int64:
        """Sender of each of these packets: 0 or 1."""
        return self.sender[packet] & 1


_Close: TypeAlias = tuple[int, Numbers, int]
"""Index in the block, numbers and time of a packet that closes a connection."""


def closes_of(block: PacketBlock, pairs: Pairs, codes: Int64) -> dict[int, list[_Close]]:
    """The packets that close connections of these pairs, by pair, the last one first."""
    if not len(codes):
        return {}
    packet = np.flatnonzero(block.flags & (FIN | RST))[::-1]
    packet = packet[np.isin(pairs.code(packet), codes)]
    seq = block.seq[packet].astype(np.int64)
    ack = or_never(block.flags[packet] & ACK != 0, block.ack[packet])
    end = pairs.end(packet)
    numbers = np.where(end == 0, [seq, ack], [ack, seq]).T
    closes: dict[int, list[_Close]] = {}
    for code, at, (first, second), time in zip(
        *(each.tolist() for each in (pairs.code(packet), packet, numbers, block.time[packet])),
        strict=True,
    ):
        closes.setdefault(code, []).append((at, (first, second), time))
    return closes


def assign_closes(closes: list[_Close], until: int, incarnations: list[Incarnation]) -> None:
    """Move the closes before index `until` to those of these connections that had begun and whose
    first numbers are the nearest ones."""
    while closes and closes[-1][0] < until:
        at, numbers, time = closes.pop()
        begun = [each for each in incarnations if each.begin <= at]
        if begun:
            owner = min(begun, key=lambda each: each.distance(numbers))
            owner.closes = [*owner.closes[1 - _LATEST :], (numbers, time)]


class RecentIncarnations:
    """The connections of reused port pairs, as long as packets of the old one may arrive."""

    def __init__(self) -> None:
        self._begins: dict[int, list[Begin]] = {}
        """By key of the pair, oldest first. `packet` counts all packets."""
        self._mixed: dict[int, int] = {}
        """By key of a pair: the time of the last packet of a connection that went on after another
        one had begun; ns."""
        self._seen = 0
        """Packets of all blocks so far."""

    def of(self, key: int) -> list[Begin]:
        """The connections of a pair, oldest first; an empty list if none is recent."""
        begins = self._begins.get(key, [])
        return [each._replace(packet=each.packet - self._seen) for each in begins]

    def index_of(self, keys: UInt64) -> Int64:
        """Index of the pairs that were reused a short time ago."""
        if not self._begins:
            return np.zeros(0, np.int64)
        return np.flatnonzero(np.isin(keys, np.array(list(self._begins), np.uint64)))

    def record(
        self, block: PacketBlock, several: dict[int, list[Incarnation]], mixed: dict[int, int]
    ) -> None:
        """Record the connections of reused pairs at the end of a block, and remove old ones.

        `mixed`: by key, the time of the last packet of a connection that continues.
        """
        self._mixed |= mixed
        for key, incarnations in several.items():
            self._begins[key] = [
                Begin(each.row, each.begin + self._seen, each.time) for each in incarnations
            ]
        self._seen += len(block)
        now = int(block.time[-1])
        for key, begins in list(self._begins.items()):
            if self._mixed.get(key, FIRST_TIME) > now - PATIENCE:
                continue
            self._mixed.pop(key, None)
            old = sum(
                each.packet < self._seen - REORDER_PACKETS and each.time < now - GRACE
                for each in begins[1:]
            )
            self._begins[key] = begins[old:]
            if old == len(begins) - 1:
                del self._begins[key]

    def forget(self, rows: Int64) -> None:
        """Remove the pairs with these connections."""
        forgotten = set(rows.tolist()) if self._begins else set()
        for key, begins in list(self._begins.items()):
            if not forgotten.isdisjoint(each.row for each in begins):
                self.drop(np.array([key], np.uint64))

    def drop(self, keys: UInt64) -> None:
        """Remove these pairs."""
        if self._begins:
            for key in keys.tolist():
                self._begins.pop(key, None)
                self._mixed.pop(key, None)


def incarnations_of(
    block: PacketBlock, index: Int64, code: Int64, end: Int64,
    several: dict[int, list[Incarnation]], table: ConnectionTable, streams: StreamTable,
) -> tuple[Int64, Bools]:  # fmt: skip
    """The connection of each packet of reused pairs; and whether it continues after another began.

    `index`, `code` and `end`: the packets, their pairs and their senders; shape (n,).
    """
    flat = [
        (code, each.begin, each.time, each.row)
        for code in sorted(several)
        for each in several[code]
    ]
    owner, begin, time, row = np.array(flat, np.int64).T
    seq, arrival = block.seq[index], block.time[index]
    flags = block.flags[index]
    width = len(block) + 1
    first = owner * width + np.maximum(begin, -1) + 1
    current = np.searchsorted(first, code * width + index + 1, "right") - 1
    no_syn = flags & SYN == 0
    known, distance, fits = _distances_from_syn(block, index, end, table.isn[row[current]])
    before = _answered_before(owner, row, table, streams)[current]
    late = (before < current) & no_syn & ~fits
    # A file may be in another order than any network makes: then times count.
    is_near = known & (index - begin[current] <= REORDER_PACKETS)
    late &= is_near | (arrival < time[current])
    # A SYN that no end accepts does not end a connection (RFC 9293, section 3.10.7.4), and two
    # networks in a capture may have connections with the same addresses and ports.
    near_before, near_current = (
        _near_numbers(block, index, end, row[each], table, streams) for each in (before, current)
    )
    goes_on = (before < current) & no_syn & (near_before > near_current)
    is_accepted = _are_accepted(row, current[known & (distance == 0) & no_syn], streams)
    goes_on &= ~is_accepted[current] | (near_current == 0)
    goes_on &= table.closed[row[before]] == OPEN
    goes_on &= index <= _first_closes(index, flags, current, late | goes_on)[before]
    late |= goes_on
    after = np.minimum(current + 1, len(row) - 1)
    _, next_distance, early = _distances_from_syn(block, index, end, table.isn[row[after]])
    early &= (owner[after] == code) & (after > current) & no_syn
    is_near = begin[after] - index <= REORDER_PACKETS
    early &= is_near | (arrival > time[after])
    stream = 2 * row[current] + end
    has_begun = streams.state[stream] != NEW
    from_next = sequence.ahead(seq, streams.next_sequence(stream))
    own = np.abs(np.where(has_begun, from_next, distance))
    early &= (next_distance < own) | ~(known | has_begun)
    near_after = _near_numbers(block, index, end, row[after], table, streams)
    early &= near_after >= np.maximum(near_before, near_current)
    is_first = index == begin[current]  # no connection is without packets
    early &= ~is_first
    late &= ~is_first
    owners: Int64 = row[np.where(early, after, np.where(late, before, current))]
    return owners, goes_on & late & ~early


def _distances_from_syn(
    block: PacketBlock, index: Int64, end: Int64, isn: Int64
) -> tuple[Bools, Int64, Bools]:
    """Whether the SYN is known, the distance of each packet from it, and whether the distance is
    that of reordering. `isn`: the numbers of the connection of each packet, shape (n, 2).

    Without a SYN of the sender, the SYN that it acknowledges counts.
    """
    packet = np.arange(len(index))
    own, peer = isn[packet, end], isn[packet, 1 - end]
    acknowledges = (own == NEVER) & (peer != NEVER)
    acknowledges &= block.flags[index] & (ACK | RST) == ACK
    number = np.where(acknowledges, block.ack[index], block.seq[index])
    syn = np.where(acknowledges, peer, own)
    distance = sequence.ahead(number, (syn + 1).astype(np.uint32))
    known = syn != NEVER
    # A keep-alive has the number before the next one (RFC 9293, section 3.8.4).
    return known, distance, known & (distance >= -1) & (distance <= REORDER_BYTES)


def _first_closes(index: Int64, flags: UInt8, current: Int64, stays: Bools) -> Int64:
    """Index in the block of the packet that closes each incarnation; the largest integer if none
    does. `stays`: packets of the incarnation before `current`, until that one is closed."""
    first = np.full(current.max() + 1, np.iinfo(np.int64).max)
    closes = flags & (FIN | RST) != 0
    for packet, incarnation, is_earlier in zip(
        index[closes].tolist(), current[closes].tolist(), stays[closes].tolist(), strict=True
    ):
        owner = incarnation - (is_earlier and packet < first[incarnation - 1])
        first[owner] = min(first[owner], packet)
    return first


def _are_accepted(row: Int64, confirmed: Int64, streams: StreamTable) -> Bools:
    """Whether an end has accepted the SYN of each incarnation: there is payload, or a packet sends
    or acknowledges the number after the SYN. `confirmed`: the incarnations of such packets."""
    are_accepted: Bools = (streams.state[streams_at(row)] != NEW).reshape(-1, 2).any(axis=1)
    are_accepted[confirmed] = True
    return are_accepted


def _answered_before(
    owner: Int64, row: Int64, table: ConnectionTable, streams: StreamTable
) -> Int64:
    """For each incarnation, the last earlier one of its pair of which numbers of both ends are
    known, or else the first one of the pair. `owner`, `row`: pairs and rows, oldest first."""
    both = streams_at(row)
    is_known = (table.isn[row] != NEVER) | (streams.anchor[both] != NEVER).reshape(-1, 2)
    is_known |= (streams.state[both] != NEW).reshape(-1, 2)
    is_first = np.diff(owner, prepend=NEVER) != 0
    index = np.arange(len(row))
    answered = np.maximum.accumulate(np.where(is_first | is_known.all(axis=1), index, 0))
    return np.where(is_first, index, np.append(0, answered[:-1]))


def _near_numbers(
    block: PacketBlock, index: Int64, end: Int64, row: Int64, table: ConnectionTable,
    streams: StreamTable,
) -> Int64:  # fmt: skip
    """How many numbers of packets, of the two that they have, are near those of a connection, as
    far as they are known; 0 if one is not."""
    near, is_near = np.zeros(len(index), np.int64), np.ones(len(index), np.bool_)
    has_ack = block.flags[index] & ACK != 0
    for number, side, is_valid in ((block.seq, end, True), (block.ack, 1 - end, has_ack)):
        stream = 2 * row + side
        has_begun = streams.state[stream] != NEW
        isn = table.isn[row, side]
        first = np.where(isn == NEVER, streams.anchor[stream], isn)
        reference = np.where(has_begun, streams.next_sequence(stream), first.astype(np.uint32))
        is_used = (has_begun | (first != NEVER)) & is_valid
        is_near &= ~is_used | (np.abs(sequence.ahead(number[index], reference)) < WINDOW_BEHIND)
        near += is_used
    return near * is_near
