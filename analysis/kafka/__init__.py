"""How Kafka's clients and brokers behave.

client_ids    client ids of brokers
errors        names of error codes
normal        errors and waits that are part of normal operation
partitioner   the partition that a producer chooses for a key
rebalances    spans of time, made from the requests of a group's members
"""
