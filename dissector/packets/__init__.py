"""From capture files, pipes and interfaces to blocks of TCP packets.

block            the product of this package: `PacketBlock`, and `PacketSource`
files            `open_packets`: many files as one capture, in order of time
paths            finds capture files by names, folders and patterns
unreadable_files why a file cannot be read, and what to do
remote           files that URLs name
byte_input       bytes of files and pipes, decompressed
decompression    decompressors of gzip, zstd and lz4
file_ranges      byte ranges of large files
capture_reader   reads packets from a capture file, also after damage
pcap             the pcap format
pcapng           the pcapng format
prefetch         reads the next block while the current one is processed
live             packets as they arrive, from interfaces or a pipe: `LiveSource`
af_packet        an interface, through memory shared with the Linux kernel
layers           reads link, network and transport headers of all packets at once
headers          positions of headers, and the numbers that select the next one
links            link-layer headers
tunnels          headers that carry packets of another network
by_packet        headers that are read one packet at a time
fragments        reassembles IP fragments
unread_layers    reports layers that cannot be read
layer_names      names of these layers
pcapng_writer    writes packets as pcapng
"""

from dissector.packets.block import PacketBlock, PacketSource
from dissector.packets.files import FileSource, open_packets

__all__ = ["FileSource", "PacketBlock", "PacketSource", "open_packets"]
