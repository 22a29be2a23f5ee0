"""Tables in DuckDB: for the answers, and for the queries of users.

databases          new databases of DuckDB
expressions        builders of SQL text
intervals          intervals of time to group by
conditions         conditions of users on rows of `exchanges`
row_order          the order of rows in answers
context            what the rows of a filter depend on
intermediate       rows that several answers need, computed once
round_trips        SQL for the round trips on both sides of the capture point
latency_breakdown  SQL for the parts of a latency: queue, poll, net
record_flow        SQL for the clients that produce and consume, and their groups
topic_logs         SQL for the logs of topics that were created again
client_settings    SQL for settings of clients: seen in requests, or inferred
interruptions      SQL for times in which a group did not read a partition
failures           SQL for connections that fail, and how
zones              SQL for the zones of connections and brokers
query              queries of answers, over tables in memory or on disk
stored             the tables of a capture on disk
exchange_columns   columns of `exchanges` that only SQL has
views              every table and every answer as a view
session            queries of users, one after the other
"""
