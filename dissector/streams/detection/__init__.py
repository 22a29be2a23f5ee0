"""The protocol of each connection, and which end is the client.

detector        decides by the first bytes, or by the evidence of a search
candidates      candidates for requests: bits, and which are rejected
inner_requests  requests inside segments
declared        connections that comments on the capture file declare
gssapi          GSSAPI tokens before the first request
named_ports     connections to ports named by the user that do not carry Kafka
undecided_gaps  gaps of connections whose protocol is not known yet
"""
