"""From packets to frames.

limits            waiting times, buffer sizes and the evidence that is needed
sequence          sequence numbers and positions
mapped            arrays whose unused rows take no memory
table             connections and streams, as arrays that grow
state             the states of streams and their transitions
flows             the connection of each packet
port_reuse        reuse of port pairs without a SYN
pair_index        the current connection of each pair of endpoints
origins           initial sequence numbers: where streams begin
segments          TCP segments, as arrays
reassembly        segments in order, each byte once; holes
carry             bytes that are carried to the next block
chunks            memory for carried bytes, which is used again
parking           packed rows of connections without data
roundtrips        round-trip times
byteview          scattered bytes, read as if they were contiguous
frame_chain       the fast path: the chain of sizes, for all streams at once
frame_parser      the frames of a block; starts a search where a chain is wrong
doubts            where a chain of sizes cannot be right, and what a search finds there
places            the evidence that messages begin at places of many streams
resync            the slow path: the search for messages in one stream
header_evidence   evidence for headers of messages, in bits
request_evidence  evidence for requests that decide the protocol of a connection
bodies            whether a body fits the size of its message
detection         the protocol of a connection, and which end is the client
declared          connections that comments on the capture file declare
named_ports       connections to ports named by the user that do not carry Kafka
proxy_protocol    PROXY headers before the first message
proxy_handshakes  SOCKS and HTTP CONNECT before the first message
proxies           streams without them
stream_set        one set of streams, and what decides about them
framing           a set of streams from segments to frames, block by block
tls_streams       decrypted streams, framed like any other stream
frames            frames, as arrays: the result of this package
block_problems    problems found in a block
streaming         the driver of this package
"""

from dissector.streams.streaming import Streams

__all__ = ["Streams"]
