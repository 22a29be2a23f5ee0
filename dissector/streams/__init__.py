"""From packets to frames.

connections    a row for each connection: endpoints, state, round trips
reassembly     the segments of streams, in order, each byte once
proxies        what proxies add before the first message is skipped
search         the slow path: evidence for messages, and the search for them
detection      the protocol of a connection, and which end is the client

limits         waiting times, buffer sizes and the evidence that is needed
sequence       sequence numbers and positions
segments       TCP segments, as arrays
frame_chain    the fast path: the chain of sizes, for all streams at once
frame_parser   the frames of a block; starts a search where a chain is wrong
doubts         where a chain of sizes cannot be right, and what a search finds there
stream_set     one set of streams, and what decides about them
framing        a set of streams from segments to frames, block by block
tls_streams    decrypted streams, framed like any other stream
frames         frames, as arrays: the result of this package
block_problems problems found in a block
stream_states  the state of connections that moves to another process
streaming      the driver of this package
"""

from dissector.streams.streaming import Streams

__all__ = ["Streams"]
