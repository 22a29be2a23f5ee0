"""Recordings whose TCP layer is written anew at random; no byte of a stream is missing.

flows      the byte streams of a recording, read with dpkt
network    segments, acknowledgements, disorder, fragments, tunnels: what a network may do to them
cases      one random case: a recording, its options, the files, and what must come of them

`python -m tests.rewriting` runs many cases. `test_rewriting_plain.py` checks the tool itself: it
sends every byte, and a recording that is written anew without any change has the same rows.
"""
