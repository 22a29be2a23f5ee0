"""PROXY protocol: headers with which a proxy announces its client (HAProxy, versions 1 and 2).

A line of text, or a binary header with its length, precedes the client's first byte. The proxy must
send it at once, so that the first segment contains it. The header is skipped: the connection is the
proxy's.
"""

from __future__ import annotations

import numpy as np

from dissector.packets.block import Bytes, Int64
from dissector.streams.segments import Segments
from dissector.streams.table import HEAD, ConnectionTable, StreamTable

LINE, LONGEST_LINE = b"PROXY ", 107
"""Prefix of a line, and its largest length, CR and LF included."""
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
"""Prefix of a binary header. Command and family follow, a byte each, and a 2-byte length."""
FIXED_PART = 16
"""Bytes of a binary header before the addresses."""


def header_length(data: bytes) -> int:
    """Length of the PROXY header at the start of these bytes; 0 if there is no complete header."""
    if data.startswith(LINE):
        return data[:LONGEST_LINE].find(b"\r\n") + 2 if b"\r\n" in data[:LONGEST_LINE] else 0
    if data.startswith(SIGNATURE) and len(data) >= FIXED_PART and data[12] >> 4 == 2:
        length = FIXED_PART + int.from_bytes(data[14:FIXED_PART], "big")
        return length if length <= len(data) else 0
    return 0


def without_headers(
    data: Bytes, stream_ids: Int64, segments: Segments, table: ConnectionTable, streams: StreamTable
) -> Segments:
    """The segments without PROXY headers at the heads of clients' streams.

    `stream_ids`: the stream of each slot. The boundaries of streams move behind the headers.
    """
    heads = np.flatnonzero(streams.state[stream_ids] == HEAD)
    heads = heads[table.is_client(stream_ids[heads])]
    first = segments.stream.searchsorted(heads)
    heads, first = heads[first < len(segments)], first[first < len(segments)]
    boundary = streams.boundary
    is_first = (segments.stream[first] == heads) & (segments.length[first] > 0)
    is_first &= segments.at[first] == boundary[stream_ids[heads]]
    candidates = first[is_first]
    candidates = candidates[np.isin(data[segments.source[candidates]], (LINE[0], SIGNATURE[0]))]
    if not len(candidates):
        return segments
    front = np.zeros(len(segments), np.int64)
    memory = data.data
    for each in candidates.tolist():
        begin = int(segments.source[each])
        front[each] = header_length(bytes(memory[begin : begin + int(segments.length[each])]))
    if not front.any():
        return segments
    stream = stream_ids[segments.stream[candidates]]
    boundary[stream] += front[candidates]
    streams.framed_until[stream] += front[candidates]
    trimmed = segments.trimmed(front, segments.span - front)
    return trimmed[trimmed.span > 0]
