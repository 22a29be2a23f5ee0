"""The summary of a capture, counted while it is read.

tally       sums of groups over any number of batches
results     dataclasses of results
failures    failed attempts to connect, and failed TLS handshakes
unanswered  requests without a response
counts      `Summary`: reads batches, returns results
"""
