"""Tables: rows made from exchanges, connections and problems.

table             the classes that declare a table and its columns
schema            the columns of all tables, with types and meanings
arrow             helpers for Arrow arrays
shared_columns    columns that several tables have
exchanges, errors, topics, brokers, clusters, connections, problems
                  rows of these tables
pending           rows that are kept until their exchange ends
partitions, memberships, transactions
                  rows of these tables, once their exchange has ended
record_batches    record batches in messages
batches, records  rows of these tables
builder           the rows of all tables, block by block
finalizer         completes rows with what only the whole capture knows
internal_topics   decodes the records of Kafka's internal topics
log_segments      rows from a broker's log segments

The names of this package are from `schema` and `table`.
"""

from dissector.tables.schema import EXCHANGES, RECORDS, TABLES, TIME
from dissector.tables.table import Table, TableColumn

__all__ = ["EXCHANGES", "RECORDS", "TABLES", "TIME", "Table", "TableColumn"]
