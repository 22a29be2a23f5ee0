"""Live capture: what `kafka-dissector sniff` shows and records while packets arrive.

sources              interfaces and pipes, and the pipeline over them
privileges           root privileges to open a socket, dropped afterwards
session              drives the pipeline and passes its rows to the watchers:
lines                    one line or JSON object per exchange, through `nonblocking_writer`
metrics                  a metrics page for Prometheus (`series`, `topic_metrics`)
recorder                 packets in pcapng files
parquet_writer           tables in Parquet files
watchers                 the summary at the end (`bounded_summary`), and messages on standard error
recent_exchanges     rates of the last seconds, for the screen
kept_packets         the latest packets, for the screen
terminal             the keyboard of the screen, and a terminal that was closed
rotation             names, limits and permissions of rotated files
"""
