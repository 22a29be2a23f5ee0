"""From capture files, pipes and interfaces to blocks of TCP packets.

block      what this room hands on: `PacketBlock`, `PacketSource`
files      `open_packets`: many files as one capture, in order of time
ahead      the next block is read while the one at hand is taken apart
layers     link, network and transport headers, read for all packets of a block at once
headers    where packets stand among them, and which number means which header
tunnels    headers with another network's packets behind them
fragments  fragments of IP packets, put together
records    the chain of records that a capture file is, followed through damage
pcap       that chain in pcap files
pcapng     that chain in pcapng files
chains     following it from many places at once
paths      files, folders, patterns; what is a capture and what is not
live       what comes now, in small blocks: `LiveSource`
ring       an interface, as memory shared with the kernel
feed       what an interface and a pipe give a live source
writing    packets as pcapng
inputs     bytes of files and pipes, decompressed
"""

from dissector.packets.block import PacketBlock, PacketSource
from dissector.packets.files import FileSource, open_packets

__all__ = ["FileSource", "PacketBlock", "PacketSource", "open_packets"]
