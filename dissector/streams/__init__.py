"""From packets to frames.

sequence     sequence numbers and positions
table        connections, as arrays that grow
tracking     which connection a packet belongs to
reassembly   segments in order, each byte once
deciding     what a connection carries, and where its frames begin
framing      from stretches of streams to frames
bytespace    bytes in pieces, read as if in one row
streaming    all of it, block by block
"""

from dissector.streams.streaming import Streams

__all__ = ["Streams"]
