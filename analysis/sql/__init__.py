"""Tables in DuckDB: for the answers, and for the queries of users.

expressions        builders of SQL text
latency_breakdown  SQL for the parts of a latency: queue, poll, net
record_flow        SQL for the clients that produce and consume, and their groups
query              queries of answers, over tables in memory or on disk
stored             the tables of a capture on disk
exchange_columns   columns of `exchanges` that only SQL has
views              every table and every answer as a view
session            queries of users, one after the other
"""
