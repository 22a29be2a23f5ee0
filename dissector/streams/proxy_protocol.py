"""PROXY protocol: what a proxy says first of the client it speaks for (HAProxy, versions 1 and 2).

A line of text, or a binary header that says its length, stands before the client's first byte.
Its sender must send it at once, so that it lies in the first segment, with or without what follows.
It is stepped over: the connection is the proxy's.
"""

from __future__ import annotations

import numpy as np

from dissector.packets.block import Bytes, Int64
from dissector.streams.segments import Segments
from dissector.streams.table import HEAD, ConnectionTable, StreamTable

LINE, LONGEST_LINE = b"PROXY ", 107
"""How a line begins, and its bytes, CR and LF included, at most."""
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
"""How a binary header begins. A byte each for command and family follow, and a 2-byte length."""
FIXED_PART = 16
"""Bytes of a binary header before the addresses."""


def header_length(data: bytes) -> int:
    """Bytes of the PROXY header that these bytes begin with; 0 where they begin with none."""
    if data.startswith(LINE):
        return data[:LONGEST_LINE].find(b"\r\n") + 2 if b"\r\n" in data[:LONGEST_LINE] else 0
    if data.startswith(SIGNATURE) and len(data) >= FIXED_PART and data[12] >> 4 == 2:
        length = FIXED_PART + int.from_bytes(data[14:FIXED_PART], "big")
        return length if length <= len(data) else 0
    return 0


def without_headers(
    data: Bytes, stream_ids: Int64, segments: Segments, table: ConnectionTable, streams: StreamTable
) -> Segments:
    """The segments without the PROXY headers that clients' streams begin with.

    `stream_ids`: the stream of each local one. The streams' boundaries move behind the headers.
    """
    at_head = streams.flat("state")[stream_ids] == HEAD
    if not at_head.any():
        return segments
    stream = stream_ids[segments.stream]
    boundary = streams.flat("boundary")
    first = at_head[segments.stream] & (segments.at == boundary[stream])
    first &= (table.client[stream >> 1] == stream & 1) & (segments.length > 0)
    some = np.flatnonzero(first)
    some = some[np.isin(data[segments.source[some]], (LINE[0], SIGNATURE[0]))]
    front = np.zeros(len(segments), np.int64)
    memory = data.data
    for each in some.tolist():
        begin = int(segments.source[each])
        front[each] = header_length(bytes(memory[begin : begin + int(segments.length[each])]))
    if not front.any():
        return segments
    np.add.at(boundary, stream, front)
    np.add.at(streams.flat("framed_until"), stream, front)
    trimmed = segments.trimmed(front, segments.span - front)
    return trimmed[trimmed.span > 0]
