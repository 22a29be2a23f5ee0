"""From packets to frames.

sequence     sequence numbers and positions
table        connections and streams, as arrays that grow
limits       how long and how far is waited, and how sure one must be
tracking     which connection a packet belongs to
segments     stretches of streams, as arrays
placing      from sequence numbers to positions; where streams begin
reassembly   segments in order, each byte once
holding      what is carried from block to block
judging      how much a place looks like the beginning of a frame
weighing     how certain a request is, by its body and its surroundings
seeking      what a connection carries, and where frames begin
named_ports  connections to a port that the user named, and that are not Kafka
proxied      what a proxy says before the first frame
framing      chains of sizes
walking      from chains to frames
framer       from segments in order to frames, and what is held in between
decrypting   what TLS connections carry, framed alike
bytespace    bytes in pieces, read as if in one row
frames       what comes out
streaming    all of it, block by block
"""

from dissector.streams.streaming import Streams

__all__ = ["Streams"]
