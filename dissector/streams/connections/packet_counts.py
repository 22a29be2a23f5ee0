"""PacketCounts: packets, bytes and times of connections, their handshakes, and how they close."""

from __future__ import annotations

import numpy as np

from dissector import _native
from dissector.packets.block import ACK, FIN, RST, SYN, Int64, PacketBlock
from dissector.streams.connections.flows import Assignment
from dissector.streams.connections.table import (
    FIN_SEEN,
    LAST_TIME,
    NEVER,
    RST_SEEN,
    ConnectionTable,
    StreamTable,
    streams_at,
)
from dissector.streams.limits import GRACE, PATIENCE


class PacketCounts:
    """Counts the packets of all connections, block by block."""

    def __init__(self, table: ConnectionTable, streams: StreamTable) -> None:
        self._table = table
        self._streams = streams

    def count(self, block: PacketBlock, assignment: Assignment) -> None:
        """Count the packets of a block, and record how they open and close connections."""
        table, rows = self._table, assignment.rows
        packets, sent = table.packets[rows], table.bytes[rows]
        first, last = table.first_time[rows], table.last_time[rows]
        _native.count_packets(
            assignment.slot, block.length, block.time, packets.reshape(-1), sent.reshape(-1),
            first, last,
        )  # fmt: skip
        table.packets[rows], table.bytes[rows] = packets, sent
        table.first_time[rows], table.last_time[rows] = first, last
        acknowledging = np.flatnonzero(block.flags & (ACK | RST) == ACK)
        latest = np.full(len(assignment.streams), -1)
        latest[assignment.slot[acknowledging]] = acknowledging  # the last one wins
        receiver = np.flatnonzero(latest >= 0)
        acks = block.ack[latest[receiver]]
        self._streams.receiver_ack[assignment.streams[receiver] ^ 1] = acks
        closing = np.flatnonzero(block.flags & (FIN | RST))
        if len(closing):
            self._record_closes(block, closing, rows[assignment.slot[closing] >> 1])
        # A connection that one end has closed may continue (RFC 9293, section 3.6): it is over when
        # it is idle. If packets follow a RST beyond its deadline, the RST was damaged.
        deadline = self._streams.close_deadline.reshape(-1, 2)  # by end
        idle = rows[(table.closed[rows] == FIN_SEEN) & ~table.replaced[rows]]
        deadline[idle] = table.last_time[idle, None] + PATIENCE
        reset = rows[(table.closed[rows] & RST_SEEN != 0) & ~table.replaced[rows]]
        deadline[reset[deadline[reset].min(axis=1) < table.last_time[reset]]] = LAST_TIME
        if (table.handshake[rows] == NEVER).any():
            self._measure_handshakes(block, assignment)

    def _record_closes(self, block: PacketBlock, packet: Int64, row: Int64) -> None:
        """Record how FIN and RST close connections, and until when late packets may arrive after a
        RST."""
        table = self._table
        is_rst = block.flags[packet] & RST != 0
        reset, fin = row[is_rst], row[~is_rst]
        table.closed[reset] |= RST_SEEN
        table.closed[fin] |= FIN_SEEN
        deadline = np.repeat(block.time[packet[is_rst]] + GRACE, 2)
        np.minimum.at(self._streams.close_deadline, streams_at(reset), deadline)

    def _measure_handshakes(self, block: PacketBlock, assignment: Assignment) -> None:
        """Measure the time from each SYN to the client's ACK directly after it, which arrives
        later. Of several SYNs, the last one before the ACK counts."""
        table, rows = self._table, assignment.rows
        client = table.client[rows]
        isn = table.isn[rows, client]
        waits = (table.handshake[rows] == NEVER) & (client >= 0) & (isn != NEVER)
        if not waits.any():
            return
        is_sender = np.zeros((len(rows), 2), np.bool_)
        is_sender[waits, client[waits]] = True
        sent = np.flatnonzero(is_sender.ravel()[assignment.slot])
        flags, slot = block.flags[sent], assignment.slot[sent] >> 1
        first = (isn + 1).astype(np.uint32)
        is_syn = flags & (SYN | ACK | RST) == SYN
        is_ack = (flags & (SYN | ACK | RST) == ACK) & (block.seq[sent] == first[slot])
        row, ack = slot[is_ack], sent[is_ack]
        order = np.argsort(slot[is_syn], kind="stable")
        syn_row, syn = slot[is_syn][order], sent[is_syn][order]
        place = np.searchsorted(syn_row << 32 | syn, row << 32 | ack)
        before = np.append(syn, -1)[place - 1]
        is_before = (place > 0) & (np.append(syn_row, -1)[place - 1] == row)
        time = np.where(is_before, block.time[before], table.syn_time[rows[row]])
        trip = block.time[ack] - time
        is_measured = (time != NEVER) & (trip >= 0)
        measured, first_ack = np.unique(row[is_measured], return_index=True)
        table.handshake[rows[measured]] = trip[is_measured][first_ack]
        table.syn_time[rows[syn_row]] = block.time[syn]
