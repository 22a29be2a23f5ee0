"""Tracking: which connection, and which of its two streams, a packet belongs to.

The pairs of endpoints in a block become small codes. A `PairIndex` has the connection of each pair.
Python takes a step for each pair only where a pair has several connections in one block.

A port pair that is used again is a new connection. What tells it is a SYN with another initial
sequence number (a repeated SYN has the same one), from either end, since a capture may have one
direction only. Where connections of one pair meet in a block, packets go by arrival, and by
sequence number where they are out of place: what lies before the new SYN belongs to the old
connection, although it came later. Where the SYN is not in the capture, a jump of the sequence
numbers tells the same, after the old connection was closed or has long been silent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dissector import kernel
from dissector.packets.block import ACK, FIN, RST, SYN, Int64, PacketBlock, UInt64
from dissector.streams import sequence
from dissector.streams.limits import (
    GRACE,
    PATIENCE,
    REORDER_BYTES,
    REORDER_PACKETS,
    WINDOW_AHEAD,
    WINDOW_BEHIND,
)
from dissector.streams.pair_index import PairIndex, hashes, source_of, target_of
from dissector.streams.table import (
    FIN_SEEN,
    FIRST_TIME,
    IGNORED,
    LAST_TIME,
    NEVER,
    NEW,
    OPEN,
    RST_SEEN,
    Bools,
    ConnectionTable,
    StreamTable,
)

_MODULO = 1 << 32

_PLAIN = 3
"""Events that a pair may have in a block to be followed with all others at once."""

_LOOK_BACK = 2
"""A late SYN may be of the connection before the newest one of its pair."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where the packets of a block belong.

    A local stream number is ``2 * index in rows + end``: small, dense, in order of connection.
    """

    rows: Int64
    """All connections in question, ascending."""
    slot: Int64
    """Local stream of each packet; shape (n,)."""

    @property
    def streams(self) -> Int64:
        """The stream of each local stream number; shape (2 * rows,)."""
        return (2 * self.rows[:, None] + np.arange(2)).ravel()


@dataclass(slots=True)
class _Incarnation:
    """One of the connections that a port pair has in a block. Lists are by end."""

    row: int
    begin: int
    """Index of its first packet; -1 where it is older than the block."""
    isn: list[int | None]
    anchor: list[int | None]
    """Another sequence number of it."""

    def owns(self, end: int, isn: int, acknowledged: int | None) -> bool:
        """Whether a SYN is of this connection."""
        mine, other, anchor = self.isn[end], self.isn[1 - end], self.anchor[end]
        if mine is not None:
            return mine == isn
        if acknowledged is not None and other is not None:
            return (other + 1) % _MODULO == acknowledged
        return anchor is None or (anchor - isn - 1) % _MODULO <= REORDER_BYTES


@dataclass(slots=True)
class _Pairs:
    """The port pairs of a block."""

    key: UInt64
    """Hash of the two endpoints of each pair."""
    code: Int64
    """Pair of each packet."""
    end: Int64
    """0 or 1: the sender."""
    row: Int64
    """Connection that each pair had when the block began, or that its first packet began."""
    first: Int64
    """Index of the first packet of each pair."""
    incarnations: dict[int, list[_Incarnation]] = field(default_factory=dict)
    """Of the pairs that had an event in this block: oldest first."""


class FlowTracker:
    """Gives each packet its stream, adds rows for new connections, counts what headers tell."""

    def __init__(
        self, table: ConnectionTable, streams: StreamTable,
        restore: Callable[[Int64], None] = lambda rows: None,
    ) -> None:  # fmt: skip
        """`restore` is called with rows that are about to be read."""
        self._restore = restore
        self._table = table
        self._streams = streams
        self._current = PairIndex()
        self._new: list[Int64] = []  # rows of connections that have no number yet

    def forget(self, rows: Int64) -> None:
        """Let go of these connections; what comes of one of them begins another."""
        self._current.forget(rows)

    def assign(self, block: PacketBlock, also: Int64) -> Assignment:
        """Where the packets of a block belong. `also`: more rows to give local streams to."""
        if not len(block):
            return Assignment(np.unique(also), np.zeros(0, np.int64))
        pairs = self._pairs(block)
        self._find_incarnations(block, pairs)
        self._number(pairs)
        several = {code: each for code, each in pairs.incarnations.items() if len(each) > 1}
        later = [each.row for some in several.values() for each in some]
        rows = np.unique(np.concatenate([pairs.row, np.array(later, np.int64), also]))
        slot = (2 * np.searchsorted(rows, pairs.row))[pairs.code] + pairs.end
        if several:
            index, row = self._by_incarnation(block, pairs, several)
            slot[index] = 2 * np.searchsorted(rows, row) + pairs.end[index]
        assignment = Assignment(rows, slot)
        self._count(block, assignment)
        return assignment

    # Pairs

    def _pairs(self, block: PacketBlock) -> _Pairs:
        """Number the pairs in order of appearance; find or add their connections."""
        code, turned, first = _pair_codes(block)
        source, target = (
            (high[first], low[first], port[first])
            for high, low, port in (source_of(block), target_of(block))
        )
        key, is_larger = hashes(source, target, self._current.key)
        row = self._current.find(key)
        self._restore(row[row >= 0])
        end = (is_larger[code] ^ turned).astype(np.int64)
        pairs = _Pairs(key, code, end, row, first)
        unknown = np.flatnonzero(row < 0)
        if len(unknown):
            row[unknown] = self._open(block, first[unknown], end[first[unknown]])
            self._current.add(key[unknown], row[unknown])
        return pairs

    def _open(self, block: PacketBlock, packet: Int64, end: Int64) -> Int64:
        """Add a row for each of these first packets, sent by these ends."""
        table, streams = self._table, self._streams
        rows = table.claim(len(packet))
        streams.add(table.count - streams.count)
        self._new.append(rows)
        for stream_ids, high, low, port in (
            (end, block.src_high, block.src_low, block.src_port),
            (end ^ 1, block.dst_high, block.dst_low, block.dst_port),
        ):
            table.high[rows, stream_ids] = high[packet]
            table.low[rows, stream_ids] = low[packet]
            table.port[rows, stream_ids] = port[packet]
        table.capture[rows] = block.capture[packet]
        table.packet[rows] = block.number[packet]
        flags = block.flags[packet]
        good = flags & RST == 0  # a RST may have any number
        streams.anchor[rows, end] = block.seq[packet] + (flags & SYN != 0)
        streams.has_anchor[rows, end] = good
        streams.anchor[rows, end ^ 1] = block.ack[packet]
        streams.has_anchor[rows, end ^ 1] = good & (flags & ACK != 0)
        return rows

    # Generations

    def _find_incarnations(self, block: PacketBlock, pairs: _Pairs) -> None:
        """Add the connections that begin in this block on pairs that had one before."""
        is_syn = block.flags & SYN != 0
        event = np.union1d(np.flatnonzero(is_syn), self._find_jumps(block, pairs))
        if not len(event):
            return
        followed, opened = self._follow_syns(block, pairs, event, is_syn)
        event = event[~followed]
        self._load_incarnations(pairs, event)
        added: list[tuple[int, _Incarnation]] = []
        columns = (
            event, pairs.code[event], pairs.end[event], is_syn[event],
            block.flags[event] & ACK != 0, block.seq[event], block.ack[event],
        )  # fmt: skip
        several: list[tuple[int, _Incarnation]] = []
        for index, code, end, syn, has_ack, isn, ack in zip(
            *(each.tolist() for each in columns), strict=True
        ):
            incarnations = pairs.incarnations[code]
            acknowledged = ack if has_ack else None
            for owner in incarnations[: -1 - _LOOK_BACK : -1]:
                if owner.owns(end, isn, acknowledged) if syn else owner.begin >= 0:
                    break
            else:
                owner = _Incarnation(-1, index, [None, None], [None, None])
                incarnations.append(owner)
                added.append((code, owner))
            if syn:
                owner.isn[end] = isn
                owner.anchor[1 - end] = acknowledged
                several.append((index, owner))
        if added:
            self._add_incarnations(block, pairs, added)
        packet = np.concatenate([opened, np.array([index for index, _ in several], np.int64)])
        row = np.concatenate(
            [pairs.row[pairs.code[opened]], np.array([each.row for _, each in several], np.int64)]
        )
        if len(packet):
            order = np.argsort(packet)
            self._note_handshakes(block, pairs, packet[order], row[order])

    def _follow_syns(
        self, block: PacketBlock, pairs: _Pairs, event: Int64, is_syn: Bools
    ) -> tuple[Bools, Int64]:
        """Follow the SYNs of pairs that have one connection in this block: mostly a SYN and its
        answer. Which events are done with; and the SYNs among them.

        Does for all pairs at once what `_Incarnation.owns` does for one.
        """
        code = pairs.code[event]
        _, slot, count = np.unique(code, return_inverse=True, return_counts=True)
        rows = pairs.row[code[_first_indices(slot)]]
        isn, anchor = self._table.isn[rows], self._streams.anchor[rows].astype(np.int64)
        anchored = self._streams.has_anchor[rows]
        is_plain = (count <= _PLAIN) & (np.bincount(slot, ~is_syn[event]) == 0)
        order = np.argsort(slot, kind="stable")
        first = np.cumsum(count) - count
        for turn in range(_PLAIN):
            pair = np.flatnonzero(is_plain & (count > turn))
            packet = event[order[first[pair] + turn]]
            end, has_ack = pairs.end[packet], block.flags[packet] & ACK != 0
            seq, ack = block.seq[packet].astype(np.int64), block.ack[packet].astype(np.int64)
            own, other = isn[pair, end], isn[pair, 1 - end]
            near = (anchor[pair, end] - seq - 1) % _MODULO <= REORDER_BYTES
            owns = np.where(has_ack & (other != NEVER), (other + 1) % _MODULO == ack,
                            ~anchored[pair, end] | near)  # fmt: skip
            is_plain[pair] = np.where(own != NEVER, own == seq, owns)
            isn[pair, end] = seq
            anchor[pair, 1 - end], anchored[pair, 1 - end] = ack, has_ack
        followed = is_plain[slot]
        return followed, event[followed]

    def _find_jumps(self, block: PacketBlock, pairs: _Pairs) -> Int64:
        """Packets that cannot be of their pair's connection, which was closed or long silent."""
        table, streams = self._table, self._streams
        last = table.last_time[pairs.row]
        stale = (table.closed[pairs.row] != OPEN) | (last < block.time[0] - PATIENCE)
        stale &= last != FIRST_TIME
        if not stale.any():
            return np.zeros(0, np.int64)
        packet = np.flatnonzero(stale[pairs.code] & (block.length > 0))
        stream = 2 * pairs.row[pairs.code[packet]] + pairs.end[packet]
        stream, first = np.unique(stream, return_index=True)
        packet = packet[first]
        expected = sequence.numbers(
            streams.flat("next_position")[stream], streams.flat("origin")[stream]
        )
        ahead = sequence.ahead(block.seq[packet], expected)
        followed = ~np.isin(streams.flat("state")[stream], (NEW, IGNORED))
        outside: Int64 = packet[followed & ((ahead > WINDOW_AHEAD) | (ahead < -WINDOW_BEHIND))]
        return outside

    def _load_incarnations(self, pairs: _Pairs, event: Int64) -> None:
        """What is known of the connections that the pairs of these events have so far."""
        codes = np.unique(pairs.code[event])
        rows = pairs.row[codes]
        isn, streams = self._table.isn[rows], self._streams
        columns = (codes, rows, isn != NEVER, isn, streams.has_anchor[rows], streams.anchor[rows])
        for code, row, known, isns, anchored, anchor in zip(
            *(each.tolist() for each in columns), strict=True
        ):
            pairs.incarnations[code] = [
                _Incarnation(row, -1, _where(known, isns), _where(anchored, anchor))
            ]

    def _add_incarnations(
        self, block: PacketBlock, pairs: _Pairs, added: list[tuple[int, _Incarnation]]
    ) -> None:
        """Give rows to new connections; those before them on their pairs are over."""
        begin = np.array([each.begin for _, each in added], np.int64)
        rows = self._open(block, begin, pairs.end[begin])
        newest: dict[int, int] = {}
        for (code, each), row in zip(added, rows.tolist(), strict=True):
            each.row = row
            before = newest.get(code, int(pairs.row[code]))
            newest[code] = row
            self._table.replaced[before] = True
            over = self._streams.close_deadline[before]
            np.minimum(over, block.time[each.begin] + GRACE, out=over)
        self._set_current(pairs)

    def _set_current(self, pairs: _Pairs) -> None:
        """The newest connection of each pair with several ones is what its next packets go to."""
        codes = list(pairs.incarnations)
        rows = np.array([pairs.incarnations[code][-1].row for code in codes], np.int64)
        self._current.replace(pairs.key[codes], rows)

    def _note_handshakes(
        self, block: PacketBlock, pairs: _Pairs, packet: Int64, row: Int64
    ) -> None:
        """Keep what the SYNs of these connections show: where streams begin, and the client."""
        table = self._table
        end = pairs.end[packet]
        table.isn[row, end] = block.seq[packet]
        table.opened[row] = True
        answers = block.flags[packet] & ACK != 0
        # An answer tells what it answers, which may be lost, if what follows has that number, too.
        alone = answers & (table.isn[row, 1 - end] == NEVER)
        if alone.any():
            answer, told = packet[alone], block.ack[packet[alone]]
            streams = pairs.code.astype(np.int64) << 1 | pairs.end
            said = streams << 32 | block.seq
            alone[alone] = follows = np.isin((streams[answer] ^ 1) << 32 | told, said)
            isn = (told[follows] - np.uint32(1)).astype(np.int64)
            table.isn[row[alone], 1 - end[alone]] = isn
        table.client[row] = end ^ answers
        table.syn_time[row[~answers]] = block.time[packet[~answers]]

    def _by_incarnation(
        self, block: PacketBlock, pairs: _Pairs, several: dict[int, list[_Incarnation]]
    ) -> tuple[Int64, Int64]:
        """The packets of pairs with several connections, and the connection of each."""
        flat = [(code, each.begin, each.row) for code in sorted(several) for each in several[code]]
        owner, begin, row = np.array(flat, np.int64).T
        chosen = np.zeros(len(pairs.row), np.bool_)
        chosen[owner] = True
        index = np.flatnonzero(chosen[pairs.code])
        code, end, seq = pairs.code[index], pairs.end[index], block.seq[index]
        width = len(block) + 1
        found = np.searchsorted(owner * width + begin + 1, code * width + index + 1, "right") - 1
        plain = block.flags[index] & SYN == 0
        isn = self._table.isn[row]

        def ahead(of: Int64) -> tuple[Bools, Int64, Bools]:
            """Whether a connection's SYN is known, how far behind it, and whether that fits."""
            first = isn[of, end] + 1
            distance = sequence.ahead(seq, first.astype(np.uint32))
            known = first > 0
            return known, distance, known & (distance >= 0) & (distance <= REORDER_BYTES)

        known, distance, fits = ahead(found)
        before = np.maximum(found - 1, 0)
        late = (owner[before] == code) & (before < found) & known & ~fits & plain
        late &= index - begin[found] <= REORDER_PACKETS
        after = np.minimum(found + 1, len(row) - 1)
        _, next_distance, early = ahead(after)
        early &= (owner[after] == code) & (after > found) & plain
        early &= begin[after] - index <= REORDER_PACKETS
        stream = 2 * row[found] + end
        has_begun = self._streams.flat("state")[stream] != NEW
        expected = sequence.numbers(
            self._streams.flat("next_position")[stream], self._streams.flat("origin")[stream]
        )
        own = np.abs(np.where(has_begun, sequence.ahead(seq, expected), distance))
        early &= (next_distance < own) | ~(known | has_begun)
        return index, row[np.where(early, after, np.where(late, before, found))]

    def _number(self, pairs: _Pairs) -> None:
        """Number this block's connections by their first packets.

        They were added pair by pair, those on pairs that had one before last.
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
        fresh = before == table.known  # no row served another connection before
        table.number[np.sort(order) if fresh else order] = table.known + np.arange(len(new))
        table.known += len(new)
        if not fresh or (np.diff(order) > 0).all():
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
        self._current.replace(pairs.key, pairs.row)
        self._set_current(pairs)

    # Counts

    def _count(self, block: PacketBlock, assignment: Assignment) -> None:
        table, rows, slot = self._table, assignment.rows, assignment.slot
        size, row = 2 * len(rows), slot >> 1
        table.packets[rows] += np.bincount(slot, minlength=size).reshape(-1, 2)
        sent = np.bincount(slot, block.length, minlength=size)
        table.bytes[rows] += sent.astype(np.int64).reshape(-1, 2)
        for column, time, extreme in (
            (table.first_time, LAST_TIME, np.minimum), (table.last_time, FIRST_TIME, np.maximum)
        ):  # fmt: skip
            found = np.full(len(rows), time)
            extreme.at(found, row, block.time)
            column[rows] = extreme(column[rows], found)
        ends = np.flatnonzero(block.flags & (FIN | RST))
        if len(ends):
            self._ends(block, ends, rows[row[ends]])
        if (table.handshake[rows] == NEVER).any():
            self._handshakes(block, assignment)

    def _ends(self, block: PacketBlock, packet: Int64, row: Int64) -> None:
        """FIN and RST: how a connection ended, and until when late packets may come."""
        table = self._table
        is_rst = block.flags[packet] & RST != 0
        table.closed[row[is_rst]] = RST_SEEN
        fin = row[~is_rst]
        table.closed[fin] = np.maximum(table.closed[fin], FIN_SEEN)
        over = block.time[packet] + np.where(is_rst, GRACE, PATIENCE)
        for end in (0, 1):
            np.minimum.at(self._streams.close_deadline[:, end], row, over)

    def _handshakes(self, block: PacketBlock, assignment: Assignment) -> None:
        """The client's ACK right behind its SYN ends the handshake."""
        table, rows = self._table, assignment.rows
        client = table.client[rows]
        waits = (table.handshake[rows] == NEVER) & (table.syn_time[rows] != NEVER) & (client >= 0)
        if not waits.any():
            return
        first = (table.isn[rows, client] + 1).astype(np.uint32)
        row = assignment.slot >> 1
        plain = block.flags & (SYN | ACK | RST) == ACK
        some = np.flatnonzero(plain & waits[row] & (assignment.slot & 1 == client[row]))
        some = some[block.seq[some] == first[row[some]]]
        trip = block.time[some] - table.syn_time[rows[row[some]]]
        some, trip = some[trip >= 0], trip[trip >= 0]
        ended, first_one = np.unique(row[some], return_index=True)
        table.handshake[rows[ended]] = trip[first_one]


def _pair_codes(block: PacketBlock) -> tuple[Int64, Bools, Int64]:
    """A code for each pair of endpoints, in order of appearance; whether each packet goes against
    its pair's first one; and the index of that, of each pair."""
    if kernel.COMPILED:
        code, first = np.empty((2, len(block)), np.int64)
        turned = np.empty(len(block), np.bool_)
        count = kernel.loops.find_pairs(
            block.src_high, block.src_low, block.src_port,
            block.dst_high, block.dst_low, block.dst_port, kernel.HASH_KEY, code, turned, first,
        )  # fmt: skip
        return code, turned, first[:count]
    key, is_larger = hashes(source_of(block), target_of(block), kernel.HASH_KEY)
    _, first, code = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    code, first = place[code], first[order]
    return code, is_larger != is_larger[first][code], first


def _first_indices(slot: Int64) -> Int64:
    """Index of the first appearance of each of the numbers from 0 on."""
    first = np.empty(int(slot.max(initial=-1)) + 1, np.int64)
    first[slot[::-1]] = np.arange(len(slot) - 1, -1, -1)  # the last assignment stays
    return first


def _where(known: list[bool], values: list[int]) -> list[int | None]:
    return [value if there else None for there, value in zip(known, values, strict=True)]
