"""Reuse of a port pair without a SYN in the capture: sequence numbers jump behind a close, or
behind a long silence."""

from __future__ import annotations

import numpy as np

from dissector.packets.block import ACK, FIN, RST, Int64, PacketBlock
from dissector.streams import sequence
from dissector.streams.incarnations import Pairs
from dissector.streams.limits import PATIENCE, REORDER_BYTES, WINDOW_AHEAD, WINDOW_BEHIND
from dissector.streams.table import (
    FIRST_TIME,
    IGNORED,
    NEW,
    OPEN,
    Bools,
    ConnectionTable,
    StreamTable,
)


def packets_after_reuse(
    block: PacketBlock, pairs: Pairs, table: ConnectionTable, streams: StreamTable
) -> Int64:
    """The first packet of each sender that is not of its pair's connection, which was closed or
    long silent: its numbers are beyond the windows, or far from those of the close.

    If the sender's last packet is of the connection, the others are damaged.
    """
    last = table.last_time[pairs.row]
    stale = (table.closed[pairs.row] != OPEN) | (last < block.time[0] - PATIENCE)
    stale &= last != FIRST_TIME
    closing = np.flatnonzero(_closes(block))
    if not (stale.any() or len(closing)):
        return np.zeros(0, np.int64)
    sent = np.flatnonzero(block.length > 0)
    far = _sent_after_close(block, pairs, closing, sent)
    packet = sent[stale[pairs.code(sent)]]
    stream = 2 * pairs.row[pairs.code(packet)] + pairs.end(packet)
    far = np.union1d(far, packet[_is_outside(block, packet, stream, table, streams)])
    last_sent = np.full(2 * len(pairs.row), -1)
    last_sent[pairs.sender[sent]] = sent  # the last assignment wins
    far = far[np.isin(last_sent[pairs.sender[far]], far)]
    return far[np.unique(pairs.sender[far], return_index=True)[1]]


def _is_outside(
    block: PacketBlock, packet: Int64, stream: Int64, table: ConnectionTable, streams: StreamTable
) -> Bools:
    """Whether the sequence number of each packet is beyond the window of its stream, or its
    acknowledgement number beyond the window of the opposite one."""
    is_closed = table.closed[stream >> 1] != OPEN
    most = np.where(is_closed, REORDER_BYTES, WINDOW_AHEAD)
    is_ack = block.flags[packet] & ACK != 0
    is_outside = np.zeros(len(packet), np.bool_)
    for each, number, is_used in (
        (stream, block.seq[packet], True), (stream ^ 1, block.ack[packet], is_ack),
    ):  # fmt: skip
        ahead = sequence.ahead(number, streams.next_sequence(each))
        has_position = ~np.isin(streams.state[each], (NEW, IGNORED))
        is_outside |= has_position & is_used & ((ahead > most) | (ahead < -WINDOW_BEHIND))
    return is_outside


def _closes(block: PacketBlock) -> Bools:
    """Whether each packet closes its connection with a sequence number of it. A RST without ACK may
    be the answer to another one (RFC 9293, section 3.10.7.3)."""
    closes: Bools = (block.flags & FIN != 0) | (block.flags & (RST | ACK) == RST | ACK)
    return closes


def _sent_after_close(block: PacketBlock, pairs: Pairs, closing: Int64, sent: Int64) -> Int64:
    """Packets of `sent` that follow one of the block's `closing` packets of their pair, and are far
    from its sequence number."""
    first = np.full(2 * len(pairs.row), len(block))
    first[pairs.sender[closing[::-1]]] = closing[::-1]  # the last assignment wins
    behind = np.append(block.seq + block.length.astype(np.uint32), np.uint32(0))
    is_far = np.zeros(len(sent), np.bool_)
    for end, number in ((0, block.seq), (1, block.ack)):
        close = first[pairs.sender[sent] ^ end]
        ahead = sequence.ahead(number[sent], behind[close])
        is_far |= (close < sent) & ((ahead > REORDER_BYTES) | (ahead < -WINDOW_BEHIND))
    far: Int64 = sent[is_far]
    return far
