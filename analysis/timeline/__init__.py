"""Events in order of time.

exchange     the packets of one exchange
connection   the packets of one connection
record       one record: produced, fetched, committed
"""
