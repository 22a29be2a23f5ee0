"""What commands and functions read: captures or exported tables, and the filter on them.

open                 `open_input`: captures, or tables that were exported; filtered
exported             tables in Parquet files
loaded               tables in memory
filters              filters: which exchanges a command reads
selection            the rows that a condition on exchanges selects
clusters             the clusters of a capture, and the warning if there are several
cluster_connections  which connections belong to which cluster
filtered             captures or tables with the rows of a filter only
passes               several passes over the same captures
times                times and lengths of time that users write
"""
