"""Comparison of two captures: what changed, and what is only noise.

Each capture is divided into `SLICES` equal slices of time. Drawing blocks of slices with
replacement (bootstrap) shows how much a measure varies without any change, even if requests come in
bursts and resemble those shortly before them. The slices before the first request of a group and
after its last one do not count: clients start and end at other times in each capture, so rates are
those of the time between. The logarithm of after / before has the variance of both captures. Its
interval has the confidence that the user asks for, for all comparisons together (Bonferroni): with
95 %, one comparison of two equal captures in twenty reports a change. A change is reported if the
interval excludes 0, and if the change is large enough to matter.

measures  the measures: what is compared, in which order, and when a change matters
profile   one capture: sums of each group in each slice
bootstrap intervals of the logarithm of after / before
run       `compare`: from tables to a DataFrame
"""
