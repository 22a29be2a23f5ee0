"""Rows as files and streams of bytes.

files     output files, which are complete or absent
formats   jsonl, csv, Parquet and Arrow
text      columns as text, for jsonl and csv
otlp      exchanges as spans of OpenTelemetry
"""
