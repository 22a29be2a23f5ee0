"""Live: what a capture tells while it goes on.

session    drives the capture, and hands its rows to whoever watches
lines      a line an exchange, as `tail -f` has it
rights     opening with rights, running without
"""
