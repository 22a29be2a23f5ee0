"""The summary of a capture, counted while it is read.

tally     sums of groups over any number of batches
results   dataclasses of results
counts    `Summary`: reads batches, returns results
"""
