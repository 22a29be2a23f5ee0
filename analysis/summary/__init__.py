"""The summary of a capture, counted while it is read.

tally       sums of groups over any number of batches
results     dataclasses of results
unanswered  requests without a response
counts      `Summary`: reads batches, returns results
"""
