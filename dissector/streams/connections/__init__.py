"""Connections and streams: the row of each packet, and what is known of each row.

table          connections and streams, as arrays that grow
rows           values of some rows
mapped         arrays whose unused rows take no memory
state          the states of streams and their transitions
flows          the connection of each packet
pair_index     the current connection of each pair of endpoints
port_reuse     reuse of port pairs without a SYN
incarnations   connections of one port pair that follow each other within a short time
parking        packed rows of connections without data
packet_counts  packets, bytes, times, handshakes and ends of connections
roundtrips     round-trip times
"""
