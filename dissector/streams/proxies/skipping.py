"""Proxies: what they add before the first message is skipped.

A client's stream may begin with a PROXY header, and both streams with a handshake. The bytes of a
handshake wait until both parts are complete, so that later stages see none of them.
"""

from __future__ import annotations

import numpy as np

from dissector.packets.block import Bytes, Int64
from dissector.streams.connections.table import HEAD, NEW, Bools, ConnectionTable, StreamTable
from dissector.streams.limits import SEEK_BYTES, WAITING_BYTES
from dissector.streams.proxies import handshakes, proxy_protocol
from dissector.streams.proxies.handshakes import INCOMPLETE, REFUTED, client_length, proxy_length
from dissector.streams.proxies.proxy_protocol import header_length
from dissector.streams.segments import NO_SEGMENTS, Segments

_FIRST_BYTES = proxy_protocol.FIRST_BYTES + handshakes.FIRST_BYTES


def without_proxies(
    data: Bytes, stream_ids: Int64, segments: Segments, finished: Bools,
    table: ConnectionTable, streams: StreamTable,
) -> tuple[Segments, Segments]:  # fmt: skip
    """The segments without headers and handshakes of proxies; and those of connections whose
    handshake is incomplete. The boundaries of streams move after what is skipped.

    By slot, `stream_ids`: the stream; `finished`: whether it has ended.
    """
    slots = np.flatnonzero(streams.state[stream_ids] == HEAD)
    slots = slots[table.is_client(stream_ids[slots])]
    first = segments.stream.searchsorted(slots)
    slots, first = slots[first < len(segments)], first[first < len(segments)]
    boundary = streams.boundary
    begins = (segments.stream[first] == slots) & (segments.length[first] > 0)
    begins &= segments.at[first] == boundary[stream_ids[slots]]
    slots, first = slots[begins], first[begins]
    slots = slots[np.isin(data[segments.source[first]], _FIRST_BYTES)]
    if not len(slots):
        return segments, NO_SEGMENTS
    heads = _Heads(data, stream_ids, segments, streams)
    skipped, is_pending = np.zeros(len(stream_ids), np.int64), np.zeros(len(stream_ids), np.bool_)
    for client in slots.tolist():
        proxy = client ^ 1
        skipped[client] = header = heads.header_length(client)
        length = client_length(heads.first_bytes(client)[header:])
        answer = heads.answer_length(proxy)
        if REFUTED in (length, answer):
            continue
        is_over = finished[client] or finished[proxy] or heads.is_full(client)
        if INCOMPLETE in (length, answer) and not is_over:
            is_pending[[client, proxy]] = True
        elif length != INCOMPLETE:
            skipped[[client, proxy]] += length, max(answer, 0)
    slot = segments.stream
    front = np.clip(boundary[stream_ids[slot]] + skipped[slot] - segments.at, 0, segments.span)
    front[skipped[slot] == 0] = 0
    boundary[stream_ids] += skipped
    streams.framed_until[stream_ids[skipped > 0]] += skipped[skipped > 0]
    segments = segments.trimmed(front, segments.span - front)
    segments = segments[segments.span > 0]
    waits = is_pending[segments.stream]
    return segments[~waits], segments[waits]


class _Heads:
    """The first bytes of the streams of a block. For arguments see `without_proxies`."""

    def __init__(
        self, data: Bytes, stream_ids: Int64, segments: Segments, streams: StreamTable
    ) -> None:
        self._memory = data.data
        self._stream_ids = stream_ids
        self._segments = segments
        self._streams = streams

    def header_length(self, slot: int) -> int:
        """Length of the PROXY header of a client, which its first segment contains."""
        first = int(self._segments.stream.searchsorted(slot))
        return header_length(self._piece(first))

    def first_bytes(self, slot: int) -> bytes:
        """Contiguous bytes from the boundary of a stream on, about `SEEK_BYTES` at most."""
        segments, head = self._segments, b""
        begin = end = int(self._streams.boundary[self._stream_ids[slot]])
        for index in range(*segments.stream.searchsorted([slot, slot + 1]).tolist()):
            if segments.at[index] != end or end - begin >= SEEK_BYTES:
                break
            head += self._piece(index)
            end += int(segments.length[index])
        return head

    def answer_length(self, slot: int) -> int:
        """Length of a proxy's part of a handshake; 0 if its first bytes are not in the capture."""
        state = self._streams.state[self._stream_ids[slot]]
        if state == NEW:
            return INCOMPLETE
        head = self.first_bytes(slot)
        is_lost = state != HEAD or (not head and slot in self._segments.stream)
        return 0 if is_lost else proxy_length(head)

    def is_full(self, slot: int) -> bool:
        """Whether a stream has too many bytes to wait any longer."""
        stream = self._stream_ids[slot]
        waiting = self._streams.next_position[stream] - self._streams.boundary[stream]
        return bool(waiting > WAITING_BYTES)

    def _piece(self, index: int) -> bytes:
        begin, length = int(self._segments.source[index]), int(self._segments.length[index])
        return bytes(self._memory[begin : begin + min(length, SEEK_BYTES)])
