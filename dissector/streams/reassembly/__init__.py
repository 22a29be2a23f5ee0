"""From packets to the segments of streams, in order, each byte once.

origins         initial sequence numbers: where streams begin
damaged_copies  segments that the receiver dropped
reassembler     segments in order, each byte once; holes
carry           bytes that are carried to the next block
chunks          memory for carried bytes, which is used again
"""
