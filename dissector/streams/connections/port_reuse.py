"""Reuse of a port pair without another initial sequence number: numbers jump after a close or a
long silence, or a SYN comes long after a close."""

from __future__ import annotations

import numpy as np

from dissector.packets.block import ACK, FIN, RST, SYN, Int64, PacketBlock
from dissector.streams import sequence
from dissector.streams.connections.incarnations import Pairs
from dissector.streams.connections.table import (
    FIRST_TIME,
    IGNORED,
    NEVER,
    NEW,
    OPEN,
    Bools,
    ConnectionTable,
    StreamTable,
)
from dissector.streams.limits import (
    CLOCK_SKEW,
    PATIENCE,
    REORDER_BYTES,
    WINDOW_AHEAD,
    WINDOW_BEHIND,
)


def packets_after_reuse(
    block: PacketBlock, pairs: Pairs, table: ConnectionTable, streams: StreamTable
) -> tuple[Int64, Int64]:
    """The first packet of each sender whose numbers jump after a close or a silence of its pair.

    Returns the packets, and for each the last packet of its pair before the jump that closed the
    connection or preceded the silence; -1 if it is in an earlier block. Each of shape (n,).

    If the sender's last packet before the next close or silence is of the old connection, the
    others are damaged.
    """
    last_time = table.last_time[pairs.row]
    is_closed = table.closed[pairs.row] != OPEN
    is_over = is_closed | (block.time[pairs.first] - PATIENCE > last_time)
    is_over &= last_time != FIRST_TIME
    closing = np.flatnonzero(block.flags & (FIN | RST))
    ends = np.union1d(closing, _before_silences(block, pairs))
    if not (is_over.any() or len(ends)):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    may_jump = is_over.copy()
    may_jump[pairs.code(ends)] = True
    # The first packet after a silence is of the connection of those that follow, with or without
    # payload: it ends the silence.
    is_ack = block.flags & (SYN | FIN | RST | ACK) == ACK
    sent = np.flatnonzero(((block.length > 0) | is_ack) & may_jump[pairs.sender >> 1])
    end = _last_of(pairs.sender >> 1, ends, pairs.code(sent), sent)
    is_behind = (end >= 0) | is_over[pairs.code(sent)]
    packet, end = sent[is_behind], end[is_behind]
    if not len(packet):
        return packet, end
    is_close = np.where(end >= 0, np.isin(end, closing), is_closed[pairs.code(packet)])
    is_used = (block.length[packet] > 0) | ~is_close
    packet, end, is_close = packet[is_used], end[is_used], is_close[is_used]
    if not len(packet):
        return packet, end
    most = np.where(is_close, REORDER_BYTES, WINDOW_AHEAD)
    jumps = np.zeros(len(packet), np.bool_)
    for is_ack in (False, True):
        distance = _distance(block, pairs, streams, packet, end, is_ack=is_ack)
        jumps |= (distance > most) | (distance < -WINDOW_BEHIND)
    group = pairs.sender[packet] * (len(block) + 1) + end
    last = len(group) - 1 - np.unique(group[::-1], return_index=True)[1]
    jump = np.flatnonzero(jumps & np.isin(group, group[last[jumps[last]]]))
    first = jump[np.unique(group[jump], return_index=True)[1]]
    return packet[first], end[first]


def syns_after_close(
    block: PacketBlock, pairs: Pairs, table: ConnectionTable, packet: Int64
) -> Bools:
    """Whether each of these SYNs, in ascending order, begins a connection, whatever its number:
    after a close and silence of its pair. A SYN that is sent again does not come so late, nor does
    one of a second capture point, whose clock may differ. Shape (n,)."""
    pair = pairs.code(packet)
    is_closed = table.closed[pairs.row] != OPEN
    closing = np.flatnonzero(block.flags & (FIN | RST))
    may_follow = is_closed.copy()
    may_follow[pairs.code(closing)] = True
    index = np.flatnonzero(may_follow[pair])
    follows = np.zeros(len(packet), np.bool_)
    if not len(index):
        return follows
    owner, packet, pair = pairs.sender >> 1, packet[index], pair[index]
    sent = np.flatnonzero(may_follow[owner])
    is_syn = block.flags[sent] & SYN != 0
    before, syn, close = (
        _last_of(owner, each, pair, packet) for each in (sent, sent[is_syn], closing)
    )
    time = np.where(before >= 0, block.time[before], table.last_time[pairs.row[pair]])
    is_behind_close = np.where(np.maximum(syn, close) < 0, is_closed[pair], close > syn)
    follows[index] = is_behind_close & (block.time[packet] - CLOCK_SKEW > time)
    return follows


def _before_silences(block: PacketBlock, pairs: Pairs) -> Int64:
    """The packets after which a pair is silent for a long time."""
    if np.ptp(block.time) <= PATIENCE:
        return np.zeros(0, np.int64)
    code = pairs.sender >> 1
    order = np.argsort(code, kind="stable")
    is_silent = (np.diff(code[order]) == 0) & (np.diff(block.time[order]) > PATIENCE)
    return np.sort(order[:-1][is_silent])


def _last_of(owner: Int64, packets: Int64, wanted: Int64, before: Int64) -> Int64:
    """The last of `packets` before each of `before` that has the wanted owner; -1 if none has it.

    `owner`: of each packet of the block. `packets` is ascending.
    """
    width = len(owner) + 1
    key = np.append(np.sort(owner[packets] * width + packets), -1)  # index -1: no packet
    key = key[np.searchsorted(key[:-1], wanted * width + before) - 1]
    return np.where(key // width == wanted, key % width, NEVER)


def _distance(
    block: PacketBlock, pairs: Pairs, streams: StreamTable, packet: Int64, end: Int64, *,
    is_ack: bool,
) -> Int64:  # fmt: skip
    """Distance of the sequence number of each packet, or of its acknowledgement number, from the
    nearest known number of the connection before. 0 if none is known.

    Known are the numbers of the packet `end`, and the last byte that the sender sent until then. A
    stream whose first byte is not known yet has a number near it. A RST without ACK may have a
    number of the packet to which it responds (RFC 9293, section 3.10.7.3).
    """
    sender = pairs.sender[packet] ^ is_ack
    number = (block.ack if is_ack else block.seq)[packet]
    behind = block.seq + block.length.astype(np.uint32)
    stream = 2 * pairs.row[sender >> 1] + (sender & 1)
    sent = _last_of(pairs.sender, np.flatnonzero(block.length > 0), sender, end + 1)
    is_end = (pairs.sender[end] == sender) & (block.flags[end] & (RST | ACK) != RST)
    anchor = streams.anchor[stream]
    is_new = streams.state[stream] == NEW
    before = np.where(is_new, anchor.astype(np.uint32), streams.next_sequence(stream))
    is_known = np.where(is_new, anchor != NEVER, streams.state[stream] != IGNORED)
    unknown = np.iinfo(np.int64).max
    distances = np.array([
        np.where(is_valid, sequence.ahead(number, reference), unknown)
        for is_valid, reference in (
            (sent >= 0, behind[sent]),
            ((sent < 0) & is_known, before),
            (
                (end >= 0) & (is_end | (block.flags[end] & ACK != 0)),
                np.where(is_end, behind[end], block.ack[end]),
            ),
        )
    ])  # fmt: skip
    nearest = np.abs(distances).argmin(axis=0)
    distance = distances[nearest, np.arange(len(packet))]
    is_used = (distance != unknown) & (not is_ack or block.flags[packet] & ACK != 0)
    return np.where(is_used, distance, 0)
