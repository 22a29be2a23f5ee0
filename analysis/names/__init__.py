"""Names in place of numbers.

addresses   names of clients, hosts and brokers
files       files with names of addresses
"""
