"""Live: what a capture tells while it goes on.

opening    interfaces and pipes, as a capture that goes on
rights     opening with rights, running without
session    drives the capture, and hands its rows to whoever watches:
lines          a line an exchange, as `tail -f` has it; `outlet` writes them, `where` chooses
screen         the full screen, over what `board` has; `terminal` gives it a keyboard
metrics        a page for Prometheus
recorder       packets in pcapng files, rolls: tables in Parquet files; `rolling` names them
watching       the summary at the end, `bounded`; and what must be said at once
"""
