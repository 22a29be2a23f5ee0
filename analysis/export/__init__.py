"""Rows as files and streams of bytes.

files     output files, which are complete or absent
formats   jsonl, csv, Parquet and Arrow
parquet   Parquet files, to which rows are added batch by batch
text      columns as text, for jsonl and csv
otlp      exchanges as spans of OpenTelemetry
"""
