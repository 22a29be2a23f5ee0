"""From packets to frames.

sequence     sequence numbers and positions
table        connections and streams, as arrays that grow
state        what is done with the bytes of a stream: states and transitions
limits       how long and how far is waited, and how sure one must be
tracking     which connection a packet belongs to
segments     stretches of streams, as arrays
placing      from sequence numbers to positions; where streams begin
reassembly   segments in order, each byte once
holding      what is carried from block to block
judging      evidence in the headers of messages, in bits
weighing     how certain a request is, by its body and its surroundings
bodies       whether a message can have the size that it announces
seeking      which protocol a connection carries, and which end is the client
named_ports  connections to a port that the user named, and that are not Kafka
proxied      headers of proxies before the first message
framing      chains of sizes
resync       the search for messages where a chain of sizes cannot be trusted
walking      from chains to frames
framer       from segments in order to frames, and the bytes that wait in between
decrypting   the content of TLS connections, framed alike
bytespace    bytes in pieces, read as if contiguous
frames       the frames, as arrays
complaints   the problems of a block
streaming    the driver of this package, block by block
"""

from dissector.streams.streaming import Streams

__all__ = ["Streams"]
