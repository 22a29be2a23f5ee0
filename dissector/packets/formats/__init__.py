"""Capture files: from bytes of files and pipes to packets whose headers are not parsed.

remote           files that URLs name
byte_input       bytes of files and pipes, decompressed
decompression    decompressors of gzip, zstd and lz4
file_ranges      byte ranges of large files
capture_reader   reads packets from a capture file, also after damage
pcap             the pcap format
pcapng           the pcapng format
joined_formats   files of both formats one after the other
drop_counts      packets that the capture itself dropped
unreadable_files why a file cannot be read, and what to do
pcapng_writer    writes packets as pcapng
"""
