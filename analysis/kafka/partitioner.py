"""The partition that Kafka's producer chooses for a key: murmur2 modulo the number of partitions.

Source: `org.apache.kafka.common.utils.Utils.murmur2` and `BuiltInPartitioner.partitionForKey`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

_SEED: Final = np.uint32(0x9747B28C)
_FACTOR: Final = np.uint32(0x5BD1E995)


def default_partitions(keys: Sequence[bytes], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The partition of each of n keys in a topic with `counts` partitions."""
    return (murmur2(keys) & 0x7FFFFFFF) % counts


def murmur2(keys: Sequence[bytes]) -> NDArray[np.int64]:
    """The hash of each key, from 0 to 2^32 - 1; keys of the same length are computed together."""
    lengths = np.array([len(key) for key in keys], np.int64)
    hashes = np.zeros(len(keys), np.int64)
    for length in np.unique(lengths).tolist():
        index = np.flatnonzero(lengths == length)
        data = b"".join(keys[each] for each in index.tolist())
        hashes[index] = _hashes(np.frombuffer(data, np.uint8).reshape(len(index), length))
    return hashes


def _hashes(keys: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """The hash of each row; arithmetic of uint32 wraps around."""
    count, length = keys.shape
    hashes: NDArray[np.uint32] = np.full(count, _SEED ^ np.uint32(length), np.uint32)
    whole = length // 4 * 4
    for word in np.ascontiguousarray(keys[:, :whole]).view("<u4").T:
        mixed = word * _FACTOR
        mixed = (mixed ^ (mixed >> np.uint32(24))) * _FACTOR
        hashes = (hashes * _FACTOR) ^ mixed
    for position in range(whole, length):
        hashes ^= keys[:, position].astype(np.uint32) << np.uint32(8 * (position - whole))
    if length > whole:
        hashes *= _FACTOR
    hashes = (hashes ^ (hashes >> np.uint32(13))) * _FACTOR
    return hashes ^ (hashes >> np.uint32(15))
