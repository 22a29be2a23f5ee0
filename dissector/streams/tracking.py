"""Tracking: which connection each packet belongs to.

A connection is a pair of addresses and ports, until a SYN with another initial sequence number
opens the same pair anew: then it is a new row. A SYN that comes again is a retransmission, and one
that comes a little late, behind data that it announces, still belongs to what it announces.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dissector.packets.block import ACK, FIN, RST, SYN, Int64, PacketBlock, UInt64
from dissector.streams.sequence import difference
from dissector.streams.table import FIN_SEEN, NEVER, OPEN, RST_SEEN, ConnectionTable

LATE_SYN = 1 << 20
"""Bytes that may be seen before the SYN that announces them, where packets are out of order."""

_MIX = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)


class Tracker:
    """Gives each packet its row of the table, and notes what headers alone tell."""

    def __init__(self, table: ConnectionTable) -> None:
        self._table = table
        self._rows: dict[tuple[int, ...], int] = {}

    def track(self, block: PacketBlock) -> tuple[Int64, Int64]:
        """Connection of each packet, and which end sent it; int64, shape (n,)."""
        end, ends = _ends(block)
        code, first = _codes(ends)
        rows = np.empty(len(first), np.int64)
        for index, packet in enumerate(first.tolist()):
            key = tuple(int(column[packet]) for column in ends)
            row = self._rows.get(key)
            if row is None:
                row = self._rows[key] = self._add(key, block, packet)
            rows[index] = row
        connection = rows[code] if len(code) else code
        for packet in np.flatnonzero(block.flags & SYN).tolist():
            self._syn(block, packet, int(end[packet]), connection, code, ends)
        self._count(block, connection, end)
        return connection, end

    def _add(self, key: tuple[int, ...], block: PacketBlock, packet: int) -> int:
        table = self._table
        row = table.add(1)
        table.high[row] = key[0], key[3]
        table.low[row] = key[1], key[4]
        table.port[row] = key[2], key[5]
        table.first_time[row] = table.last_time[row] = block.time[packet]
        table.capture[row], table.packet[row] = block.capture[packet], block.number[packet]
        return row

    def _syn(
        self, block: PacketBlock, packet: int, end: int, connection: Int64, code: Int64,
        ends: tuple[UInt64, ...],
    ) -> None:  # fmt: skip
        """Note a SYN; where it opens its pair anew, move the packets from here on to a new row."""
        table, row, isn = self._table, int(connection[packet]), int(block.seq[packet])
        known = int(table.isn[row, end])
        if known == isn:
            return
        if known != NEVER or self._has_other_traffic(block, packet, row, end, connection):
            key = tuple(int(column[packet]) for column in ends)
            table.replaced[row] = True
            row = self._rows[key] = self._add(key, block, packet)
            later = np.flatnonzero(code[packet:] == code[packet]) + packet
            connection[later] = row
        table.isn[row, end] = isn
        table.opened[row] = True
        if block.flags[packet] & ACK:
            table.client[row] = 1 - end
        else:
            table.client[row] = end
            table.syn_time[row] = block.time[packet]

    def _has_other_traffic(
        self, block: PacketBlock, packet: int, row: int, end: int, connection: Int64
    ) -> bool:
        """Whether what was seen of the row before this SYN cannot be what the SYN announces."""
        table = self._table
        if table.packets[row].any() or table.closed[row] != OPEN:
            return True  # of an earlier block
        before = np.flatnonzero(connection[:packet] == row)
        sent = before[block.src_port[before] == block.src_port[packet]]
        data = sent[block.length[sent] > 0]
        ahead = difference(block.seq[data], int(block.seq[packet]) + 1)
        return bool(((ahead < 0) | (ahead > LATE_SYN)).any())

    def _count(self, block: PacketBlock, connection: Int64, end: Int64) -> None:
        table, stream = self._table, 2 * connection + end
        size = 2 * table.count
        table.packets[: table.count] += np.bincount(stream, minlength=size).reshape(-1, 2)
        table.bytes[: table.count] += (
            np.bincount(stream, block.length, minlength=size).astype(np.int64).reshape(-1, 2)
        )
        np.maximum.at(table.last_time, connection, block.time)
        fin, rst = (np.flatnonzero(block.flags & flag) for flag in (FIN, RST))
        opens = table.closed[connection[fin]] == OPEN
        table.closed[connection[fin[opens]]] = FIN_SEEN
        table.closed[connection[rst]] = RST_SEEN
        self._handshakes(block, connection, end)

    def _handshakes(self, block: PacketBlock, connection: Int64, end: Int64) -> None:
        """The client's first packet after the SYN-ACK closes the round trip."""
        table = self._table
        mine = end == table.client[connection]
        plain = (block.flags & (SYN | ACK)) == ACK
        waits = (table.handshake == NEVER) & (table.syn_time != NEVER) & (table.isn >= 0).all(1)
        some = np.flatnonzero(mine & plain & waits[connection])
        row, first = np.unique(connection[some], return_index=True)
        table.handshake[row] = block.time[some[first]] - table.syn_time[row]


def _ends(block: PacketBlock) -> tuple[Int64, tuple[UInt64, ...]]:
    """Which end sent each packet, and both ends' address and port, the lower end first."""
    source = (block.src_high, block.src_low, block.src_port.astype(np.uint64))
    target = (block.dst_high, block.dst_low, block.dst_port.astype(np.uint64))
    above = np.zeros(len(block), np.bool_)
    equal = np.ones(len(block), np.bool_)
    for one, other in zip(source, target, strict=True):
        above |= equal & (one > other)
        equal &= one == other
    lower = tuple(np.where(above, b, a) for a, b in zip(source, target, strict=True))
    upper = tuple(np.where(above, a, b) for a, b in zip(source, target, strict=True))
    return above.astype(np.int64), lower + upper


def _codes(columns: tuple[UInt64, ...]) -> tuple[Int64, Int64]:
    """A small number for each distinct row, and the first row of each number."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column, factor in zip(columns, (_MIX * 2), strict=False):
        mixed = (mixed ^ column) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(29)
    codes = pa.array(mixed).dictionary_encode().indices.to_numpy().astype(np.int64)
    first = _first(codes)
    if all((column == column[first][codes]).all() for column in columns):
        return codes, first
    # Two pairs share a number: rare by chance, but addresses can be chosen so.
    _, codes = np.unique(np.stack(columns, 1), axis=0, return_inverse=True)
    codes = codes.reshape(-1).astype(np.int64)
    return codes, _first(codes)


def _first(codes: Int64) -> Int64:
    first = np.zeros(int(codes.max()) + 1 if len(codes) else 0, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first
