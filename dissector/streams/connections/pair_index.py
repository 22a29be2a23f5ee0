"""The pair index: the current connection of each pair of endpoints.

A pair is identified by a hash of 64 bits (SipHash-1-3) of both addresses and ports, the smaller
endpoint first, so that both directions have the same hash. The key is random, so that an attacker
cannot choose endpoints that collide. Two of a million pairs share a hash with a probability of one
in thirty million.

An entry takes twelve bytes. Entries are in sorted runs, each at least twice as long as the next
one: a lookup searches few runs, and adding n entries costs n log n in all.
"""

from __future__ import annotations

import numpy as np

from dissector import _native
from dissector.packets.block import Int32, Int64, UInt64
from dissector.streams.connections.table import Bools


class PairIndex:
    """Rows of the connection table by the hash of their endpoints."""

    def __init__(self) -> None:
        self.key = _native.HASH_KEY
        """Key of the hashes. A process that takes over the index needs it."""
        self._runs: list[tuple[UInt64, Int32]] = []

    def find(self, pairs: UInt64) -> Int64:
        """The row of each pair; -1 if it has no row."""
        rows = np.full(len(pairs), -1, np.int64)
        for run, run_rows in self._runs:
            index, is_present = lookup(run, pairs)
            rows[is_present] = run_rows[index]
        return rows

    def add(self, pairs: UInt64, rows: Int64) -> None:
        """Add new pairs with their rows."""
        order = np.argsort(pairs)
        self._runs.append((pairs[order], rows[order].astype(np.int32)))
        while len(self._runs) > 1 and len(self._runs[-2][0]) < 2 * len(self._runs[-1][0]):
            merged, merged_rows = (
                np.concatenate(parts) for parts in zip(*self._runs[-2:], strict=True)
            )
            order = np.argsort(merged, kind="stable")
            self._runs[-2:] = [(merged[order], merged_rows[order])]

    def replace(self, pairs: UInt64, rows: Int64) -> None:
        """Replace the rows of known pairs."""
        for run, run_rows in self._runs:
            index, is_present = lookup(run, pairs)
            run_rows[index] = rows[is_present]

    def forget(self, rows: Int64) -> None:
        """Remove the pairs with these rows."""
        for index, (run, run_rows) in enumerate(self._runs):
            kept = ~np.isin(run_rows, rows)
            self._runs[index] = run[kept], run_rows[kept]


def lookup(run: UInt64, pairs: UInt64) -> tuple[Int64, Bools]:
    """Index in the run of each pair that it contains, and which pairs these are."""
    if not len(run):
        return np.zeros(0, np.int64), np.zeros(len(pairs), np.bool_)
    index = np.minimum(np.searchsorted(run, pairs), len(run) - 1)
    is_present: Bools = run[index] == pairs
    return index[is_present], is_present
