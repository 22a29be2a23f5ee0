"""Tracking: which connection, and which of its two streams, a packet belongs to.

Packets are told apart by their endpoints, exactly: an IPv4 address and port are one 64-bit number
as they are, other addresses are numbered as they appear. The pairs of a block become small codes,
by dictionary encodings or by the compiled loop; from then on Python looks at each pair once.

A port pair that is used again is a new connection. What tells it is a SYN with another initial
sequence number (a repeated SYN has the same one), from either end, since a capture may have one
direction only. Where connections of one pair meet in a block, packets go by arrival, and by
sequence number where they are out of place: what lies before the new SYN belongs to the old
connection, although it came later. Where the SYN is not in the capture, a jump of the sequence
numbers tells the same, after the old connection was closed or has long been silent.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dissector import kernel
from dissector.packets.block import ACK, FIN, RST, SYN, Int64, PacketBlock, UInt16, UInt64
from dissector.streams import sequence
from dissector.streams.limits import (
    GRACE,
    PATIENCE,
    REORDER_BYTES,
    REORDER_PACKETS,
    WINDOW_AHEAD,
    WINDOW_BEHIND,
)
from dissector.streams.table import (
    FIN_SEEN,
    FIRST_TIME,
    IGNORED,
    LAST_TIME,
    NEVER,
    OPEN,
    RST_SEEN,
    Bools,
    ConnectionTable,
    StreamTable,
)

_MODULO = 1 << 32

_LOOK_BACK = 2
"""A late SYN may be of the connection before the newest one of its pair."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where the packets of a block belong.

    A local stream number is ``2 * index in rows + end``: small, dense, in order of connection.
    """

    rows: Int64
    """All connections in question, ascending."""
    local: Int64
    """Local stream of each packet; shape (n,)."""

    @property
    def streams(self) -> Int64:
        """The stream of each local stream number; shape (2 * rows,)."""
        return (2 * self.rows[:, None] + np.arange(2)).ravel()


@dataclass(slots=True)
class _Generation:
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

    key: list[tuple[int, int]]
    """The two endpoints of each pair, the smaller one first."""
    code: Int64
    """Pair of each packet."""
    end: Int64
    """0 or 1: the sender."""
    row: Int64
    """Connection that each pair had when the block began, or that its first packet began."""
    first: Int64
    """Index of the first packet of each pair."""
    generations: dict[int, list[_Generation]] = field(default_factory=dict)
    """Of the pairs that had an event in this block: oldest first."""


class Tracker:
    """Gives each packet its stream, adds rows for new connections, counts what headers tell."""

    def __init__(self, table: ConnectionTable, streams: StreamTable) -> None:
        self._table = table
        self._streams = streams
        self._current: dict[tuple[int, int], int] = {}
        self._addresses: dict[tuple[int, int], int] = {}
        self._new: list[Int64] = []  # rows of connections that have no number yet

    def forget(self, rows: Int64) -> None:
        """Let go of these connections; what comes of one of them begins another."""
        gone = set(rows.tolist())
        self._current = {key: row for key, row in self._current.items() if row not in gone}

    def assign(self, block: PacketBlock, also: Int64) -> Assignment:
        """Where the packets of a block belong. `also`: more rows to give local streams to."""
        if not len(block):
            return Assignment(np.unique(also), np.zeros(0, np.int64))
        pairs = self._pairs(block)
        self._find_generations(block, pairs)
        self._number(pairs)
        several = {code: each for code, each in pairs.generations.items() if len(each) > 1}
        later = [each.row for some in several.values() for each in some]
        rows = np.unique(np.concatenate([pairs.row, np.array(later, np.int64), also]))
        local = (2 * np.searchsorted(rows, pairs.row))[pairs.code] + pairs.end
        if several:
            index, row = self._by_generation(block, pairs, several)
            local[index] = 2 * np.searchsorted(rows, row) + pairs.end[index]
        assignment = Assignment(rows, local)
        self._count(block, assignment)
        return assignment

    # Pairs

    def _pairs(self, block: PacketBlock) -> _Pairs:
        """Number the pairs in order of appearance; find or add their connections."""
        code, turned, first = _alike(block)
        source = self._endpoints(block.src_high[first], block.src_low[first], block.src_port[first])
        target = self._endpoints(block.dst_high[first], block.dst_low[first], block.dst_port[first])
        ends = np.sort([source, target], axis=0)
        keys = list(zip(*ends.tolist(), strict=True))
        row = np.array([self._current.get(key, -1) for key in keys], np.int64)
        end = ((source > target)[code] ^ turned).astype(np.int64)
        pairs = _Pairs(keys, code, end, row, first)
        unknown = np.flatnonzero(row < 0)
        if len(unknown):
            row[unknown] = self._open(block, first[unknown], end[first[unknown]])
            self._current.update((keys[each], int(row[each])) for each in unknown.tolist())
        return pairs

    def _endpoints(self, high: UInt64, low: UInt64, port: UInt16) -> UInt64:
        """One number for each address and port."""
        number: UInt64 = (low << np.uint64(16)) | port
        plain = (high == 0) & (low >> np.uint64(32) == 0xFFFF)  # IPv4: what is lost is constant
        if not plain.all():
            other = np.flatnonzero(~plain)
            number[other] = (self._numbered(high[other], low[other]) << np.uint64(16)) | port[other]
        return number

    def _numbered(self, high: UInt64, low: UInt64) -> UInt64:
        """A number below 2^48 for each address that is not IPv4."""
        known = self._addresses
        addresses = zip(high.tolist(), low.tolist(), strict=True)
        return np.array([known.setdefault(each, len(known)) for each in addresses], np.uint64)

    def _open(self, block: PacketBlock, packet: Int64, end: Int64) -> Int64:
        """Add a row for each of these first packets, sent by these ends."""
        table, streams = self._table, self._streams
        rows = table.claim(len(packet))
        streams.add(table.count - streams.count)
        self._new.append(rows)
        for who, high, low, port in (
            (end, block.src_high, block.src_low, block.src_port),
            (end ^ 1, block.dst_high, block.dst_low, block.dst_port),
        ):
            table.high[rows, who] = high[packet]
            table.low[rows, who] = low[packet]
            table.port[rows, who] = port[packet]
        table.capture[rows] = block.capture[packet]
        table.packet[rows] = block.number[packet]
        flags = block.flags[packet]
        good = flags & RST == 0  # a RST may have any number
        streams.anchor[rows, end] = block.seq[packet] + (flags & SYN != 0)
        streams.anchored[rows, end] = good
        streams.anchor[rows, end ^ 1] = block.ack[packet]
        streams.anchored[rows, end ^ 1] = good & (flags & ACK != 0)
        return rows

    # Generations

    def _find_generations(self, block: PacketBlock, pairs: _Pairs) -> None:
        """Add the connections that begin in this block on pairs that had one before."""
        is_syn = block.flags & SYN != 0
        event = np.union1d(np.flatnonzero(is_syn), self._jumps(block, pairs))
        if not len(event):
            return
        self._load_generations(pairs, event)
        added: list[tuple[int, _Generation]] = []
        opened: list[tuple[int, _Generation]] = []
        columns = (
            event, pairs.code[event], pairs.end[event], is_syn[event],
            block.flags[event] & ACK != 0, block.seq[event], block.ack[event],
        )  # fmt: skip
        for index, code, end, syn, has_ack, isn, ack in zip(
            *(each.tolist() for each in columns), strict=True
        ):
            generations = pairs.generations[code]
            acknowledged = ack if has_ack else None
            for owner in generations[: -1 - _LOOK_BACK : -1]:
                if owner.owns(end, isn, acknowledged) if syn else owner.begin >= 0:
                    break
            else:
                owner = _Generation(-1, index, [None, None], [None, None])
                generations.append(owner)
                added.append((code, owner))
            if syn:
                owner.isn[end] = isn
                owner.anchor[1 - end] = acknowledged
                opened.append((index, owner))
        if added:
            self._add_generations(block, pairs, added)
        if opened:
            self._note_handshakes(block, pairs, opened)

    def _jumps(self, block: PacketBlock, pairs: _Pairs) -> Int64:
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
            streams.flat("expected")[stream], streams.flat("origin")[stream]
        )
        ahead = sequence.ahead(block.seq[packet], expected)
        followed = streams.flat("begun")[stream] & (streams.flat("sync")[stream] != IGNORED)
        outside: Int64 = packet[followed & ((ahead > WINDOW_AHEAD) | (ahead < -WINDOW_BEHIND))]
        return outside

    def _load_generations(self, pairs: _Pairs, event: Int64) -> None:
        """What is known of the connections that the pairs of these events have so far."""
        codes = np.unique(pairs.code[event])
        rows = pairs.row[codes]
        isn, streams = self._table.isn[rows], self._streams
        columns = (codes, rows, isn != NEVER, isn, streams.anchored[rows], streams.anchor[rows])
        for code, row, known, isns, anchored, anchor in zip(
            *(each.tolist() for each in columns), strict=True
        ):
            pairs.generations[code] = [
                _Generation(row, -1, _where(known, isns), _where(anchored, anchor))
            ]

    def _add_generations(
        self, block: PacketBlock, pairs: _Pairs, added: list[tuple[int, _Generation]]
    ) -> None:
        """Give rows to new connections; those before them on their pairs are over."""
        begin = np.array([each.begin for _, each in added], np.int64)
        rows = self._open(block, begin, pairs.end[begin])
        for (code, each), row in zip(added, rows.tolist(), strict=True):
            each.row = row
            before = self._current[pairs.key[code]]
            self._table.replaced[before] = True
            over = self._streams.over[before]
            np.minimum(over, block.time[each.begin] + GRACE, out=over)
            self._current[pairs.key[code]] = row

    def _note_handshakes(
        self, block: PacketBlock, pairs: _Pairs, opened: list[tuple[int, _Generation]]
    ) -> None:
        """Keep what SYNs tell: where streams begin, and who is the client."""
        table = self._table
        packet = np.array([index for index, _ in opened], np.int64)
        row = np.array([each.row for _, each in opened], np.int64)
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

    def _by_generation(
        self, block: PacketBlock, pairs: _Pairs, several: dict[int, list[_Generation]]
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
        begun = self._streams.flat("begun")[stream]
        expected = sequence.numbers(
            self._streams.flat("expected")[stream], self._streams.flat("origin")[stream]
        )
        own = np.abs(np.where(begun, sequence.ahead(seq, expected), distance))
        early &= (next_distance < own) | ~(known | begun)
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
        for generations in pairs.generations.values():
            for each in generations[1:]:
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
        for generations in pairs.generations.values():
            for each in generations:
                each.row = int(number[each.row])
        self._current.update((key, int(number[self._current[key]])) for key in pairs.key)

    # Counts

    def _count(self, block: PacketBlock, assignment: Assignment) -> None:
        table, rows, local = self._table, assignment.rows, assignment.local
        size, row = 2 * len(rows), local >> 1
        table.packets[rows] += np.bincount(local, minlength=size).reshape(-1, 2)
        sent = np.bincount(local, block.length, minlength=size)
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
            np.minimum.at(self._streams.over[:, end], row, over)

    def _handshakes(self, block: PacketBlock, assignment: Assignment) -> None:
        """The client's ACK right behind its SYN ends the handshake."""
        table, rows = self._table, assignment.rows
        client = table.client[rows]
        waits = (table.handshake[rows] == NEVER) & (table.syn_time[rows] != NEVER) & (client >= 0)
        if not waits.any():
            return
        first = (table.isn[rows, client] + 1).astype(np.uint32)
        row = assignment.local >> 1
        plain = block.flags & (SYN | ACK | RST) == ACK
        some = np.flatnonzero(plain & waits[row] & (assignment.local & 1 == client[row]))
        some = some[block.seq[some] == first[row[some]]]
        trip = np.full(len(rows), LAST_TIME)
        np.minimum.at(trip, row[some], block.time[some] - table.syn_time[rows[row[some]]])
        ended = np.flatnonzero((trip != LAST_TIME) & (trip >= 0))
        table.handshake[rows[ended]] = trip[ended]


