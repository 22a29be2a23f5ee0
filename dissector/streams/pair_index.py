"""The pair index: the current connection of each pair of endpoints.

A pair is identified by a hash of 64 bits (SipHash-1-3) of both addresses and ports, the smaller
endpoint first, so that both directions have the same hash. The key is random, so that an attacker
cannot choose endpoints that collide. Two of a million pairs share a hash with a probability of one
in thirty million.

An entry takes twelve bytes. Entries are in sorted runs, each at least twice as long as the next
one: a lookup searches few runs, and adding n entries costs n log n in all.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dissector import kernel
from dissector.packets.block import Int32, Int64, PacketBlock, UInt16, UInt64
from dissector.streams.table import Bools

Endpoints = tuple[UInt64, UInt64, UInt16]
"""High and low part of addresses, and ports; each of shape (n,)."""

_WORDS = 4
"""Words of 8 bytes before the last one: two addresses. The last word has both ports."""


def _is_greater(left: Endpoints, right: Endpoints) -> Bools:
    """Whether each left endpoint is greater than the right one."""
    (high, low, port), (right_high, right_low, right_port) = left, right
    is_greater: Bools = np.where(
        high != right_high,
        high > right_high,
        np.where(low != right_low, low > right_low, port > right_port),
    )
    return is_greater


def source_of(block: PacketBlock) -> Endpoints:
    """The senders of the packets."""
    return block.src_high, block.src_low, block.src_port


def target_of(block: PacketBlock) -> Endpoints:
    """The receivers of the packets."""
    return block.dst_high, block.dst_low, block.dst_port


def hashes(source: Endpoints, target: Endpoints, key: UInt64) -> tuple[UInt64, Bools]:
    """The hash of each pair of endpoints, and whether the source is the larger endpoint.

    `key`: shape (2,).
    """
    is_larger = _is_greater(source, target)
    smaller, larger = _chosen(is_larger, target, source), _chosen(is_larger, source, target)
    ports = smaller[2].astype(np.uint64) << np.uint64(16) | larger[2]
    return _siphash((*smaller[:2], *larger[:2]), ports, key), is_larger


def _chosen(choice: Bools, left: Endpoints, right: Endpoints) -> Endpoints:
    """The left endpoint if the choice is true, else the right one."""
    return (
        np.where(choice, left[0], right[0]),
        np.where(choice, left[1], right[1]),
        np.where(choice, left[2], right[2]),
    )


def _siphash(words: Iterable[UInt64], last: UInt64, key: UInt64) -> UInt64:
    first = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
    state = [np.full(len(last), key[index % 2] ^ np.uint64(first[index])) for index in range(4)]
    length = np.uint64((8 * _WORDS + 4) << 56)
    for word in (*words, last | length):
        state[3] ^= word
        _round(state)
        state[0] ^= word
    state[2] ^= np.uint64(0xFF)
    for _ in range(3):
        _round(state)
    digest: UInt64 = state[0] ^ state[1] ^ state[2] ^ state[3]
    return digest


def _round(state: list[NDArray[np.uint64]]) -> None:
    v0, v1, v2, v3 = state
    v0 += v1
    v2 += v3
    v1 = _rotated(v1, 13) ^ v0
    v3 = _rotated(v3, 16) ^ v2
    v0 = _rotated(v0, 32)
    v2 += v1
    v0 += v3
    v1 = _rotated(v1, 17) ^ v2
    v3 = _rotated(v3, 21) ^ v0
    state[:] = v0, v1, _rotated(v2, 32), v3


def _rotated(value: UInt64, bits: int) -> UInt64:
    rotated: UInt64 = value << np.uint64(bits) | value >> np.uint64(64 - bits)
    return rotated


class PairIndex:
    """Rows of the connection table by the hash of their endpoints."""

    def __init__(self) -> None:
        self.key = kernel.HASH_KEY
        """Key of the hashes. A process that takes over the index needs it."""
        self._runs: list[tuple[UInt64, Int32]] = []

    def find(self, pairs: UInt64) -> Int64:
        """The row of each pair; -1 if it has no row."""
        rows = np.full(len(pairs), -1, np.int64)
        for run, run_rows in self._runs:
            index, is_present = _lookup(run, pairs)
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
            index, is_present = _lookup(run, pairs)
            run_rows[index] = rows[is_present]

    def forget(self, rows: Int64) -> None:
        """Remove the pairs with these rows."""
        for index, (run, run_rows) in enumerate(self._runs):
            kept = ~np.isin(run_rows, rows)
            self._runs[index] = run[kept], run_rows[kept]


def _lookup(run: UInt64, pairs: UInt64) -> tuple[Int64, Bools]:
    """Index in the run of each pair that it contains, and which pairs these are."""
    if not len(run):
        return np.zeros(0, np.int64), np.zeros(len(pairs), np.bool_)
    index = np.minimum(np.searchsorted(run, pairs), len(run) - 1)
    is_present: Bools = run[index] == pairs
    return index[is_present], is_present
