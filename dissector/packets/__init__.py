"""From capture files, pipes and interfaces to blocks of TCP packets.

formats          capture files, compressed or not: packets with unparsed headers
layers           reads link, network and transport headers of all packets at once

block            the product of this package: `PacketBlock`, and `PacketSource`
files            `open_packets`: many files as one capture, in order of time
paths            finds capture files by names, folders and patterns
prefetch         reads the next block while the current one is processed
live             packets as they arrive, from interfaces or a pipe: `LiveSource`
af_packet        an interface, through memory shared with the Linux kernel
trimming         packets without a part of their payload, or with other sequence numbers
"""

from dissector.packets.block import PacketBlock, PacketSource
from dissector.packets.files import FileSource, open_packets

__all__ = ["FileSource", "PacketBlock", "PacketSource", "open_packets"]