def _alike(block: PacketBlock) -> tuple[Int64, Bools, Int64]:
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
    both = (("src_high", "dst_high"), ("src_low", "dst_low"), ("src_port", "dst_port"))
    high, low, port = (
        np.concatenate([getattr(block, name) for name in names]).astype(np.uint64) for names in both
    )
    endpoint = _encode(_encode(high) << np.uint64(32) | _encode(low)) << np.uint64(16) | port
    endpoint = _encode(endpoint)
    source, target = endpoint[: len(block)], endpoint[len(block) :]
    smaller, larger = np.minimum(source, target), np.maximum(source, target)
    code = _encode(smaller << np.uint64(32) | larger).astype(np.int64)
    first = np.empty(int(code.max(initial=-1)) + 1, np.int64)
    first[code[::-1]] = np.arange(len(block) - 1, -1, -1)  # the last assignment stays
    return code, source != source[first][code], first


def _where(known: list[bool], values: list[int]) -> list[int | None]:
    return [value if there else None for there, value in zip(known, values, strict=True)]


def _encode(values: UInt64) -> UInt64:
    """A code for each value, in order of appearance."""
    # Through buffers: pa.array and to_numpy would import pandas.
    array = pa.Array.from_buffers(pa.uint64(), len(values), [None, pa.py_buffer(values)])
    codes = array.dictionary_encode().indices.buffers()[1]
    return np.frombuffer(codes, np.int32, len(values)).astype(np.uint64)
