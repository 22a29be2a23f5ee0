"""FlowTracker: the connection and the stream of each packet.

The pairs of endpoints in a block become small codes. A `PairIndex` has the connection of each pair.
Python takes a step per pair only for pairs that have several connections in one block.

If a port pair is reused, a new incarnation of it begins (RFC 9293, section 3.4.1). Its sign is a
SYN with another initial sequence number; a retransmitted SYN has the same one. The SYN of either
end counts, since a capture may have one direction only. A SYN with the same number is a sign after
a close and silence. If the SYN is not in the capture, a jump of the sequence numbers is the sign,
after the old connection was closed or long silent. Packets of two incarnations may be mixed: see
`incarnations`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import NamedTuple, TypeAlias

import numpy as np

from dissector import _native
from dissector.arrays import mutable
from dissector.packets.block import ACK, FIN, RST, SYN, Int64, PacketBlock, UInt16, UInt32, UInt64
from dissector.streams.connections.incarnations import (
    Begin,
    Incarnation,
    Numbers,
    Pairs,
    RecentIncarnations,
    are_own_syns,
    assign_closes,
    closes_of,
    incarnations_of,
    is_late,
    or_never,
)
from dissector.streams.connections.pair_index import PairIndex
from dissector.streams.connections.port_reuse import packets_after_reuse, syns_after_close
from dissector.streams.connections.table import (
    LAST_TIME,
    NEVER,
    OPEN,
    UNDECIDED,
    Bools,
    ConnectionTable,
    StreamTable,
    streams_at,
)
from dissector.streams.limits import GRACE, PATIENCE, WINDOW_AHEAD
from dissector.streams.sequence import MODULO

Endpoints: TypeAlias = tuple[UInt64, UInt64, UInt16]
"""High and low part of addresses, and ports; each of shape (n,)."""

_MAX_EVENTS = 3
"""Maximum number of events of a pair in a block that are followed for all pairs at once."""

_LOOK_BACK = 2
"""A late SYN may belong to the incarnation before the newest one of its pair."""


@mutable
class Assignment:
    """The connections and streams of a block's packets.

    A slot is a dense number of a stream in this block: ``2 * index in rows + end``.
    """

    rows: Int64
    """All connections of the block, ascending."""
    slot: Int64
    """Slot of each packet; shape (n,)."""
    streams: Int64 = field(init=False)
    """The stream of each slot; shape (2 * rows,)."""

    def __post_init__(self) -> None:
        self.streams = streams_at(self.rows)


class _Event(NamedTuple):
    """A SYN, or a packet whose numbers jump after a close or silence of its pair."""

    packet: int
    """Index in the block."""
    code: int
    """Its pair."""
    end: int
    """Its sender."""
    is_syn: bool
    begins: bool
    """Whether it begins a connection; see `syns_after_close`."""
    seq: int
    acknowledged: int
    """-1 if it has no ACK."""
    behind: int
    """Index in the block of that close, or of the last packet before the silence; -1 if that is
    before the block."""

    @property
    def numbers(self) -> Numbers:
        """Its numbers, in the order of the ends."""
        return (self.acknowledged, self.seq) if self.end else (self.seq, self.acknowledged)


class FlowTracker:
    """Assigns packets to streams, and adds rows for new connections."""

    def __init__(
        self, table: ConnectionTable, streams: StreamTable,
        restore: Callable[[Int64], None] = lambda rows: None,
    ) -> None:  # fmt: skip
        """`restore`: called with rows before they are read."""
        self._restore = restore
        self._table = table
        self._streams = streams
        self.index = PairIndex()
        """The current connection of each pair."""
        self._recent = RecentIncarnations()
        self._new: list[Int64] = []  # rows of connections that have no number yet

    def forget(self, rows: Int64) -> None:
        """Drop these connections; a later packet of one of them begins another connection."""
        self.index.forget(rows)
        self._recent.forget(rows)

    def keys(self, rows: Int64) -> UInt64:
        """The key of the pair of each of these connections."""
        table = self._table
        source, target = (
            (table.high[rows, end], table.low[rows, end], table.port[rows, end]) for end in (0, 1)
        )
        key, sender, _ = self._numbered_pairs(source, target)
        keys: UInt64 = key[sender >> 1]
        return keys

    def pair_keys(self, block: PacketBlock) -> tuple[UInt64, Int64, Int64]:
        """The key of each pair in a block, the pair of each packet, and the first packet of each
        pair."""
        key, sender, first = self._numbered_pairs(*_ends(block))
        return key, sender >> 1, first

    def _numbered_pairs(self, source: Endpoints, target: Endpoints) -> tuple[UInt64, Int64, Int64]:
        """Number pairs of endpoints in order of appearance.

        Returns the key of each pair; for each of n sources, twice its pair, plus 1 if it is the
        larger endpoint; and the first source of each pair.
        """
        sender, first = np.empty((2, len(source[0])), np.int64)
        key, words = np.empty(len(source[0]), np.uint64), np.empty(5 * len(source[0]), np.uint64)
        count = _native.number_pairs(*source, *target, self.index.key, sender, first, key, words)
        return key[:count], sender, first[:count]

    def put(self, keys: UInt64, rows: Int64) -> None:
        """Assign the next packets of these pairs to these connections."""
        is_known = self.index.find(keys) >= 0
        self.index.replace(keys[is_known], rows[is_known])
        self.index.add(keys[~is_known], rows[~is_known])
        self._recent.drop(keys)

    def assign(self, block: PacketBlock, also: Int64) -> Assignment:
        """Assign the packets of a block to streams. `also`: additional rows that get slots."""
        if not len(block):
            return Assignment(np.unique(also), np.zeros(0, np.int64))
        pairs = self._pairs(block)
        self._find_incarnations(block, pairs)
        self._number(pairs)
        several = {code: each for code, each in pairs.incarnations.items() if len(each) > 1}
        later = [each.row for incarnations in several.values() for each in incarnations]
        rows = np.unique(np.concatenate([pairs.row, np.array(later, np.int64), also]))
        first_slot = 2 * np.searchsorted(rows, pairs.row)
        slot = np.column_stack([first_slot, first_slot + 1]).ravel().take(pairs.sender)
        mixed: dict[int, int] = {}
        if several:
            index = np.flatnonzero(np.isin(pairs.sender >> 1, list(several)))
            code, end = pairs.code(index), pairs.end(index)
            row, goes_on = incarnations_of(
                block, index, code, end, several, self._table, self._streams
            )
            slot[index] = 2 * np.searchsorted(rows, row) + end
            self._table.replaced[row[goes_on]] = False
            self._streams.close_deadline[streams_at(row[goes_on])] = LAST_TIME
            is_open = goes_on & (block.flags[index] & (FIN | RST) == 0)
            self._set_current(pairs, several, code, row, is_open)
            key, time = pairs.key[code[goes_on]], block.time[index[goes_on]]
            mixed = dict(zip(key.tolist(), time.tolist(), strict=True))
        by_key = {int(pairs.key[code]): each for code, each in several.items()}
        self._recent.record(block, by_key, mixed)
        return Assignment(rows, slot)

    # Pairs

    def _pairs(self, block: PacketBlock) -> Pairs:
        """Number the pairs in order of appearance; find or add their connections."""
        key, sender, first = self._numbered_pairs(*_ends(block))
        row = self.index.find(key)
        self._restore(row[row >= 0])
        pairs = Pairs(key, sender, row, first)
        unknown = np.flatnonzero(row < 0)
        if len(unknown):
            row[unknown] = self._open(block, first[unknown], pairs.end(first[unknown]))
            self.index.add(key[unknown], row[unknown])
        return pairs

    def _open(self, block: PacketBlock, packet: Int64, end: Int64) -> Int64:
        """Add a row for each of these first packets. `end`: their senders."""
        table, streams = self._table, self._streams
        rows = table.claim(len(packet))
        streams.add(table.count - streams.count)
        self._new.append(rows)
        table.capture[rows] = block.capture[packet]
        table.packet[rows] = block.number[packet]
        flags = block.flags[packet]
        is_valid = flags & RST == 0  # a RST may have any number
        source, target = _ends(block)
        for at, ends, is_anchor, number in (
            (end, source, flags & SYN == 0, block.seq),
            (end ^ 1, target, flags & ACK != 0, block.ack),
        ):
            table.high[rows, at], table.low[rows, at], table.port[rows, at] = (
                each[packet] for each in ends
            )
            streams.anchor[2 * rows + at] = or_never(is_valid & is_anchor, number[packet])
        return rows

    # Incarnations

    def _find_incarnations(self, block: PacketBlock, pairs: Pairs) -> None:
        """Add the connections that begin in this block on pairs with an earlier connection."""
        if self._streams.has_syn_ack.any():  # hardly ever; packed rows are zero here
            self._correct_syns(block, pairs, streams_at(pairs.row), np.arange(2 * len(pairs.row)))
        is_syn = block.flags & SYN != 0
        jump, before_jump = packets_after_reuse(block, pairs, self._table, self._streams)
        event = np.union1d(np.flatnonzero(is_syn), jump)
        reused = self._recent.index_of(pairs.key)
        if not len(event) and not len(reused):
            return
        begins, behind = np.zeros(len(event), np.bool_), np.full(len(event), NEVER)
        behind[event.searchsorted(jump)] = before_jump
        begins[is_syn[event]] = syns_after_close(block, pairs, self._table, event[is_syn[event]])
        followed, opened = self._follow_syns(block, pairs, event, is_syn, begins)
        event, begins, behind = event[~followed], begins[~followed], behind[~followed]
        self._load_incarnations(block, pairs, np.union1d(pairs.code(event), reused))
        columns = (
            event, pairs.code(event), pairs.end(event), is_syn[event], begins, block.seq[event],
            or_never(block.flags[event] & ACK != 0, block.ack[event]), behind,
        )  # fmt: skip
        added: list[tuple[int, Incarnation]] = []
        syns: list[tuple[int, Incarnation]] = []
        closes = closes_of(block, pairs, pairs.code(jump))
        for values in zip(*(each.tolist() for each in columns), strict=True):
            each = _Event(*values)
            incarnations = pairs.incarnations[each.code]
            assign_closes(closes.get(each.code, []), each.packet, incarnations[-1 - _LOOK_BACK :])
            owner = self._owner(block, each, incarnations)
            if owner is None:
                anchor = [NEVER, NEVER] if each.is_syn else list(each.numbers)
                time = int(block.time[each.packet])
                owner = Incarnation(-1, each.packet, time, [NEVER, NEVER], anchor)
                incarnations.append(owner)
                added.append((each.code, owner))
            if each.is_syn:
                owner.isn[each.end] = each.seq
                owner.anchor[1 - each.end] = each.acknowledged
                syns.append((each.packet, owner))
        if added:
            self._add_incarnations(block, pairs, added)
        packet = np.concatenate([opened, np.array([index for index, _ in syns], np.int64)])
        row = np.concatenate(
            [pairs.row[pairs.code(opened)], np.array([each.row for _, each in syns], np.int64)]
        )
        if len(packet):
            order = np.argsort(packet)
            self._record_syns(block, pairs, packet[order], row[order])

    def _follow_syns(
        self, block: PacketBlock, pairs: Pairs, event: Int64, is_syn: Bools, begins: Bools
    ) -> tuple[Bools, Int64]:
        """Follow the SYNs of pairs with one connection in this block, mostly a SYN and its SYN-ACK.
        Returns which events were followed, and their packets. `begins`: see `syns_after_close`.
        """
        code, slot, count = np.unique(pairs.code(event), return_inverse=True, return_counts=True)
        rows = pairs.row[code]
        isn = self._table.isn[rows]
        anchor = self._streams.anchor[streams_at(rows)].reshape(-1, 2)
        is_single = (count <= _MAX_EVENTS) & (np.bincount(slot, ~is_syn[event] | begins) == 0)
        order = np.argsort(slot, kind="stable")
        first = np.cumsum(count) - count
        for number in range(_MAX_EVENTS):
            pair = np.flatnonzero(is_single & (count > number))
            packet = event[order[first[pair] + number]]
            end, seq = pairs.end(packet), block.seq[packet].astype(np.int64)
            ack = or_never(block.flags[packet] & ACK != 0, block.ack[packet])
            known = isn[pair, end], isn[pair, 1 - end], anchor[pair, end]
            is_single[pair] = are_own_syns(*known, seq, ack)
            isn[pair, end] = seq
            anchor[pair, 1 - end] = ack
        followed = is_single[slot]
        return followed, event[followed]

    def _owner(
        self, block: PacketBlock, event: _Event, incarnations: list[Incarnation]
    ) -> Incarnation | None:
        """The connection that a packet belongs to, among those of its pair; None: it begins
        another."""
        for owner in incarnations[: -1 - _LOOK_BACK : -1]:
            if event.is_syn:
                is_owner = not event.begins and owner.owns(event.end, event.seq, event.acknowledged)
            else:
                is_owner = owner.begin > event.behind or (
                    owner.distance(event.numbers) < WINDOW_AHEAD
                    and self._goes_on(block, event, owner, is_only=len(incarnations) == 1)
                )
            if is_owner:
                return owner
        last, time = incarnations[-1], int(block.time[event.packet])
        is_answer = event.is_syn and not event.begins
        is_answer = is_answer and last.is_answered_by(event.end, event.acknowledged, time)
        return last if is_answer else None

    def _goes_on(
        self, block: PacketBlock, event: _Event, owner: Incarnation, *, is_only: bool
    ) -> bool:
        """Whether a connection continues with a packet whose numbers are near its own, but jump:
        the connection is neither closed nor long silent, or the packet is late. `is_only`: the pair
        has no other connection."""
        time = block.time[event.packet]
        if owner.closes:
            since = int(time) - GRACE
            return any(is_late(event.numbers, each) and at > since for each, at in owner.closes)
        if event.behind < 0:
            is_silent = time - PATIENCE > self._table.last_time[owner.row]
        else:
            is_silent = block.flags[event.behind] & (FIN | RST) == 0
        return not (is_silent or is_only)

    def _load_incarnations(self, block: PacketBlock, pairs: Pairs, codes: Int64) -> None:
        """Create the incarnations of these pairs from the rows of their connections."""
        known: dict[int, list[Begin]] = {}
        row = pairs.row[codes]
        time = np.minimum(self._table.first_time[row], block.time[pairs.first[codes]])
        for code, key, *first in zip(
            *(each.tolist() for each in (codes, pairs.key[codes], row, time)), strict=True
        ):
            known[code] = self._recent.of(key) or [Begin(first[0], time=first[1])]
        rows = np.array([each.row for begins in known.values() for each in begins], np.int64)
        self._restore(rows)
        anchor = self._streams.anchor[streams_at(rows)].reshape(-1, 2)
        states = zip(self._table.isn[rows].tolist(), anchor.tolist(), strict=True)
        for code, begins in known.items():
            pairs.incarnations[code] = [Incarnation(*begin, *next(states)) for begin in begins]
        self._load_closes(pairs, rows)

    def _load_closes(self, pairs: Pairs, rows: Int64) -> None:
        """Record the last numbers of the incarnations of these rows that are closed."""
        table, streams = self._table, self._streams
        closed = rows[table.closed[rows] != OPEN]
        if not len(closed):
            return
        stream = streams_at(closed)
        last = or_never(streams.has_origin[stream], streams.next_sequence(stream))
        numbers = {
            row: ((first, second), time)
            for row, (first, second), time in zip(
                closed.tolist(), last.reshape(-1, 2).tolist(), table.last_time[closed].tolist(),
                strict=True,
            )
        }  # fmt: skip
        for incarnations in pairs.incarnations.values():
            for each in incarnations:
                each.closes += [numbers[each.row]] if each.row in numbers else []

    def _add_incarnations(
        self, block: PacketBlock, pairs: Pairs, added: list[tuple[int, Incarnation]]
    ) -> None:
        """Add rows for new connections; the earlier connections of their pairs end."""
        begin = np.array([each.begin for _, each in added], np.int64)
        rows = self._open(block, begin, pairs.end(begin))
        newest: dict[int, int] = {}
        for (code, each), row in zip(added, rows.tolist(), strict=True):
            each.row = row
            before = newest.get(code, int(pairs.row[code]))
            newest[code] = row
            self._table.replaced[before] = True
            deadline = self._streams.close_deadline[2 * before : 2 * before + 2]
            np.minimum(deadline, block.time[each.begin] + GRACE, out=deadline)

    def _set_current(
        self, pairs: Pairs, several: dict[int, list[Incarnation]], code: Int64, row: Int64,
        is_open: Bools,
    ) -> None:  # fmt: skip
        """Assign the next packets of each pair to its newest incarnation, or to that of its last
        packet, if that is an earlier one that is open.

        `code`, `row`, `is_open`: of the packets of these pairs.
        """
        newest = np.array([each[-1].row for each in several.values()], np.int64)
        self.index.replace(pairs.key[list(several)], newest)
        last = len(code) - 1 - np.unique(code[::-1], return_index=True)[1]
        last = last[is_open[last]]
        self.index.replace(pairs.key[code[last]], row[last])

    def _record_syns(self, block: PacketBlock, pairs: Pairs, packet: Int64, row: Int64) -> None:
        """Record the initial sequence numbers and the clients that SYNs show."""
        table = self._table
        end = pairs.end(packet)
        table.isn[row, end] = block.seq[packet]
        is_syn_ack = block.flags[packet] & ACK != 0
        self._record_clients(row, end ^ is_syn_ack)
        packet, stream = packet[is_syn_ack], (2 * row + 1 - end)[is_syn_ack]
        differs = table.isn.reshape(-1)[stream] != block.ack[packet] - np.uint32(1)
        packet, stream = packet[differs], stream[differs]
        self._streams.has_syn_ack[stream] = True
        self._streams.syn_ack[stream] = block.ack[packet]
        self._correct_syns(block, pairs, stream, pairs.sender[packet] ^ 1)

    def _record_clients(self, row: Int64, client: Int64) -> None:
        """Record the clients that SYNs show. If both ends open the connection (RFC 9293, section
        3.5), its messages, or its ports, decide which end is the client."""
        table = self._table
        before = np.where(table.opened[row], table.client[row], client)
        table.opened[row] = True
        table.client[row] = client
        by_both = row[(before != client) | (table.client[row] != client)]
        is_undecided = self._streams.protocol[by_both] == UNDECIDED
        table.client[by_both[is_undecided]] = -1
        table.syn_time[by_both] = NEVER  # no ACK of one end shows how long such a handshake takes

    def _correct_syns(self, block: PacketBlock, pairs: Pairs, stream: Int64, sender: Int64) -> None:
        """Correct the numbers of SYNs that are lost or damaged, if the next packet of their sender
        has the number that the SYN-ACK acknowledged, and not the one after the SYN.

        `sender`: each of these streams, as in `Pairs`.
        """
        streams, isn = self._streams, self._table.isn.reshape(-1)
        is_open = streams.has_syn_ack[stream]
        if not is_open.any():
            return
        stream, sender = stream[is_open], sender[is_open]
        is_syn = block.flags & SYN != 0
        sent = np.flatnonzero(np.isin(pairs.sender, sender) & (~is_syn | (block.length > 0)))
        numbers = _stream_and_number(pairs.sender[sent], block.seq[sent] + is_syn[sent])
        numbers, place = np.unique(numbers, return_index=True)
        unseen = len(block)
        numbers, place = np.append(numbers, NEVER), np.append(place, unseen)
        has_anchor = streams.anchor[stream ^ 1] != NEVER  # from an ACK of the client
        has_anchor &= self._table.packets.reshape(-1)[stream] > 0
        first = []
        for number in (streams.syn_ack[stream].astype(np.int64), (isn[stream] + 1) % MODULO):
            wanted = _stream_and_number(sender, number)
            index = np.searchsorted(numbers[:-1], wanted)
            seen = np.where(numbers[index] == wanted, place[index], unseen)
            is_first = streams.has_origin[stream] & (streams.origin[stream] == number)
            is_first |= has_anchor & (streams.anchor[stream] == number)
            first.append(np.where(is_first, -1, seen))
        after_ack, after_syn = first[0], np.where(isn[stream] == NEVER, unseen, first[1])
        is_shown = after_ack < after_syn
        isn[stream[is_shown]] = streams.syn_ack[stream[is_shown]] - np.uint32(1)
        streams.has_syn_ack[stream[is_shown | (after_syn < unseen)]] = False

    def _number(self, pairs: Pairs) -> None:
        """Number this block's new connections by their first packets.

        Their rows were added pair by pair, and those of later incarnations last.
        """
        if not self._new:
            return
        table, new = self._table, np.concatenate(self._new)
        self._new = []
        begin = np.full(table.count, -1)
        begin[pairs.row] = pairs.first
        for incarnations in pairs.incarnations.values():
            for each in incarnations[1:]:
                begin[each.row] = each.begin
        order = new[np.argsort(begin[new], kind="stable")]
        before = table.count - len(new)
        is_unused = before == table.known  # no row is reused
        table.number[np.sort(order) if is_unused else order] = table.known + np.arange(len(new))
        table.known += len(new)
        if not is_unused or (np.diff(order) > 0).all():
            return
        numbers = table.number[before : table.count].copy()
        table.reorder(order)
        table.number[before : table.count] = numbers
        self._streams.reorder(order)
        number = np.arange(table.count)
        number[order] = before + np.arange(len(order))
        pairs.row[:] = number[pairs.row]
        for incarnations in pairs.incarnations.values():
            for each in incarnations:
                each.row = int(number[each.row])
        self.index.replace(pairs.key, pairs.row)


def _ends(block: PacketBlock) -> tuple[Endpoints, Endpoints]:
    """Source and target of each packet."""
    return (
        (block.src_high, block.src_low, block.src_port),
        (block.dst_high, block.dst_low, block.dst_port),
    )


def _stream_and_number(stream: Int64, number: Int64 | UInt32) -> Int64:
    """A stream and a sequence number as one integer."""
    return stream << 32 | number
