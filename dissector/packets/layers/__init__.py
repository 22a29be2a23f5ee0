"""Link, network and transport headers of all packets at once.

parser        reads the headers of the packets of a block
headers       positions of headers, and the numbers that select the next one
links         link-layer headers
tunnels       headers that carry packets of another network
by_packet     headers that are read one packet at a time
fragments     reassembles IP fragments
unread_layers reports layers that cannot be read
layer_names   names of these layers
"""
