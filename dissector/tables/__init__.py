"""Tables: the rows that messages, connections and problems become.

schema              the columns of every table, with their types and meanings
arrow               helpers for Arrow arrays
shared_columns      columns that several tables have
exchanges, errors, topics, connections, problems
                    one module per table: functions from messages to rows
pending             rows that wait until their exchange is complete
partitions, memberships, transactions, records
                    tables whose rows wait; `records` also makes `batches`

internal_topics     records that Kafka writes for itself, decoded
log_segments        rows from a broker's log segments
builder             makes the rows of all tables

The names of this package are those of `schema`.
"""

from dissector.tables.schema import (
    BATCHES,
    CONNECTIONS,
    DECOMPRESSED_BATCHES,
    ERRORS,
    EXCHANGES,
    MEMBERSHIPS,
    PARTITIONS,
    PROBLEMS,
    RECORDS,
    TABLES,
    TIME,
    TOPICS,
    TRANSACTIONS,
    Table,
    TableColumn,
)

__all__ = [
    "BATCHES",
    "CONNECTIONS",
    "DECOMPRESSED_BATCHES",
    "ERRORS",
    "EXCHANGES",
    "MEMBERSHIPS",
    "PARTITIONS",
    "PROBLEMS",
    "RECORDS",
    "TABLES",
    "TIME",
    "TOPICS",
    "TRANSACTIONS",
    "Table",
    "TableColumn",
]
