"""How long and how far this room waits, and how sure it must be: every such number, with why."""

from __future__ import annotations

SECOND = 1_000_000_000

GRACE = SECOND
"""ns of capture time. Captures put packets of different directions or queues out of order, by far
less than this: what was acknowledged and has not come by then is not in the capture."""

PATIENCE = 30 * SECOND
"""ns of capture time that anything is waited for. Senders seldom wait so long to send again, and in
a capture of one direction nothing else tells that a byte is lost."""

WAITING_BYTES = 8 << 20
"""Bytes of one stream that wait beyond a hole. A sender may have a receive window in flight, which
systems keep below this (Linux: tcp_rmem, 6 MiB); more cannot be explained by reordering."""

WAITING_SEGMENTS = 16_384
"""The same in segments, so that tiny ones do not wait in numbers."""

REORDER_PACKETS = 64
"""How many packets a packet may come too late or too early, where nothing else tells."""

REORDER_BYTES = 4 << 20
"""How many bytes of one stream that many packets carry: 64 of the largest kind."""

WINDOW_AHEAD = 1 << 30
"""The largest receive window (RFC 7323, section 2.3). What lies further ahead is of no use."""

WINDOW_BEHIND = 1 << 26
"""What is sent again lies within a window in use; 64 MiB is beyond any of them."""

FRAME_LIMIT = 100 << 20
"""The broker's default socket.request.max.bytes, 104857600. No larger size is believed."""

SEEK_BYTES = 64 << 10
"""Bytes of a stream without known boundary that are kept to look for one."""

CERTAINTY = 36
"""Bits of evidence that make a place a frame boundary: one place of random bytes in 2^36 has them.
`seeking` says what counts how much."""

RESYNCS = 1000
"""How often the chain of a stream may be taken up again in one block. A lossy capture of one busy
connection needs a hundred; bytes that are made to break chains shall not hold everything up."""
