"""The limits of this package: waiting times, buffer sizes and required evidence, with reasons."""

from __future__ import annotations

SECOND = 1_000_000_000

GRACE = SECOND
"""ns of capture time. A capture may reorder packets of different directions or queues, by far less
than this. Bytes that were acknowledged this long ago and are still missing are not in the
capture."""

SHORT_GRACE = GRACE // 10
"""Replaces `GRACE` once `REORDER_PACKETS` packets followed. For a hole, the receiver must not have
acknowledged bytes beyond those that were seen: then the clocks of both directions agree. So bytes
after lost ones wait less, which is most of the cost of lost packets."""

CLOCK_SKEW = 5 * SECOND
"""ns of capture time. If the two directions were captured with different clocks, a broker's stream
may be ahead of its client's by this much; so may the packets of one of two capture points."""

PATIENCE = 30 * SECOND
"""Longest wait for missing bytes, in ns of capture time. Senders seldom take so long to
retransmit. In a capture of one direction, only this limit ends the wait for a lost byte."""

WAITING_BYTES = 8 << 20
"""Maximum number of bytes of one stream that wait beyond a hole. The receive window limits the
bytes in flight, and systems keep it smaller (Linux: tcp_rmem, 6 MiB); reordering does not explain
more."""

WAITING_SEGMENTS = 16_384
"""Maximum number of segments of one stream that wait beyond a hole: there may be tiny ones."""

REORDER_PACKETS = 64
"""Largest number of packets by which a packet is assumed to be reordered."""

REORDER_BYTES = 4 << 20
"""Bytes of one stream in `REORDER_PACKETS` packets of the largest size."""

SYN_BYTES = 1 << 16
"""A SYN contains fewer bytes than this; its SYN-ACK acknowledges them (TCP Fast Open, RFC 7413)."""

WINDOW_AHEAD = 1 << 30
"""Largest receive window (RFC 7323, section 2.3). Bytes further ahead are not of this stream."""

WINDOW_BEHIND = 1 << 26
"""Retransmitted bytes lie within a window in use; 64 MiB is more than any of them."""

USUAL_FRAME = 100 << 20
"""Largest usual frame: the broker's default of socket.request.max.bytes, 104857600. Users may raise
it, and fetch.max.bytes. A larger size counts only with a header, and a body, that confirm it."""

SEEK_BYTES = 64 << 10
"""Bytes of a stream without known boundary that are buffered for the search."""

CERTAINTY = 36
"""Bits of evidence that make a place a frame boundary: one place of random bytes in 2^36 has them.
`header_evidence` defines the bits of each field."""

RESYNCS = 1000
"""Maximum number of resynchronisations of a stream in one block. A lossy capture of one busy
connection needs a hundred. The limit bounds the time that crafted bytes can take."""
