"""The packets of chosen exchanges as a capture of their own.

messages   where the messages of exchanges are in the streams, and their comments
packets    which packets contain them, and which belong to them
gaps       sequence numbers without those of the other messages
writing    these packets as pcapng
driver     `cut`
"""
