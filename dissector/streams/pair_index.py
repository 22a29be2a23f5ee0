"""The pair index: which connection a pair of endpoints has now.

A pair is known by a hash of 64 bits (SipHash-1-3) of both addresses and ports, the smaller endpoint
first, so that both directions have the same. Its key is random, so that nobody can choose endpoints
that collide; that two of a million pairs share a hash has a probability of one in thirty million.

An entry takes twelve bytes. Entries lie in sorted runs, each at least twice as long as the one
behind it: a search looks into a few runs, and adding n entries costs n log n in all.
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
"""Whole words of 8 bytes that are hashed: two addresses. Both ports fill the last word."""


def _is_after(one: Endpoints, other: Endpoints) -> Bools:
    """Whether each endpoint is greater than the other one."""
    (high, low, port), (other_high, other_low, other_port) = one, other
    found: Bools = np.where(
        high != other_high,
        high > other_high,
        np.where(low != other_low, low > other_low, port > other_port),
    )
    return found


def source_of(block: PacketBlock) -> Endpoints:
    """The senders of the packets."""
    return block.src_high, block.src_low, block.src_port


def target_of(block: PacketBlock) -> Endpoints:
    """The receivers of the packets."""
    return block.dst_high, block.dst_low, block.dst_port


def hashes(source: Endpoints, target: Endpoints, key: UInt64) -> tuple[UInt64, Bools]:
    """The hash of each pair of endpoints, and whether the source is the larger one.

    `key`: shape (2,).
    """
    is_larger = _is_after(source, target)
    smaller, larger = _chosen(is_larger, target, source), _chosen(is_larger, source, target)
    ports = smaller[2].astype(np.uint64) << np.uint64(16) | larger[2]
    return _siphash((*smaller[:2], *larger[:2]), ports, key), is_larger


def _chosen(choice: Bools, one: Endpoints, other: Endpoints) -> Endpoints:
    """The first endpoint where the choice is true, else the other one."""
    return (
        np.where(choice, one[0], other[0]),
        np.where(choice, one[1], other[1]),
        np.where(choice, one[2], other[2]),
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
    found: UInt64 = state[0] ^ state[1] ^ state[2] ^ state[3]
    return found


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
    turned: UInt64 = value << np.uint64(bits) | value >> np.uint64(64 - bits)
    return turned


class PairIndex:
    """Rows of the connection table by the hash of their endpoints."""

    def __init__(self) -> None:
        self.key = kernel.HASH_KEY
        """Of the hashes. It goes with the index where another process takes over."""
        self._runs: list[tuple[UInt64, Int32]] = []

    def find(self, pairs: UInt64) -> Int64:
        """The row of each pair; -1 where it has none."""
        rows = np.full(len(pairs), -1, np.int64)
        for run, of_run in self._runs:
            index, has = _found(run, pairs)
            rows[has] = of_run[index]
        return rows

    def add(self, pairs: UInt64, rows: Int64) -> None:
        """Give rows to pairs that have none."""
        order = np.argsort(pairs)
        self._runs.append((pairs[order], rows[order].astype(np.int32)))
        while len(self._runs) > 1 and len(self._runs[-2][0]) < 2 * len(self._runs[-1][0]):
            merged, of_merged = (
                np.concatenate(parts) for parts in zip(*self._runs[-2:], strict=True)
            )
            order = np.argsort(merged, kind="stable")
            self._runs[-2:] = [(merged[order], of_merged[order])]

    def replace(self, pairs: UInt64, rows: Int64) -> None:
        """Give other rows to pairs that have one."""
        for run, of_run in self._runs:
            index, has = _found(run, pairs)
            of_run[index] = rows[has]

    def forget(self, rows: Int64) -> None:
        """Let go of the pairs that have these rows."""
        for index, (run, of_run) in enumerate(self._runs):
            kept = ~np.isin(of_run, rows)
            self._runs[index] = run[kept], of_run[kept]


def _found(run: UInt64, pairs: UInt64) -> tuple[Int64, Bools]:
    """Where in the run those pairs are that it has, and which they are."""
    if not len(run):
        return np.zeros(0, np.int64), np.zeros(len(pairs), np.bool_)
    index = np.minimum(np.searchsorted(run, pairs), len(run) - 1)
    has: Bools = run[index] == pairs
    return index[has], has
